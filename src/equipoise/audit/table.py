"""A file of predictions -> the columns that are asked for, each as codes of its distinct values.

Distinct values are looked at once, not once per row, so that a million rows take a second or two in plain Python.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import BadInput, extra, nearest
from ..types import Array

CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of a file: name -> (codes (n,), distinct raw values), or (values (n,), None) for a numeric one.

    ``line``: row -> words that find it in the file, such as "line 17". ``left_out``: reason -> rows that hold no data.
    """

    columns: dict[str, tuple[Array, list[Any] | None]]
    rows: int
    line: Callable[[int], str]
    left_out: dict[str, int]


def read(path: Path, wanted: Sequence[str], numeric: Sequence[str] = ()) -> Table:
    """Read the ``wanted`` columns of a CSV or Parquet file, those in ``numeric`` as float64.

    CSV is UTF-8, with or without a byte-order mark, separated by comma, semicolon or tab (the one the header holds most
    of). Blank lines are left out and counted.

    Raises
    ------
    BadInput
        No such file, not UTF-8, empty, no rows, a column missing (the nearest is named) or named twice, a row with too
        few or too many fields (the line is named), a text in a numeric column.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if path.suffix.lower() in {".parquet", ".pq"} or magic == b"PAR1":
            return _parquet(path, wanted, numeric)
        return _csv(path, wanted, numeric)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; check the path") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder; name a CSV or Parquet file") from None
    except PermissionError:
        raise BadInput(f"{path} may not be read; check its permissions") from None
    except OSError as e:
        raise BadInput(f"{path} cannot be read ({e.strerror or e}); name a CSV or Parquet file") from None
    except UnicodeDecodeError as e:
        byte = e.object[e.start]
        raise BadInput(f"{path.name} is not UTF-8 (byte 0x{byte:02x}); save it as UTF-8 CSV or as Parquet") from None


class _Index(dict[str, int]):
    """Value -> code in the order of appearance."""

    def __missing__(self, key: str) -> int:
        self[key] = code = len(self)
        return code


def _csv(path: Path, wanted: Sequence[str], numeric: Sequence[str]) -> Table:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, header = _open(path, file)
        at = _places(path, header, wanted)
        index = {name: _Index() for name in wanted if name not in numeric}
        parts: dict[str, list[Array]] = {name: [] for name in wanted}
        rows = blank = 0
        for chunk in _chunks(path, reader):
            full = chunk if all(chunk) else [row for row in chunk if row]
            blank += len(chunk) - len(full)
            if set(map(len, full)) - {len(header)}:
                raise _ragged(path, len(header))
            for name, place in at.items():
                column = list(map(itemgetter(place), full))
                if name in index:
                    codes = map(index[name].__getitem__, column)
                    parts[name].append(np.fromiter(codes, np.int64, len(full)))
                else:
                    parts[name].append(_numbers(path, name, column, rows))
            rows += len(full)
    if not rows:
        raise BadInput(f"{path.name} holds a header and no rows; write one row per prediction")
    if any("\0" in word for words in index.values() for word in words):
        raise BadInput(f"{path.name} holds NUL bytes, so it is damaged or no text; save it as UTF-8 CSV or as Parquet")
    columns: dict[str, tuple[Array, list[Any] | None]] = {
        name: (np.concatenate(parts[name]), list(index[name]) if name in index else None) for name in wanted
    }
    return Table(columns, rows, lambda row: f"line {_line(path, row)}", {"blank line": blank} if blank else {})


def _open(path: Path, file: io.TextIOWrapper) -> tuple[Any, list[str]]:
    """Return a reader that stands behind the header, and the header."""
    first = file.readline()
    while first and not first.strip():
        first = file.readline()
    if not first:
        raise BadInput(f"{path.name} is empty; write a header and one row per prediction")
    separator = max(",;\t", key=first.count)
    file.seek(0)
    reader = csv.reader(file, delimiter=separator, strict=True)
    header = next(row for row in reader if any(word.strip() for word in row))
    return reader, [word.strip() for word in header]


def _chunks(path: Path, reader: Any) -> Iterator[list[list[str]]]:
    try:
        while chunk := list(islice(reader, CHUNK)):
            yield chunk
    except csv.Error as e:
        raise BadInput(f"{path.name}, line {reader.line_num}: {e}; check the quotes") from None


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, fields) of every row that is not blank, one by one; only for messages."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, _ = _open(path, file)
        before = reader.line_num
        for row in reader:
            if row:
                yield before + 1, row
            before = reader.line_num


def _line(path: Path, row: int) -> int:
    return next(islice(_rows(path), row, None))[0]


def _ragged(path: Path, width: int) -> BadInput:
    line, row = next((line, row) for line, row in _rows(path) if len(row) != width)
    return BadInput(f"{path.name}, line {line} has {len(row)} fields where the header has {width}; correct that line")


def _numbers(path: Path, name: str, column: list[str], before: int) -> Array:
    try:
        return np.array(list(map(float, column)), np.float64)
    except ValueError:
        pass
    out = np.full(len(column), np.nan)
    for i, word in enumerate(column):
        if word.strip().lower() in {"", "na", "n/a", "null", "<na>", "?"}:
            continue
        try:
            out[i] = float(word)
        except ValueError:
            line = _line(path, before + i)
            raise BadInput(
                f"{path.name}, line {line}: {name!r} holds {word!r}, which is no number; correct it"
            ) from None
    return out


def _places(path: Path, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    for name in wanted:
        if name not in header:
            raise BadInput(f"{path.name} has no column {name!r}; {nearest(name, header)}")
        if header.count(name) > 1:
            raise BadInput(f"{path.name} has {header.count(name)} columns called {name!r}; rename all but one")
    return {name: header.index(name) for name in wanted}


def _parquet(path: Path, wanted: Sequence[str], numeric: Sequence[str]) -> Table:
    parquet, arrow = extra("pyarrow.parquet", "tables"), extra("pyarrow", "tables")
    try:
        file = parquet.ParquetFile(path)
        _places(path, file.schema_arrow.names, wanted)
        table = file.read(columns=list(wanted))
    except (arrow.ArrowException, OSError) as e:
        reason = str(e).split("\n", maxsplit=1)[0].rstrip(".")
        raise BadInput(f"{path.name} is no readable Parquet file ({reason}); write it again") from None
    if not table.num_rows:
        raise BadInput(f"{path.name} holds no rows; write one row per prediction")
    columns: dict[str, tuple[Array, list[Any] | None]] = {}
    for name in wanted:
        column = table.column(name).combine_chunks()
        if name in numeric:
            if not (arrow.types.is_floating(column.type) or arrow.types.is_integer(column.type)):
                raise BadInput(f"{path.name}: {name!r} holds {column.type} values; scores must be numbers")
            columns[name] = (np.asarray(column.to_numpy(zero_copy_only=False), np.float64), None)
            continue
        if not arrow.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        if not isinstance(column, arrow.DictionaryArray):  # chunks with different dictionaries
            column = column.unify_dictionaries().combine_chunks()
        values = column.dictionary.to_pylist()
        codes = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
        columns[name] = (codes, [*values, None])
    return Table(columns, table.num_rows, lambda row: f"row {row + 1}", {})
