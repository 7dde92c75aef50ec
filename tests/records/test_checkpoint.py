"""Where a run stands, on disk: bits come back, damage is seen, nothing is half written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.layout import Layout
from equipoise.records import Checkpoint, load, save
from equipoise.types import Snapshot

pytest.importorskip("safetensors")
LAYOUTS = {"r(eta=1.01)-s1": Layout(("0.weight", "0.bias"), ((2, 3), (2,))), "silo": Layout((), ())}


def checkpoint() -> Checkpoint:
    rng = np.random.default_rng(0)
    memory = {"private": rng.normal(size=(3, 4)).astype(np.float32), "t": np.array([1, 2, 3])}
    one = Snapshot(2, rng.normal(size=8).astype(np.float32), {"weights": {"0": 1 / 3}}, memory, {"n": np.array(13)})
    silo = Snapshot(1, np.zeros(0), {}, {"private": rng.normal(size=(2, 5))})
    return Checkpoint({"r(eta=1.01)-s1": one, "silo": silo}, 5, "abc")


def test_every_bit_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    save(path, checkpoint(), LAYOUTS)
    back, there = load(path, LAYOUTS), checkpoint()
    assert (back.lines, back.digest) == (5, "abc")
    for name, s in there.snapshots.items():
        b = back.snapshots[name]
        assert (b.round, b.state, b.model.dtype, b.model.tobytes()) == (
            s.round,
            s.state,
            s.model.dtype,
            s.model.tobytes(),
        )
        assert {k: (v.dtype, v.shape, v.tobytes()) for k, v in b.memory.items()} == {
            k: (v.dtype, v.shape, v.tobytes()) for k, v in s.memory.items()
        }
        assert {k: (v.shape, int(v)) for k, v in b.counters.items()} == {
            k: (v.shape, int(v)) for k, v in s.counters.items()
        }
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_the_model_lies_there_by_parameter_name(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    save(tmp_path / "c.safetensors", checkpoint(), LAYOUTS)
    arrays = load_file(tmp_path / "c.safetensors")
    assert arrays["r(eta=1.01)-s1/model/0.weight"].shape == (2, 3)


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", checkpoint(), LAYOUTS)
    save(tmp_path / "b.safetensors", checkpoint(), LAYOUTS)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("damage", ["flip a bit", "cut", "empty", "text"])
def test_damage_is_seen_and_the_remedy_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c.safetensors"
    save(path, checkpoint(), LAYOUTS)
    raw = bytearray(path.read_bytes())
    if damage == "flip a bit":
        raw[-3] ^= 1
    path.write_bytes(
        {"flip a bit": bytes(raw), "cut": bytes(raw[:-40]), "empty": b"", "text": b"not a checkpoint at all"}[damage]
    )
    with pytest.raises(BadInput, match="delete it, and --resume computes again"):
        load(path, LAYOUTS)


def test_runs_of_another_study_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "c.safetensors", checkpoint(), LAYOUTS)
    with pytest.raises(BadInput, match="which this study does not have"):
        load(tmp_path / "c.safetensors", {"silo": LAYOUTS["silo"]})
