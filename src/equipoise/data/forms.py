"""The original forms of the data sets, quirks and all: bytes -> columns of stripped text, "" where a cell is missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..checks import BadInput, nearest
from .task import Get, Raw

GERMAN = (
    "checking", "duration", "history", "purpose", "amount", "savings", "employment", "instalment_rate",
    "personal_status", "debtors", "residence", "property", "age", "other_plans", "housing", "credits", "job",
    "liable", "telephone", "foreign", "class",
)  # fmt: skip
ADULT = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip


def text(what: str, data: bytes) -> str:
    """Decode UTF-8 with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise BadInput(f"{what} is not UTF-8 text (byte {e.start}); save it as UTF-8 or download it again") from None


def rows_of(what: str, data: bytes, separator: str = ",", width: int | None = None) -> list[list[str]]:
    """Split delimited text into rows of stripped cells, all of one width; blank lines are not rows.

    Examples
    --------
    >>> rows_of("a.csv", b'x, "y"\\n1, 2\\n\\n')
    [['x', 'y'], ['1', '2']]
    """
    try:
        reader = csv.reader(io.StringIO(text(what, data), newline=""), delimiter=separator, skipinitialspace=True, strict=True)
        rows = [[cell.strip() for cell in row] for row in reader if row and (len(row) > 1 or row[0].strip())]
    except csv.Error as e:
        raise BadInput(f"{what} is not well-formed ({e}); it may be cut off: download or save it again") from None
    if not rows:
        raise BadInput(f"{what} is empty; delete it and download it again")
    width = width or len(rows[0])
    for i, row in enumerate(rows):
        if len(row) != width:
            raise BadInput(
                f"{what}: line {i + 1} has {len(row)} cells instead of {width}; the file is cut off or has another separator"
            )
    return rows


def named(what: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return columns by name; a repeated name must repeat its cells."""
    columns: dict[str, list[str]] = {}
    for name, cells in zip(names, map(list, zip(*rows, strict=True)) if rows else ([] for _ in names), strict=True):
        if name in columns and columns[name] != cells:
            raise BadInput(f"{what} has two different columns named {name!r}; rename one of them")
        columns[name] = cells
    return columns


def table(what: str, data: bytes, separator: str = ",", wanted: Iterable[str] = ()) -> dict[str, list[str]]:
    """Read delimited text with a header row, and make sure that the wanted columns are there."""
    header, *rows = rows_of(what, data, separator)
    columns = named(what, header, rows)
    for name in wanted:
        if name not in columns:
            raise BadInput(f"{what} has no column {name!r}; {nearest(name, header)}")
    return columns


def choose(columns: Mapping[str, Sequence[str]], keep: Sequence[bool]) -> dict[str, list[str]]:
    """Keep the rows that are marked."""
    return {name: [c for c, k in zip(cells, keep, strict=True) if k] for name, cells in columns.items()}


def german(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read german.data: 21 columns, one space between them, no header, class 1 good and 2 bad."""
    name, data = get("german.data")
    lines = [line.split() for line in text(name, data).splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if len(line) != len(GERMAN):
            raise BadInput(f"{name}: line {i + 1} has {len(line)} cells instead of {len(GERMAN)}; it is cut off: download it again")
    return Raw(
        named(name, GERMAN, lines),
        [f"{len(lines):,} rows read, none dropped"],
    )


def adult(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read adult.data and adult.test: space after each comma, '?' for missing, dots after the labels of the test part.

    The test part opens with the line ``|1x3 Cross validator``, and both parts end with an empty line.
    """
    log: list[str] = []
    columns: dict[str, list[str]] = {name: [] for name in ADULT}
    names = {"train": ["adult.data"], "test": ["adult.test"], "both": ["adult.data", "adult.test"]}[options["part"]]
    for wanted in names:
        name, data = get(wanted)
        if data.startswith(b"|"):
            data = data.partition(b"\n")[2]
        part = named(name, ADULT, rows_of(name, data, width=len(ADULT)))
        part["income"] = [label.removesuffix(".") for label in part["income"]]
        part = {n: ["" if c == "?" else c for c in cells] for n, cells in part.items()}
        for n in ADULT:
            columns[n] += part[n]
    empty = {n: cells.count("") for n, cells in columns.items() if "" in cells}
    rows = len(columns["age"])
    whole = [True] * rows
    for n in empty:
        whole = [w and c != "" for w, c in zip(whole, columns[n], strict=True)]
    cells = f"{sum(empty.values()):,} missing cells ({', '.join(f'{n} {k:,}' for n, k in empty.items())})" if empty else "no missing cells"
    log.append(f"{rows:,} rows read, {cells}")
    if options["incomplete"] == "keep":
        log.append(f"{rows - sum(whole):,} incomplete rows kept: '?' is a level of its own")
        return Raw(columns, log, keep_missing=True)
    log.append(f"{rows - sum(whole):,} rows with '?' dropped, {sum(whole):,} complete rows left")
    return Raw(choose(columns, whole), log)
