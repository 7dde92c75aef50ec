"""Facts that planted faults asked for: what the summary says of the attacker, and which rows the scaling has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from equipoise import study
from equipoise.records import summarise
from equipoise.study import cells

RUN = {
    "run": "r", "data": "d", "rule": "fairis", "parameters": {}, "clients": 3, "seed": 1, "replicate": 1,
    "architecture": "full", "adversary": "disparity", "strength": 1.0, "control": None, "adversaries": [0],
    "clip_norm": 2.0, "pilot": False, "final_moment": "received@test", "control_of": {},
}  # fmt: skip
ATTACKER, HONEST = [[4, 1, 4, 1], [1, 1, 4, 4]], [[4, 1, 4, 1], [3, 1, 4, 2]]


def line(**own: Any) -> dict[str, Any]:
    bare = {"run": "r", "closing": False, "asked": [0, 1, 2], "clients": [0, 1, 2], "rejected": {}, "missing": []}
    return bare | {"measured": {"clients": [], "counts": {}}} | own


def test_the_summary_tells_the_attacker_from_the_honest() -> None:
    final = {"clients": [0, 1, 2], "counts": {"received@test": [ATTACKER, HONEST, HONEST]}}
    lines = [
        line(round=1, weights=[0.2, 0.3, 0.5], clipped=[True, False, False]),
        line(round=2, weights=[0.1, 0.4, 0.5], clipped=[True, True, False]),
        line(round=3, closing=True, measured=final),
    ]
    (row,) = summarise(lines, [RUN])
    assert row["attacker_weight_mean"] == pytest.approx(0.15)
    assert row["attacker_weight_last"] == 0.1
    assert row["clip_rate"] == 0.25  # of the honest updates: 1 of 4
    assert row["attacker_eod"] == pytest.approx(0.8 - 0.2)
    assert row["honest_eod"] == pytest.approx(0.8 - 0.6)
    assert row["pooled_eod"] == pytest.approx(12 / 15 - 7 / 15)
    assert row["attacker_accuracy"] == pytest.approx(13 / 20)
    assert row["accuracy"] == pytest.approx(15 / 20)


def test_scaling_has_seen_training_rows_only() -> None:
    asked = study.read("demo")
    (source,) = cells.sources(asked)
    made = cells.cell(source, 3, 42, asked).federation
    numeric = source.table.numeric
    trained = np.concatenate([shard.x for shard in made.shards])[:, numeric].astype(np.float64)
    np.testing.assert_allclose(trained.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(trained.std(0), 1, atol=1e-5)
    assert np.abs(made.views["test"][0].x[:, numeric].mean(0)).max() > 0.01
