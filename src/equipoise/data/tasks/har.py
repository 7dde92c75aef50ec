"""UCI HAR: what 30 people were doing, from the phone at their waist: 2.56 s windows of nine signals, 50 Hz."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...checks import BadInput
from ...types import Array
from ..delimited import text
from ..task import Arrays, File, Get, Task

SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
WIDTH = 128
FEATURES = 561
ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
SUBJECTS = 30
PARTS = {"both": ("train", "test"), "train": ("train",), "test": ("test",)}


def grid(what: str, data: bytes, width: int) -> Array:
    r"""Read lines of ``width`` numbers each, parted by blanks, as (n, width) float32.

    Examples
    --------
    >>> grid("y.txt", b"  2.5e-001 -1\n  3 4\n", 2)
    array([[ 0.25, -1.  ],
           [ 3.  ,  4.  ]], dtype=float32)
    >>> grid("y.txt", b"1 2\n3\n", 2)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: y.txt: line 2 has 1 numbers instead of 2; the file is cut off or changed, get it again
    """
    try:
        values = np.loadtxt(io.BytesIO(data), np.float32, comments=None, ndmin=2)
    except ValueError:
        values = np.empty((0, 0), np.float32)
    if values.shape[1] != width or not np.isfinite(values).all():
        raise BadInput(f"{what}: {_first_fault(what, data, width)}; the file is cut off or changed, get it again")
    return values


def _first_fault(what: str, data: bytes, width: int) -> str:
    for number, line in enumerate(text(what, data).splitlines(), 1):
        cells = line.split()
        for cell in cells:
            if not _is_number(cell):
                return f"line {number} holds {cell!r}, which is no finite number"
        if cells and len(cells) != width:
            return f"line {number} has {len(cells)} numbers instead of {width}"
    return "it is no text of numbers"


def _is_number(cell: str) -> bool:
    try:
        return abs(float(cell)) <= float(np.finfo(np.float32).max)
    except ValueError:
        return False


def _whole(what: str, data: bytes, high: int, meaning: str) -> Array:
    """Read a file of one whole number a line, in 1..high."""
    values = grid(what, data, 1)[:, 0]
    good = (values == np.round(values)) & (values >= 1) & (values <= high)
    if not good.all():
        row = int(np.argmin(good))
        raise BadInput(f"{what}: line {row + 1} holds {values[row]:g}; {meaning} are 1 to {high}, get the file again")
    return values.astype(np.int64)


def _read(get: Get, options: Mapping[str, Any]) -> Arrays:
    signals = options["features"] == "inertial"
    parts = {part: _part(get, part, signals) for part in PARTS[options["part"]]}
    x, y, subject = (np.concatenate(arrays) for arrays in zip(*parts.values(), strict=True))
    return Arrays(
        x, y - 1,
        [f"{part}: {len(s):,} windows of {len(np.unique(s))} subjects" for part, (_, _, s) in parts.items()],
        np.array([f"subject {s:02d}" for s in subject]),
        shape=(len(SIGNALS), WIDTH) if signals else None,
        features=() if signals else _names(*get("features.txt")),
        scaled=not signals,
    )  # fmt: skip


def _part(get: Get, part: str, signals: bool) -> tuple[Array, Array, Array]:
    """Read the rows, activities (1..6) and subjects of one published part."""
    y = _whole(*get(f"{part}/y_{part}.txt"), len(ACTIVITIES), "activities")

    def as_long(name: str, values: Array) -> Array:
        if len(values) != len(y):
            raise BadInput(f"{name} has {len(values)} rows and y_{part}.txt {len(y)}; take both from one source")
        return values

    name, data = get(f"{part}/subject_{part}.txt")
    subject = as_long(name, _whole(name, data, SUBJECTS, "subjects"))
    if not signals:
        name, data = get(f"{part}/X_{part}.txt")
        return as_long(name, grid(name, data, FEATURES)), y, subject
    names = [f"{part}/Inertial Signals/{signal}_{part}.txt" for signal in SIGNALS]
    x = np.stack([as_long(name, grid(*get(name), WIDTH)) for name in names], axis=1)
    return x.reshape(len(y), -1), y, subject


def _names(what: str, data: bytes) -> tuple[str, ...]:
    """Read the features' names; 42 of them occur three times, so each keeps its number."""
    names = tuple(line.strip() for line in text(what, data).splitlines() if line.strip())
    if len(names) != FEATURES:
        raise BadInput(f"{what} names {len(names)} features instead of {FEATURES}; get it again")
    return names


_ARCHIVE = "human+activity+recognition+using+smartphones.zip"
_FILES = (
    *(f"{part}/{name}_{part}.txt" for part in PARTS["both"] for name in ("y", "subject", "X")),
    *(f"{part}/Inertial Signals/{signal}_{part}.txt" for part in PARTS["both"] for signal in SIGNALS),
    "features.txt",
)

HAR = Task(
    name="har",
    title="Human Activity Recognition Using Smartphones (UCI HAR)",
    target="activity",
    labels={name: i for i, name in enumerate(ACTIVITIES)},
    meaning="what the person was doing",
    rows=10299,
    faults=(
        "neighbouring windows share half of their samples: rows of one recording that are split at random between "
        "training and test are not independent",
        "the signals are used as they are (g and rad/s); the 561 features were scaled to -1..1 by their authors over "
        "all rows, test rows among them, and are standardised here on the training rows",
        "the published parts are split by person, 21 for training and 9 for test; part = both merges them",
        "no sensitive attribute is published: people are known by a number only",
    ),
    licence="CC BY 4.0 (UCI); the README inside the set prohibits any commercial use",
    source="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
    citation="Anguita, Ghio, Oneto, Parra and Reyes-Ortiz (2013), A Public Domain Dataset for Human Activity "
    "Recognition Using Smartphones, ESANN",
    files=tuple(
        File(
            name,
            url=f"https://archive.ics.uci.edu/static/public/240/{_ARCHIVE}",
            archives=(_ARCHIVE, "UCI HAR Dataset.zip"),
        )
        for name in _FILES
    ),
    read=_read,
    options={"features": ("inertial", "561"), "part": ("both", "train", "test")},
    folders=("har/UCI HAR Dataset", "UCI HAR Dataset"),
)
