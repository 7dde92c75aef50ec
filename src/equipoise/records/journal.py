"""Rounds as strict-JSON lines, appended to one file and never rewritten.

A line holds no clock, host or engine, so the same study twice gives the same bytes. After a crash the torn last line
is cut; lines that are computed again must agree with those that stand there already.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from ..checks import BadInput
from ..types import Array, Round


def plain(value: Any) -> Any:
    """Turn arrays and NumPy numbers into JSON values; what is not finite becomes null.

    Examples
    --------
    >>> plain({"w": np.array([0.5, np.nan]), 3: np.int64(4)})
    {'w': [0.5, None], '3': 4}
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def strict(value: Any, indent: int | None = None) -> str:
    """Return strict JSON with sorted keys."""
    return json.dumps(plain(value), allow_nan=False, sort_keys=True, indent=indent, ensure_ascii=False)


def entry(r: Round) -> dict[str, Any]:
    """Return one round as the JSON object that is written."""
    line: dict[str, Any] = {
        "run": r.run,
        "round": r.broadcast.round,
        "closing": r.closing,
        "asked": r.broadcast.clients,
        "news": r.broadcast.news,
        "clients": r.reports.clients,
        "sizes": r.reports.sizes,
        "figures": r.reports.figures,
        "counts": r.reports.counts,
        "measured": {"clients": r.measured_clients, "counts": r.measured},
        **({"probed": r.probed} if r.probed else {}),
        **r.info,
    }
    plain_line: dict[str, Any] = plain(line)
    return plain_line


def table(counts: Any) -> Array:
    """Return counts of a line as a (K, G, 4) integer array."""
    return np.array(counts, np.int64).reshape(len(counts), -1, 4)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal; a torn last line (no line end) is left out.

    Raises
    ------
    BadInput : a complete line that is no JSON object, with its number
    """
    if not path.is_file():
        raise BadInput(f"{path} does not exist; name a folder that `equipoise run` has written")
    for number, raw in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not raw.endswith(b"\n"):
            return
        try:
            line = json.loads(raw)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise BadInput(
                f"line {number} of {path} is not a JSON object; restore the file, or start again in a new folder"
            )
        yield line


def _alone(file: BinaryIO, path: Path) -> None:
    """Lock a journal for this process until it is closed: two that write to one would garble it."""
    try:
        import fcntl
    except ModuleNotFoundError:  # no such lock on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BadInput(f"another process is writing to {path}; wait for it, or choose another --out") from None
    except OSError:  # a file system without locks
        return


class Journal:
    """The append-only file of a run folder, and how far the work has come in it.

    ``done`` lines are accounted for. ``write`` goes on from there: where a line stands already it must be equal, and
    nothing is written twice.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file = path.open("ab")
        _alone(self._file, path)
        raw = path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):  # the process was killed while it wrote the last line
            with path.open("r+b") as f:
                f.truncate(len(whole))
        self._lines = whole.splitlines(keepends=True)
        self._digest = hashlib.sha256()
        self.done = 0

    def digest(self) -> str:
        """Return the SHA-256 of the lines accounted for."""
        return self._digest.hexdigest()

    def skip(self, lines: int, digest: str) -> None:
        """Account for lines that a checkpoint vouches for."""
        if lines > len(self._lines):
            raise BadInput(
                f"{self.path} has {len(self._lines)} lines, but the checkpoint was made after {lines}; "
                "restore the file, or start again in a new folder"
            )
        for raw in self._lines[:lines]:
            self._digest.update(raw)
        if self.digest() != digest:
            raise BadInput(
                f"the first {lines} lines of {self.path} are not those that the checkpoint was made after; "
                "restore the file, or start again in a new folder"
            )
        self.done = lines

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, or check it against the one that stands there."""
        raw = (strict(line) + "\n").encode()
        if self.done < len(self._lines):
            if self._lines[self.done] != raw:
                where = f"line {self.done + 1} of {self.path} (run {line['run']}, round {line['round']})"
                raise BadInput(
                    f"{where} differs from what is computed again; "
                    "other versions or other data? Start again in a new folder"
                )
        else:
            self._file.write(raw)
            self._lines.append(raw)
        self._digest.update(raw)
        self.done += 1

    def flush(self) -> None:
        """Make sure that what was written is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines accounted for."""
        for raw in self._lines[: self.done]:
            yield json.loads(raw)

    def end(self) -> None:
        """Refuse a file that goes on after the last line of the study."""
        self.flush()
        if len(self._lines) > self.done:
            more = len(self._lines) - self.done
            raise BadInput(f"{self.path} holds {more} lines more than the study has; start again in a new folder")

    def __enter__(self) -> Self:
        """Use as ``with Journal(path) as journal``; the file is closed at the end."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the file, whatever happened."""
        self._file.close()
