"""A server killed at any moment and started again ends with the bytes of an unbroken run; clients go back with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from equipoise.checks import BadInput
from equipoise.flower import LocalGrid, client_app
from equipoise.flower.memory import keep, recall
from equipoise.flower.server import serve
from equipoise.study import plan, read

STUDY = """
name = "resumed"
seeds = [42]
rounds = 4
[data]
name = "german"
[partition]
clients = 3
[training]
steps = 3
[participation]
fraction = 0.7
[clip]
norm = 4.0
[[rule]]
name = "fairis"
[[rule]]
name = "fairfed"
"""


class Killed(BaseException):
    """What no handler of the server catches."""


class Mortal(LocalGrid):
    """A grid whose server dies when it wants its n-th set of replies: clients have trained, nobody hears of it."""

    def __init__(self, *args: Any, dies: int) -> None:
        super().__init__(*args)
        self.left = dies

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.left -= 1
        if self.left == 0:
            raise Killed
        return super().pull_messages(message_ids)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.toml"
    path.write_text(STUDY)
    return path


def run(study: Path, out: Path, memories: Path, *, dies: int = 0, resume: bool = False) -> None:
    grid = Mortal(client_app(study), 3, {}, {"memory-dir": str(memories)}, dies=dies)
    serve(plan(read(str(study), ())), grid, {"out": str(out), "resume": resume})


@pytest.fixture(scope="module")
def whole(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(study, folder / "run", folder / "memories")
    return folder / "run"


@pytest.mark.parametrize("dies", [1, 2, 3, 4, 5])
def test_killed_and_resumed_equals_unbroken(study: Path, whole: Path, tmp_path: Path, dies: int) -> None:
    out, memories = tmp_path / "run", tmp_path / "memories"
    with pytest.raises(Killed):
        run(study, out, memories, dies=dies)
    before = json.loads((out / "nodes.json").read_text())
    run(study, out, memories, resume=True)
    assert json.loads((out / "nodes.json").read_text()) == before
    for name in ("rounds.jsonl", "clients.csv", "summary.json", "study.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name


def test_without_going_back_the_bytes_would_differ(study: Path, whole: Path, tmp_path: Path) -> None:
    """The planted fault: a client that goes on from the memory of the round it is to train again."""
    out, memories = tmp_path / "run", tmp_path / "memories"
    with pytest.raises(Killed):
        run(study, out, memories, dies=3)
    for newest in memories.glob("*/*/*/round-000003.safetensors"):
        shutil.copy(newest, newest.with_name("round-000002.safetensors"))
    run(study, out, memories, resume=True)
    assert (out / "rounds.jsonl").read_bytes() != (whole / "rounds.jsonl").read_bytes()


def test_a_client_whose_disk_was_lost_says_so(study: Path, tmp_path: Path) -> None:
    out, memories = tmp_path / "run", tmp_path / "memories"
    with pytest.raises(Killed):
        run(study, out, memories, dies=3)
    shutil.rmtree(memories)
    run(study, out, memories, resume=True)
    lines = [json.loads(text) for text in (out / "rounds.jsonl").read_text().splitlines()]
    third = [line for line in lines if line["round"] == 3]
    assert all("holds no memory of round" in why for line in third for why in line["rejected"].values())
    assert any(line["rejected"] for line in third)


def test_another_run_in_the_folder_of_memories_is_none_of_ours(study: Path, whole: Path, tmp_path: Path) -> None:
    run(study, tmp_path / "first", tmp_path / "memories")
    run(study, tmp_path / "second", tmp_path / "memories")
    assert (tmp_path / "second" / "rounds.jsonl").read_bytes() == (whole / "rounds.jsonl").read_bytes()


def test_the_last_two_memories_stay(tmp_path: Path) -> None:
    for t in (1, 2, 5):
        keep(tmp_path, t, {"t": np.array([t])})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["round-000002.safetensors", "round-000005.safetensors"]
    assert int(recall(tmp_path, 6)["t"][0]) == 5 and int(recall(tmp_path, 5)["t"][0]) == 2
    assert recall(tmp_path, 2) is None
    keep(tmp_path, 3, {"t": np.array([3])})  # gone back: what was to come is void
    assert sorted(p.name for p in tmp_path.iterdir()) == ["round-000002.safetensors", "round-000003.safetensors"]


def test_a_torn_or_missing_memory_is_named(tmp_path: Path) -> None:
    keep(tmp_path, 3, {"t": np.array([3])})
    with pytest.raises(BadInput, match=r"no memory of round 5, in which this client last trained \(newest: round 3\)"):
        recall(tmp_path, 7, last=5)
    (tmp_path / "round-000003.safetensors").write_bytes(b"torn")
    with pytest.raises(BadInput, match=r"round-000003\.safetensors cannot be read"):
        recall(tmp_path, 4)
