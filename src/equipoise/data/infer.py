"""What a user's own file holds: read as text, and the kind of every column inferred."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..checks import BadInput, extra
from .delimited import table as delimited_table
from .delimited import text
from .files import sha256, usable

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>"})
"""Cells that hold nothing."""
MOST_LEVELS = 50
"""A text column with more levels than this is an identifier or free text, not an attribute."""
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}([T ].*)?")
_DECIMAL_COMMA = re.compile(r"-?\d+(,\d+)?")
_ROW_NUMBER = re.compile(r"(^|[_ .-])(id|no|nr|index)$|^\(unnamed\)$")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a column looks like: numeric, categorical, or a reason not to use it; its levels or range in words."""

    name: str
    kind: Literal["numeric", "categorical", "date", "constant", "row number", "too many levels"]
    says: str
    levels: tuple[str, ...] = ()
    missing: int = 0


def read_columns(path: Path) -> tuple[dict[str, list[str]], str]:
    """Read CSV or Parquet into columns of stripped text, "" where a cell is missing, and the file's sha256."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is no file" if path.exists() else "does not exist"
        raise BadInput(f"{str(path)!r} {what}; give the path of a CSV or Parquet file")
    try:
        data = path.read_bytes()
    except OSError as e:
        raise BadInput(f"{path} cannot be read ({e.strerror}); check its permissions") from None
    if not data.strip():
        raise BadInput(f"{path} is empty; give a table with a header and rows")
    usable(str(path), data)
    columns = _parquet(path) if data.startswith(b"PAR1") else _csv(path.name, data)
    if not len(next(iter(columns.values()), ())):
        raise BadInput(f"{path} has a header but no rows; give a table with rows")
    return {n: ["" if c in MISSING else c for c in cells] for n, cells in columns.items()}, sha256(data)


def _csv(name: str, data: bytes) -> dict[str, list[str]]:
    if data.startswith(b"PK") or b"\0" in data:
        raise BadInput(f"{name} is no text table; save it as CSV (UTF-8) or Parquet")
    first = re.split(r"[\r\n]", text(name, data).lstrip(), maxsplit=1)[0]
    separator = max(",;\t", key=first.count)
    header = next(csv.reader([first], delimiter=separator, skipinitialspace=True))
    repeated = [n for n, k in Counter(c.strip() for c in header).items() if k > 1]
    if repeated:
        raise BadInput(f"{name} has {repeated[0]!r} more than once in its header; give each column a name of its own")
    columns = delimited_table(name, data, separator)
    return {n or "(unnamed)": cells for n, cells in columns.items()}


def _parquet(path: Path) -> dict[str, list[str]]:
    parquet = extra("pyarrow.parquet", "tables")
    try:
        read = parquet.read_table(path)
    except (OSError, ValueError) as e:
        raise BadInput(f"{path} is no whole Parquet file ({str(e).splitlines()[0]}); write it again") from None
    return {n: [as_text(v) for v in read.column(n).to_pylist()] for n in read.column_names}


def as_text(value: object) -> str:
    """Write a cell of Parquet or TOML as it would stand in a CSV file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return plain(str(value).strip())


def plain(cell: str) -> str:
    """Write "1.0" as "1" and "True" as "true", so that a label is the same in CSV and in Parquet."""
    cell = cell.lower() if cell in ("True", "False", "TRUE", "FALSE") else cell
    return cell[:-2] if cell.endswith(".0") and cell[:-2].lstrip("-").isdigit() else cell


def kind_of(name: str, cells: Sequence[str], rows: int) -> Kind:
    """Say what a column holds; numeric only if every cell that is not missing is a number.

    Examples
    --------
    >>> kind_of("age", ["30", "41", ""], 3)
    Kind(name='age', kind='numeric', says='numeric, 30 to 41', levels=(), missing=1)
    >>> kind_of("id", ["1", "2", "3"], 3).says
    'looks like a row number'
    """
    counts = Counter(cells)
    missing = counts.pop("", 0)
    values = sorted(counts)
    if len(values) < 2:
        return Kind(name, "constant", f"constant ({values[0]!r})" if values else "empty", tuple(values), missing)
    parsed = [_number(v) for v in values]
    if all(p is not None for p in parsed):
        known = sorted(p for p in parsed if p is not None)
        whole = all(p.is_integer() for p in known if abs(p) < 2**53)
        apart = len(values) == rows and rows > 2 and whole
        if apart and (known[-1] - known[0] == rows - 1 or _ROW_NUMBER.search(name.lower())):
            return Kind(name, "row number", "looks like a row number", (), missing)
        return Kind(name, "numeric", f"numeric, {known[0]:g} to {known[-1]:g}", (), missing)
    if all(_DATE.fullmatch(v) for v in values):
        return Kind(name, "date", f"dates such as {values[0]}", (), missing)
    levels = tuple(values)
    if len(values) > MOST_LEVELS:
        first = next(v for v, p in zip(values, parsed, strict=True) if p is None)
        numbers = sum(counts[v] for v, p in zip(values, parsed, strict=True) if p is not None)
        comma = "; numbers need a decimal point" if all(map(_DECIMAL_COMMA.fullmatch, values)) else ""
        hint = (
            f", such as {first!r}{comma}"
            if numbers <= rows / 2
            else f"; {numbers:,} cells are numbers, {first!r} is not"
        )
        return Kind(name, "too many levels", f"{len(values):,} levels in {rows:,} rows{hint}", levels, missing)
    shown = ", ".join(levels[:6]) + (", ..." if len(levels) > 6 else "")
    return Kind(name, "categorical", f"categorical, {len(levels)} levels ({shown})", levels, missing)


def _number(cell: str) -> float | None:
    """Read a number as every other program would: without Python's underscores."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
