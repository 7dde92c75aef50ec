"""No reply ends a run: what does not fit is rejected and named, and the others go on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from equipoise.checks import BadInput
from equipoise.flower import client_app, run_locally, server_app

STUDY = """
name = "replies"
seeds = [42]
rounds = 2
[data]
name = "german"
[partition]
clients = 3
[training]
steps = 2
[clip]
norm = 4.0
[[rule]]
name = "fairis"
"""


def study(folder: Path, extra: str = "") -> Path:
    (folder / "study.toml").write_text(STUDY + extra)
    return folder / "study.toml"


def with_liar(path: Path, spoil: Any, *, when: int = 1) -> ClientApp:
    """Let client 1 spoil its reply of one round, and be honest in the others."""
    honest = client_app(path)
    app = ClientApp()

    def answer(message: Message, context: Any) -> Message:
        reply = honest(message, context)
        config = message.content.config_records["config"]
        if config["client"] == 1 and config["server-round"] == when:
            spoil(reply.content)
        return reply

    app.train()(answer)
    app.evaluate()(honest)
    return app


def lines_of(path: Path, app: ClientApp, out: str, **config: Any) -> list[dict[str, Any]]:
    folder = path.parent / out
    run_locally(server_app(path), app, 3, {"out": str(folder), **config})
    return [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]


def metric(name: str, value: Any) -> Any:
    def spoil(content: RecordDict) -> None:
        content.metric_records["metrics"][name] = value

    return spoil


def array(change: Any) -> Any:
    def spoil(content: RecordDict) -> None:
        arrays = content.array_records["arrays"]
        name = next(iter(arrays))
        arrays[name] = change(arrays[name])

    return spoil


def poisoned_bytes(one: Array) -> Array:
    return Array(dtype="float32", shape=(2, 2), stype="numpy.ndarray", data=b"\x93NUMPY\x01\x00garbage")


def pickled(one: Array) -> Array:
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return Array(dtype="object", shape=(1,), stype="numpy.ndarray", data=buffer.getvalue())


def vast(one: Array) -> Array:
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"
    data = b"\x93NUMPY\x01\x00" + (len(head) + 1).to_bytes(2, "little") + head + b"\n"
    return Array(dtype="float32", shape=(10**15,), stype="numpy.ndarray", data=data)


def without(name: str) -> Any:
    def spoil(content: RecordDict) -> None:
        del content.metric_records["metrics"][name]

    return spoil


def no_metrics(content: RecordDict) -> None:
    del content["metrics"]


def no_arrays(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({})


def raises(content: RecordDict) -> None:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (no_metrics, "no record 'metrics'"),
        (no_arrays, "is missing; send the arrays"),
        (without("num-examples"), "num-examples is nan, which is no number of rows"),
        (metric("num-examples", -5), "num-examples is -5"),
        (metric("num-examples", math.inf), "num-examples is inf"),
        (metric("num-examples", [1, 2]), r"num-examples is \[1, 2\]"),
        (metric("num-examples", 10**9), "counts .* rows, but num-examples is 1e"),
        (without("counts.trained"), "lacks 'trained', which the rule asks for"),
        (metric("counts.trained", [1, 2, 3]), "send 8 integers: tp, fp, tn, fn"),
        (metric("counts.trained", [1.5] * 8), "send 8 integers"),
        (metric("counts.trained", 7), "counts.trained is 7"),
        (metric("counts.trained", [-1] + [9] * 7), "has a count of -1"),
        (metric("counts.trained", [2**60] * 8), "send numbers of rows"),
        (metric("eigenvalue", math.inf), "eigenvalue is inf, which no figure"),
        (metric("trace_error", -1.0), "trace_error is -1, which no figure"),
        (metric("trace", [1.0]), r"trace is \[1.0\]; send one number"),
        (array(lambda a: Array(np.zeros((2, 2), np.float32))), r"has shape \(2, 2\), expected"),
        (array(lambda a: Array(np.full(a.shape, np.nan, np.float32))), "update not finite"),
        (array(lambda a: Array(np.full(a.shape, "x"))), "holds <U1; send a NumPy array of numbers"),
        (array(poisoned_bytes), "cannot be read"),
        (array(pickled), "cannot be read .*[Oo]bject arrays"),
        (array(vast), "cannot be read"),
        (raises, "no reply: .*out of memory"),
    ],
)
def test_a_reply_that_does_not_fit_is_rejected_by_name(tmp_path: Path, spoil: Any, reason: str) -> None:
    path = study(tmp_path)
    first, second, last = lines_of(path, with_liar(path, spoil), "run")
    assert list(first["rejected"]) == ["1"] and first["clients"] == [0, 2] and not first["missing"]
    import re

    assert re.search(reason, first["rejected"]["1"]), first["rejected"]["1"]
    assert second["clients"] == [0, 1, 2] and not second["rejected"]  # and is welcome again
    assert last["closing"] and last["measured"]["clients"] == [0, 1, 2]


def test_a_reply_that_is_not_understood_in_the_closing_round_leaves_that_client_out(tmp_path: Path) -> None:
    path = study(tmp_path)
    honest, app = client_app(path), ClientApp()
    app.train()(honest)

    @app.evaluate()
    def evaluate(message: Message, context: Any) -> Message:
        if message.content.config_records["config"]["client"] == 2:
            raise RuntimeError("gone")
        return honest(message, context)

    assert lines_of(path, app, "run")[-1]["measured"]["clients"] == [0, 1]


def test_too_few_valid_replies_keep_the_model_and_mark_the_round(tmp_path: Path) -> None:
    path = study(tmp_path)
    app = with_liar(path, no_metrics)
    first, second, _ = lines_of(path, app, "run", quorum=3)
    assert first["kept"] == "2 valid replies, and the quorum is 3" and "kept" not in second
    untouched = lines_of(path, app, "again", quorum=2)[0]
    assert "kept" not in untouched and untouched["weights"]


def test_whoever_claims_another_id_is_still_known_by_its_node(tmp_path: Path) -> None:
    """A reply has no place for a client id; a field that looks like one is a figure nobody asked for."""
    path = study(tmp_path)
    lines = lines_of(path, with_liar(path, metric("client", 0.0)), "run")
    plain = lines_of(path, client_app(path), "plain")
    assert lines == plain


def test_a_client_of_another_study_is_named(tmp_path: Path) -> None:
    path = study(tmp_path)
    (tmp_path / "other").mkdir()
    other = study(tmp_path / "other")
    other.write_text(other.read_text().replace("[42]", "[43]"))
    first, *_ = lines_of(path, client_app(other), "run")
    assert set(first["rejected"]) == {"0", "1", "2"} and first["kept"] == "no valid reply"
    assert "no run 'german-K3-splitml-fairis(eta=1.01)-s42'; give everyone the same study" in first["rejected"]["0"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"quorum": 4}, "quorum 4; the study has 3 clients"),
        ({"quorum": 0}, "1 <= quorum"),
        ({"num-clients": 5}, "num-clients is 5"),
        ({"num-clients": 3, "start-deadline-s": 0.1}, "2 nodes are here after 0.1 s, 3 are wanted"),
    ],
)
def test_bad_run_configs_are_refused(tmp_path: Path, config: dict[str, Any], sentence: str) -> None:
    path = study(tmp_path)
    nodes = 2 if "start-deadline-s" in config else 3
    with pytest.raises(BadInput, match=sentence):
        run_locally(server_app(path), client_app(path), nodes, {"out": str(tmp_path / "run"), **config})


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "a" * 65, "A0"])
def test_a_server_cannot_name_a_folder_outside_the_memories(tmp_path: Path, name: str) -> None:
    """Memories are written, and older ones deleted, where the server's number of the federation says."""
    path = study(tmp_path)
    honest, app, folders = client_app(path), ClientApp(), set()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        message.content.config_records["config"]["federation"] = name
        folders.add(context.node_config["memory-dir"])
        return honest(message, context)

    app.evaluate()(honest)
    first, *_ = lines_of(path, app, "run")
    assert set(first["rejected"]) == {"0", "1", "2"} and "do not trust this server" in first["rejected"]["0"]
    assert not (tmp_path / "elsewhere").exists() and not Path("/tmp/elsewhere").exists()
