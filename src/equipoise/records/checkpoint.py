"""Where every run stands, as one safetensors file: arrays and JSON, no pickle, with a digest over both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..checks import BadInput, extra
from ..layout import Layout
from ..types import Array, Snapshot
from .files import replace_file
from .journal import strict


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Snapshots by run name, and how many lines of the journal they stand after."""

    snapshots: Mapping[str, Snapshot]
    lines: int
    digest: str


def _sum(arrays: Mapping[str, Array], about: str) -> str:
    h = hashlib.sha256(about.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        h.update(np.ascontiguousarray(arrays[name]).data if arrays[name].size else b"")
    return h.hexdigest()


def save(path: Path, checkpoint: Checkpoint, layouts: Mapping[str, Layout]) -> None:
    """Write a checkpoint in one step: a process killed in the middle leaves the old one whole.

    The shared model of run R is stored by parameter name, as ``R/model/<name>``, so that any tool that reads
    safetensors can load it; memories as ``R/memory/<name>``, rows in the order of the client ids.
    """
    arrays: dict[str, Array] = {}
    about: dict[str, object] = {}
    for run, s in checkpoint.snapshots.items():
        arrays |= {f"{run}/model/{n}": np.asarray(a, order="C") for n, a in layouts[run].split(s.model).items()}
        arrays |= {f"{run}/memory/{n}": np.asarray(a, order="C") for n, a in s.memory.items()}
        arrays |= {f"{run}/counters/{n}": np.asarray(a, order="C") for n, a in s.counters.items()}
        about[run] = {"round": s.round, "state": s.state, "dtype": s.model.dtype.str}
    text = strict({"lines": checkpoint.lines, "digest": checkpoint.digest, "runs": about})
    # One key only: safetensors writes several in an order that changes from process to process.
    data = extra("safetensors.numpy", "train").save(arrays, metadata={"equipoise": _sum(arrays, text) + text})
    replace_file(path, data)


def load(path: Path, layouts: Mapping[str, Layout]) -> Checkpoint:
    """Read a checkpoint back, or refuse a damaged one.

    Raises
    ------
    BadInput : the file is cut, its digest is wrong, or it holds other runs; deleting it makes ``--resume`` compute
        again from round 1 and compare with the lines that stand in the journal
    """
    remedy = "delete it, and --resume computes again from round 1 and compares with the lines already written"
    safetensors = extra("safetensors", "train")
    try:
        with safetensors.safe_open(str(path), "numpy") as f:
            metadata = f.metadata() or {}
            arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (not a mapping)
    except (safetensors.SafetensorError, OSError, ValueError) as e:
        raise BadInput(f"checkpoint {path} cannot be read ({e}); {remedy}") from None
    digest, text = metadata.get("equipoise", "")[:64], metadata.get("equipoise", "")[64:]
    if not text or _sum(arrays, text) != digest:
        raise BadInput(f"checkpoint {path} is damaged: its digest does not fit its contents; {remedy}")
    about = json.loads(text)
    snapshots = {}
    for run, s in about["runs"].items():
        if run not in layouts:
            raise BadInput(f"checkpoint {path} holds the run {run!r}, which this study does not have; {remedy}")
        mine: dict[str, dict[str, Array]] = {"model": {}, "memory": {}, "counters": {}}
        for name, values in arrays.items():
            if name.startswith(f"{run}/"):
                kind, _, short = name[len(run) + 1 :].partition("/")
                mine[kind][short] = values
        model = layouts[run].join(mine["model"], np.dtype(s["dtype"]))
        snapshots[run] = Snapshot(s["round"], model, s["state"], mine["memory"], mine["counters"])
    return Checkpoint(snapshots, about["lines"], about["digest"])
