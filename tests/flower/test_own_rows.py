"""Three members with files of their own, and a server that has none of their rows."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest

from equipoise.flower import LocalGrid, client_app, run_locally, server_app
from equipoise.flower.server import serve
from equipoise.study import plan, read

STUDY = """
name = "banks"
seeds = [42]
rounds = 2
[data]
path = "{sample}"
label = "repaid"
favourable = "loan repaid"
favourable_is = "positive"
sensitive = ["sex"]
leave_out = ["sex"]
[partition]
kind = "equal"
clients = 3
[training]
steps = 3
[clip]
norm = 4.0
[[rule]]
name = "fairis"
"""


def rows(n: int, seed: int, sexes: str = "fm") -> list[dict[str, object]]:
    r = random.Random(seed)
    return [
        {
            "income": r.randint(1, 99),
            "home": r.choice(["own", "rent"]),
            "sex": r.choice(sexes),
            "repaid": r.randint(0, 1),
        }
        for _ in range(n)
    ]


def write(path: Path, table: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as f:
        out = csv.DictWriter(f, list(table[0]))
        out.writeheader()
        out.writerows(table)
    return path


@pytest.fixture
def banks(tmp_path: Path) -> Path:
    sample = write(tmp_path / "sample.csv", rows(300, 1))
    (tmp_path / "study.toml").write_text(STUDY.replace("{sample}", str(sample)))
    for k, n in enumerate((40, 80, 120)):
        write(tmp_path / f"bank{k}.csv", rows(n, 10 + k, "f" if k == 1 else "fm"))
    return tmp_path


def federate(banks: Path, out: str) -> list[dict[str, object]]:
    path = banks / "study.toml"
    grid = LocalGrid(client_app(path), 3, {}, {"memory-dir": str(banks / out / "memories")})
    for context in grid.contexts.values():
        context.node_config["data-file"] = str(banks / f"bank{context.node_config['partition-id']}.csv")
    serve(plan(read(str(path), ())), grid, {"out": str(banks / out / "run")})
    return [json.loads(text) for text in (banks / out / "run" / "rounds.jsonl").read_text().splitlines()]


def test_members_train_on_their_own_rows(banks: Path) -> None:
    first, second, last = federate(banks, "a")
    assert first["sizes"] == second["sizes"] == [40, 80, 120]
    counts = np.array(first["counts"]["trained"])
    sexes = [[0, 80], [80, 0]]
    assert counts.sum((1, 2)).tolist() == [40, 80, 120] and counts[1].sum(1).tolist() in sexes
    assert second["fallbacks"]["1"].startswith("score undefined")  # one sex only: no gap, and no zero either
    assert set(last["measured"]["counts"]) == {"received"}  # members of a deployment hold no test pool


def test_the_rows_are_scaled_as_the_study_scales_them(banks: Path) -> None:
    """The sample itself, given back as members' files, trains to the same bits as the study's own deal of it."""
    path = banks / "study.toml"
    made = plan(read(str(path), ()))
    shards = made.programs[0].runs[0].cell.federation.shards
    from equipoise.study import member_shard

    whole = member_shard(made.programs[0].runs[0].cell, banks / "sample.csv", made.study)
    table = {row.tobytes() for row in whole.x}
    assert all(row.tobytes() in table for shard in shards for row in shard.x)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"home": "boat"}, "'home' holds 'boat'"),
        ({"income": "lots"}, "income"),
        ({"income": ""}, "income"),
        ({"repaid": 7}, "repaid"),
    ],
)
def test_a_file_that_does_not_fit_is_named_and_the_others_go_on(
    banks: Path, change: dict[str, object], reason: str
) -> None:
    table = rows(40, 10)
    write(banks / "bank0.csv", [{**table[0], **change}, *table[1:]])
    first, *_ = federate(banks, "b")
    assert first["clients"] == [1, 2] and reason in first["rejected"]["0"]


def test_a_file_that_is_not_there_is_named(banks: Path) -> None:
    (banks / "bank2.csv").unlink()
    first, *_ = federate(banks, "c")
    assert "bank2.csv' does not exist" in first["rejected"]["2"]


def test_rows_of_ones_own_code(banks: Path) -> None:
    path = banks / "study.toml"
    cell = plan(read(str(path), ())).programs[0].runs[0].cell
    app = client_app(path, own=lambda context: cell.federation.shards[2])
    run_locally(server_app(path), app, 3, {"out": str(banks / "run")})
    first = json.loads((banks / "run" / "rounds.jsonl").read_text().splitlines()[0])
    assert first["sizes"] == [len(cell.federation.shards[2].y)] * 3
