"""What Fairis publishes about poisoning, on its own seeds and partition: value, tolerance, what is not met."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from equipoise import study

SEEDS = (42, 123, 456)


def run(settings: list[str], folder: Path, name: str = "fairis-poisoning") -> list[dict[str, Any]]:
    return study.execute(study.plan(study.read(name, settings)), folder)


@pytest.fixture
def data(request: pytest.FixtureRequest) -> list[str]:
    """The settings that choose a data set; Taiwan is read from a folder, the others from the package."""
    name = request.param
    folder = [f'data.folder="{request.getfixturevalue("data_folder")}"'] if name == "taiwan" else []
    return [f"data.name={name}", *folder]


@pytest.mark.parametrize(
    ("data", "published"), [("german", 0.395), ("taiwan", 0.210), ("adult", 0.303)], indirect=["data"]
)
def test_the_partition_is_the_papers(data: list[str], published: float) -> None:
    """Published weight of the attacker under FedAvg is its share of the training rows: the split's fingerprint."""
    planned = study.plan(study.read("demo", [*data, "rule=[{name='fedavg'}]", "clip.norm='none'"]))
    cells = {id(p.cell): p.cell for program in planned.programs for p in program.runs}.values()
    shares = [len(c.federation.shards[0].y) / c.train_rows for c in cells]
    assert len(shares) == len(SEEDS)
    assert round(float(np.mean(shares)), 3) == published


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "published"),
    [
        ("german", {1.01: 0.005, 1.32: 0.108}),
        ("taiwan", {1.01: 0.048, 1.32: 0.154}),
        ("adult", {1.01: 0.183, 1.32: 0.230}),
    ],
    indirect=["data"],
)
def test_attacker_weights(data: list[str], published: dict[float, float], tmp_path: Path) -> None:
    """Fairis 1.01 within 0.02 of the published weight and 1.32 within 0.03, Uniform at 1/3.

    The text leaves the first model and the order of batches open, so the figure is a mean over replicates of training
    on the same rows; a single replicate of Taiwan scatters by 0.02 (seed 456 has two outcomes, near 0.02 and 0.14).
    """
    more = ["replicates=[0,1,2,3]", "adversary.control=false", "evaluation.every=0"]
    rows = run([*data, *more, "rule=[{name='fairis',eta=[1.01,1.32]},{name='uniform'}]"], tmp_path / "r")
    got = defaultdict(list)
    for r in rows:
        got[r["rule"], r["parameters"].get("eta")].append(r["attacker_weight_mean"])
    for eta, tolerance in ((1.01, 0.02), (1.32, 0.03)):
        weights = got["fairis", eta]
        assert len(weights) == len(SEEDS) * 4
        assert np.mean(weights) == pytest.approx(published[eta], abs=tolerance), weights
    assert got["uniform", None] == pytest.approx([1 / 3] * 12)


@pytest.mark.slow
def test_fairfed_under_the_gaming_attack(tmp_path: Path) -> None:
    """Published on German: FairFed 0.342 -> 0.349, Fairis 0.218 -> 0.333, from the first round to the last."""
    run(["data.name=german", "adversary.control=false", "evaluation.every=0"], tmp_path / "r", "fairis-gaming")
    weights = defaultdict(list)
    for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines():
        x = json.loads(line)
        if x["round"] in (1, 16) and "gaming" in x["run"]:
            weights[x["run"].split("splitml-")[1].split("(")[0], x["round"]].append(x["weights"][0])
    for (rule, at), value in {("fairfed", 1): 0.342, ("fairfed", 16): 0.349, ("fairis", 16): 0.333}.items():
        assert np.mean(weights[rule, at]) == pytest.approx(value, abs=0.005)
    assert np.mean(weights["fairis", 1]) == pytest.approx(0.218, abs=0.02)


@pytest.mark.slow
def test_undefined_scores_do_not_occur_in_the_papers_cells(tmp_path: Path) -> None:
    """With the paper's own partition every client has positives of both groups, so no policy can matter on Adult."""
    policies = "score.undefined=['neutral','worst','previous','error','zero']"
    settings = [
        "data.name='adult'",
        "replicates=0",
        policies,
        "rounds=2",
        "training.steps=5",
        "adversary.control=false",
    ]
    rows = run([*settings, "rule=[{name='fairis'}]"], tmp_path / "r")
    for seed in SEEDS:
        same = [r for r in rows if r["seed"] == seed]
        assert len(same) == 5
        assert {r["fallbacks"] for r in same} == {0}
        assert len({r["attacker_weight_mean"] for r in same}) == 1
