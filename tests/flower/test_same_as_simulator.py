"""Every rule, plain and poisoned, with clients that stay away: Flower writes the bytes that the simulator writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.flower import client_app, run_locally, server_app
from equipoise.records import load
from equipoise.study import execute, plan, read
from equipoise.study.rules import known

STUDY = """
name = "everything"
seeds = [42]
rounds = 2
[data]
name = "german"
[partition]
clients = 6
[training]
steps = 5
[participation]
fraction = 0.8
lost = 0.2
late = 0.2
[adversary]
kind = "disparity"
members = [1]
strength = 2.0
"""
RULES = sorted(known())


def written(folder: Path, *settings: str) -> tuple[Path, Path, list[str]]:
    (folder / "study.toml").write_text(STUDY)
    made = plan(read(str(folder / "study.toml"), settings))
    execute(made, folder / "simulated")
    apps = server_app(folder / "study.toml", settings), client_app(folder / "study.toml", settings)
    run_locally(*apps, 6, {"out": str(folder / "flower")})
    return folder / "simulated", folder / "flower", [p.name for program in made.programs for p in program.runs]


def models(folder: Path, settings: tuple[str, ...]) -> dict[str, np.ndarray[Any, Any]]:
    made = plan(read(str(folder.parent / "study.toml"), settings))
    layouts = {p.name: program.layout for program in made.programs for p in program.runs}
    return {name: s.model for name, s in load(folder / "checkpoint.safetensors", layouts).snapshots.items()}


@pytest.mark.parametrize("architecture", ["splitml", "full"])
def test_every_rule_writes_the_same_bytes(tmp_path: Path, architecture: str) -> None:
    rules = ", ".join(f'{{name = "{name}"}}' for name in RULES)
    settings = (f"rule=[{rules}]", f"model.architecture={architecture}")
    simulated, flower, runs = written(tmp_path, *settings)
    assert len(runs) >= 2 * len(RULES)  # each with its adversary-free control
    for name in ("rounds.jsonl", "clients.csv", "summary.json", "study.json"):
        assert (simulated / name).read_bytes() == (flower / name).read_bytes(), name
    mine, theirs = models(simulated, settings), models(flower, settings)
    assert mine.keys() == theirs.keys() and all(np.array_equal(mine[r], theirs[r]) for r in mine)
    lines = [json.loads(text) for text in (flower / "rounds.jsonl").read_text().splitlines()]
    assert any(line["missing"] for line in lines if not line["closing"])  # somebody did stay away


def test_two_runs_are_the_same_bytes(tmp_path: Path) -> None:
    settings = ('rule=[{name = "fairfed"}, {name = "multi-krum"}]',)
    _, flower, _ = written(tmp_path, *settings)
    apps = server_app(tmp_path / "study.toml", settings), client_app(tmp_path / "study.toml", settings)
    run_locally(*apps, 6, {"out": str(tmp_path / "again")})
    assert (flower / "rounds.jsonl").read_bytes() == (tmp_path / "again" / "rounds.jsonl").read_bytes()


def test_finps_curvature_and_news_travel(tmp_path: Path) -> None:
    methods = [
        '{name = "ala", scores = "deviation", terms = {lipschitz_code = 0.05}}',
        '{name = "fairis", scores = "rank", eta = 1.1, terms = {lipschitz_paper = 0.01}}',
        '{name = "joint", scores = ["equal_opportunity_difference", "absolute"], eta = [[1.01, 1.1]]}',
        '{name = "equidistant"}',
    ]
    settings = (f"rule=[{', '.join(methods)}]", "model.architecture=full", "score.constant=50.0", "seeds=[7]",
                'score.figures=["eigenvalue", "trace"]')  # fmt: skip
    simulated, flower, _ = written(tmp_path, *settings)
    assert (simulated / "rounds.jsonl").read_bytes() == (flower / "rounds.jsonl").read_bytes()
    lines = [json.loads(text) for text in (flower / "rounds.jsonl").read_text().splitlines()]
    assert any(len(set(line["news"]["rho"])) > 2 for line in lines if "rho" in line["news"])


def test_an_attack_that_sees_the_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    settings = ("adversary.kind=claim_median", 'rule=[{name = "ala", scores = "deviation"}]')
    with pytest.raises(BadInput, match="'claim_median' knows what the other clients send"):
        run_locally(
            server_app(tmp_path / "study.toml", settings),
            client_app(tmp_path / "study.toml", settings),
            5,
            {"out": str(tmp_path / "run")},
        )
    assert not (tmp_path / "run").exists()
