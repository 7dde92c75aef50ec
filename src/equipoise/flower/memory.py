"""What a client keeps between rounds, on its own disk: its last two memories, each stamped with its round.

Two, because a server that was killed may ask for a round again that the client has already trained: the client then
goes on from the memory before it. Files are safetensors; nothing that could hold code is ever loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..checks import BadInput, extra
from ..records import replace_file
from ..types import Array, Memory

KEPT = 2


def recall(folder: Path, before: int, last: int = 0) -> Memory | None:
    """Return the newest memory from before a round; None where this client has not trained yet.

    Parameters
    ----------
    folder : of this client in this run; it may not exist
    before : the round that is to be trained
    last : the round in which the server last heard from this client: what is older than that is not it

    Raises
    ------
    BadInput : the memory of round ``last`` is gone, or cannot be read

    Examples
    --------
    >>> recall(Path("/nowhere"), 1) is None
    True
    """
    rounds = [t for t in _rounds(folder) if t < before]
    newest = max(rounds, default=0)
    if newest < min(last, before - 1):
        raise BadInput(
            f"{folder} holds no memory of round {last}, in which this client last trained (newest: round {newest}); "
            "put the folder back, or begin the run anew"
        )
    if not newest:
        return None
    path = _path(folder, newest)
    safetensors = extra("safetensors", "train")
    try:
        with safetensors.safe_open(str(path), "numpy") as f:
            return {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (not a mapping)
    except (safetensors.SafetensorError, OSError, ValueError) as e:
        raise BadInput(f"{path} cannot be read ({e}); put it back, or begin the run anew") from None


def keep(folder: Path, t: int, memory: Mapping[str, Array]) -> None:
    """Write the memory after round t in one step, and drop all but the last two, and those of rounds to come."""
    folder.mkdir(parents=True, exist_ok=True)
    path, data = _path(folder, t), extra("safetensors.numpy", "train").save(dict(memory))
    replace_file(path, data)
    there = _rounds(folder)
    for old in there:
        if old > t or old in [r for r in there if r <= t][:-KEPT]:
            _path(folder, old).unlink()


def _path(folder: Path, t: int) -> Path:
    return folder / f"round-{t:06d}.safetensors"


def _rounds(folder: Path) -> list[int]:
    found = [re.fullmatch(r"round-(\d+)\.safetensors", p.name) for p in folder.glob("round-*.safetensors")]
    return sorted(int(m[1]) for m in found if m)
