"""What the server stops of a lying client today, and what it does not: the table of docs/flower.md, line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from equipoise.flower import client_app, run_locally, server_app

STUDY = """
name = "liars"
seeds = [42]
rounds = 1
[data]
name = "german"
[partition]
clients = 3
[training]
steps = 20
[adversary]
kind = "disparity"
members = [0]
strength = 2.0
control = false
[[rule]]
name = "fairis"
"""
CLIP = 3.0


def lying(path: Path, lie: Callable[[RecordDict, RecordDict], None]) -> ClientApp:
    """Let client 0 change what it sends, knowing what it was sent; on the wire, where no study can forbid it."""
    honest, app = client_app(path), ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        reply = honest(message, context)
        if message.content.config_records["config"]["client"] == 0:
            lie(message.content, reply.content)
        return reply

    app.evaluate()(honest)
    return app


def no_lie(sent: RecordDict, reply: RecordDict) -> None:
    return None


def perfect(sent: RecordDict, reply: RecordDict) -> None:
    """Claim that everybody is found and nobody is accused: EOD 0."""
    metrics = reply.metric_records["metrics"]
    tables = np.array(metrics["counts.trained"]).reshape(-1, 4)
    tables[:, 0], tables[:, 2] = tables[:, 0] + tables[:, 3], tables[:, 1] + tables[:, 2]
    tables[:, [1, 3]] = 0
    metrics["counts.trained"] = tables.ravel().tolist()


def scaled(sent: RecordDict, reply: RecordDict) -> None:
    """Send a hundred times the update."""
    before, after = sent.array_records["arrays"], reply.array_records["arrays"]
    reply["arrays"] = ArrayRecord(
        {n: Array(before[n].numpy() + 100 * (after[n].numpy() - before[n].numpy())) for n in after}
    )


def claims_an_id(sent: RecordDict, reply: RecordDict) -> None:
    reply.metric_records["metrics"]["client"] = reply.metric_records["metrics"]["partition-id"] = 1


def many_rows(sent: RecordDict, reply: RecordDict) -> None:
    """Claim a million rows, with counts to match."""
    metrics = reply.metric_records["metrics"]
    table = np.array(metrics["counts.trained"]) * 10_000
    metrics["counts.trained"], metrics["num-examples"] = table.tolist(), int(table.sum())
    metrics["counts.received"] = (np.array(metrics["counts.received"]) * 10_000).tolist()


def first_round(folder: Path, lie: Callable[..., None], clip: str, rule: str = "fairis") -> dict[str, Any]:
    folder = folder / f"{lie.__name__} {clip} {rule}".replace('"', "")
    folder.mkdir()
    path = folder / "study.toml"
    path.write_text(STUDY.replace('"fairis"', f'"{rule}"') + f"[clip]\nnorm = {clip}\n")
    run_locally(server_app(path), lying(path, lie), 3, {"out": str(folder / "run")})
    line: dict[str, Any] = json.loads((folder / "run" / "rounds.jsonl").read_text().splitlines()[0])
    return line


def test_claiming_no_gap_while_poisoning_is_not_stopped(tmp_path: Path) -> None:
    """Counts are a claim: whoever lies about them weighs most. What holds is the bound w C on its pull."""
    honest, lied = first_round(tmp_path, no_lie, str(CLIP)), first_round(tmp_path, perfect, str(CLIP))
    assert lied["scores"][0] == 0 and lied["weights"][0] > 2 * honest["weights"][0]
    assert lied["weights"][0] == max(lied["weights"]) and not lied["rejected"]
    assert lied["bounds"][0] == pytest.approx(lied["weights"][0] * CLIP)


def test_another_ones_id_is_worth_nothing(tmp_path: Path) -> None:
    assert first_round(tmp_path, claims_an_id, str(CLIP)) == first_round(tmp_path, no_lie, str(CLIP))


def test_a_scaled_update_is_cut_to_the_clip_and_not_stopped_without_one(tmp_path: Path) -> None:
    clipped, free = first_round(tmp_path, scaled, str(CLIP)), first_round(tmp_path, scaled, '"none"')
    assert clipped["clipped"][0] and clipped["norms"][0] > 50 * CLIP
    assert free["norms"][0] > 50 * CLIP and not any(free["clipped"]) and not free["rejected"]


@pytest.mark.parametrize(("rule", "stopped"), [("fairis", True), ("fedavg", False), ("fairis-n", False)])
def test_claiming_more_rows_pays_only_where_rows_weigh(tmp_path: Path, rule: str, stopped: bool) -> None:
    honest = first_round(tmp_path, no_lie, str(CLIP), rule)
    lied = first_round(tmp_path, many_rows, str(CLIP), rule)
    assert (lied["weights"][0] == honest["weights"][0]) is stopped
    assert stopped or lied["weights"][0] > 0.99
