"""Delimited text: bytes -> columns of stripped cells, "" where one is missing; and cells -> numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress

import numpy as np

from ..checks import BadInput, nearest
from ..types import Array


def text(what: str, data: bytes) -> str:
    """Decode UTF-8 with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise BadInput(f"{what} is not UTF-8 text (byte {e.start}); save it as UTF-8 or download it again") from None


def rows_of(what: str, data: bytes, separator: str = ",", width: int | None = None) -> list[list[str]]:
    r"""Split delimited text into rows of stripped cells, all of one width; blank lines are not rows.

    Examples
    --------
    >>> rows_of("a.csv", b'x, "y"\n1, 2\n\n')
    [['x', 'y'], ['1', '2']]
    """
    rows = list(_records(what, data, separator, width))
    if not rows:
        raise BadInput(f"{what} is empty; delete it and get it again")
    return rows


def _records(what: str, data: bytes, separator: str, width: int | None = None) -> Iterator[list[str]]:
    """Yield one row after another, checked for width."""
    lines = io.StringIO(text(what, data), newline="")
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if len(cells) < 2 and not any(cells):
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise BadInput(
                    f"{what}: line {reader.line_num} has {len(cells)} cells instead of {width}; "
                    "the file is cut off or has another separator"
                )
            yield cells
    except csv.Error as e:
        raise BadInput(f"{what} is not well-formed in line {reader.line_num} ({e}); it may be cut off") from None


def named(what: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return columns by name; a repeated name must repeat its cells."""
    columns: dict[str, list[str]] = {}
    for name, cells in zip(names, map(list, zip(*rows, strict=True)) if rows else ([] for _ in names), strict=True):
        if name in columns and columns[name] != cells:
            raise BadInput(f"{what} has two different columns named {name!r}; rename one of them")
        columns[name] = cells
    return columns


def table(
    what: str, data: bytes, separator: str = ",", wanted: Iterable[str] = (), *, only: bool = False
) -> dict[str, list[str]]:
    """Read delimited text with a header row, and make sure that the wanted columns are there; or keep only these."""
    records = _records(what, data, separator)
    header = next(records, None)
    if header is None:
        raise BadInput(f"{what} is empty; delete it and get it again")
    wanted = tuple(wanted)
    for name in wanted:
        if name not in header:
            raise BadInput(f"{what} has no column {name!r}; {nearest(name, header)}")
    if not only:
        return named(what, header, list(records))
    at = [i for i, name in enumerate(header) if name in wanted]
    return named(what, [header[i] for i in at], [[row[i] for i in at] for row in records])


def choose(columns: Mapping[str, Sequence[str]], keep: Sequence[bool]) -> dict[str, list[str]]:
    """Keep the rows that are marked."""
    return {name: list(compress(cells, keep)) for name, cells in columns.items()}


TOO_LARGE = 1e100
"""Infinity for a column of data: the squares of such numbers, which scaling sums, would leave the range of a float."""


def numbers(what: str, cells: Sequence[str], *, missing: bool = False) -> Array:
    """Turn text into (n,) float64 below 1e100; refuse the first cell that is none. Empty cells are NaN if ``missing``.

    Examples
    --------
    >>> numbers("age", ["30", "41.5"])
    array([30. , 41.5])
    >>> numbers("age", ["30", "old"])
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: column 'age' is numeric, but row 2 holds 'old'; correct it or leave the column out
    """
    try:
        values = np.array([c or "nan" for c in cells] if missing else cells, dtype=np.float64)
        good = np.abs(values) < TOO_LARGE
    except ValueError:
        good = np.array([_is_number(c) for c in cells], bool)
    if missing:
        good |= np.array([not c for c in cells], bool)
    if not good.all():
        at = int(np.argmin(good))
        raise BadInput(
            f"column {what!r} is numeric, but row {at + 1} holds {cells[at]!r}; correct it or leave the column out"
        )
    return values


def _is_number(cell: str) -> bool:
    try:
        return abs(float(cell)) < TOO_LARGE
    except ValueError:
        return False
