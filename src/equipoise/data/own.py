"""A user's own table: read, types inferred and said, declared as a ``Task`` like any other data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..checks import BadInput, nearest
from .infer import as_text, kind_of, plain, read_columns
from .table import Table, encode
from .task import Column, Grouping, Raw, Task

FEW_VALUES = 10
"""A numeric sensitive column with at most this many values makes one group of each; with more it needs cut points."""


class OwnTable(BaseModel):
    """What must be said about a table of one's own; everything else is inferred and printed.

    ``path``: CSV (comma, semicolon or tab) or Parquet. ``label``: the column to predict, with two values; ``positive``:
    the one coded 1 (not needed for 0/1 and true/false). ``favourable``: the outcome that is good for the person, in
    words, and ``favourable_is`` whether that is the positive or the negative label. ``sensitive``: columns that make
    groups; the first one is the default. ``client``: column of the natural clients. ``leave_out``: columns that are no
    features. ``bins``: cut points of a numeric sensitive column, cut[i-1] < value <= cut[i]. ``reference``: sensitive
    column -> the group that others are compared with. ``missing``: what to do with empty cells: "error" refuses and
    counts them, "drop" drops their rows, "group" makes a level (and a group) "missing" of them, for numbers an
    indicator beside the value, which is set to the training mean.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    label: str
    positive: bool | int | float | str | None = None
    favourable: str
    favourable_is: Literal["positive", "negative"]
    sensitive: list[str] = Field(min_length=1)
    client: str | None = None
    leave_out: list[str] = []
    bins: dict[str, list[float]] = {}
    reference: dict[str, str] = {}
    missing: Literal["error", "group", "drop"] = "error"


def own_table(declaration: OwnTable | Mapping[str, Any]) -> Table:
    """Read a table of one's own as it is declared.

    Numeric columns are those whose every cell is a number; all others are categorical, and their levels are those of
    the whole file, so that no width depends on a split. Dates, constant columns and row numbers are left out and
    named.

    Raises
    ------
    BadInput
        A key or column is unknown; the file is empty or cannot be read; the label does not have two values; a cell is
        missing and nothing says what to do; a text column has too many levels; a number is not finite.
    """
    own = declaration if isinstance(declaration, OwnTable) else declared(declaration)
    path = Path(own.path)
    columns, digest = read_columns(path)
    _known(own, columns)
    log = [f"{path.name}: {len(columns[own.label]):,} rows and {len(columns)} columns read"]
    used = [n for n in columns if n not in own.leave_out or n in own.sensitive]
    columns, said = _without_missing(own, {n: columns[n] for n in used})
    log += said
    labels, meaning = _labels(own, columns[own.label])
    columns[own.label] = [plain(c) for c in columns[own.label]]
    rows = len(columns[own.label])
    features: dict[str, Column] = {}
    too_many: list[str] = []
    for name, cells in columns.items():
        if name in (own.label, own.client) and name not in own.sensitive:
            continue
        features[name], says = _column(own, name, cells)
        log.append(f"{name}: {says}")
        if features[name].why == _TOO_MANY:
            too_many.append(f"{name} ({says})")
    if too_many:
        raise BadInput(
            f"{own.path} has text columns with too many levels: {'; '.join(too_many)}; put them into leave_out"
        )
    task = Task(
        name=path.name, title=f"your own table {path.name}", columns=tuple(features.values()), target=own.label,
        labels=labels, meaning=meaning, favourable=own.favourable, favourable_is=own.favourable_is,
        groupings={n: _grouping(own, features[n]) for n in own.sensitive},
        rows=rows, dropped=f'missing = "{own.missing}"', faults=(), licence="your own",
        source=path.name, citation="", files=(),
    )  # fmt: skip
    raw = Raw(columns, log, keep_missing=own.missing == "group")
    return encode(task, raw, client=own.client, hashes={path.name: digest})


def rows_of_member(path: Path, like: Table, *, missing: str = "error") -> Table:
    """Read a member's own rows by the declaration of a table that all members know: same columns, levels and widths.

    Parameters
    ----------
    path : CSV or Parquet with the columns that ``like`` was read from; others are not looked at
    missing : what the declaration says of empty cells, as in ``OwnTable``; "drop" drops rows

    Raises
    ------
    BadInput
        A column is missing, a cell holds a level or label that the declaration does not have, or no number.
    """
    columns, digest = read_columns(path)
    task, log = like.task, [f"{path.name}: {len(next(iter(columns.values()), ()))} rows read"]
    used = [c.name for c in task.columns if c.name in columns] + [n for n in (task.target,) if n in columns]
    columns = {n: columns[n] for n in dict.fromkeys(used)}
    if missing == "drop":
        columns, dropped = _whole_rows(columns)
        log.append(f"{dropped:,} rows with missing cells dropped")
    if task.target in columns:
        columns[task.target] = [plain(c) for c in columns[task.target]]
    table = encode(task, Raw(columns, log, keep_missing=missing == "group"), hashes={path.name: digest})
    if table.features != like.features:
        other = next(a for a, b in zip(table.features, like.features, strict=False) if a != b)
        raise BadInput(f"{path} makes a feature {other!r} that the study does not have; give it the study's columns")
    return table


def declared(declaration: Mapping[str, Any]) -> OwnTable:
    """Check a declaration that comes as a mapping; one sentence for the first thing that is wrong."""
    try:
        return OwnTable.model_validate(dict(declaration))
    except ValidationError as e:
        first = e.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "data"
        if first["type"] == "missing":
            raise BadInput(f"the declaration of your table lacks {key!r}; {_ASKS.get(key, 'add it')}") from None
        if first["type"] == "extra_forbidden":
            raise BadInput(f"{key!r} is no key of your table; {nearest(key, OwnTable.model_fields)}") from None
        if key == "sensitive":
            raise BadInput(f"{_ASKS[key]}, got {first['input']!r}") from None
        raise BadInput(f"{key} of your table: {first['msg'].lower()}, got {first['input']!r}") from None


_ASKS = {
    "label": "name the column to predict: label = ...",
    "favourable": 'say in words which outcome is good for the person, such as favourable = "loan granted"',
    "favourable_is": 'say which label that is: favourable_is = "positive" or "negative"',
    "sensitive": "sensitive needs at least one column that makes groups of people",
}


def _known(own: OwnTable, columns: Mapping[str, Sequence[str]]) -> None:
    asked = {"label": [own.label], "sensitive": own.sensitive, "leave_out": own.leave_out}
    asked |= {"client": [own.client] if own.client else [], "bins": list(own.bins), "reference": list(own.reference)}
    for key, names in asked.items():
        for name in names:
            if name not in columns:
                raise BadInput(f"{own.path} has no column {name!r} ({key}); {nearest(name, columns)}")
    for key in ("bins", "reference"):
        for name in asked[key]:
            if name not in own.sensitive:
                raise BadInput(f"{key}.{name} is given, but {name!r} is not a sensitive column; add or remove it")
    if own.label in own.sensitive or own.label in own.leave_out or own.label == own.client:
        raise BadInput(f"the label {own.label!r} has another role as well; give each role its own column")


def _without_missing(own: OwnTable, columns: dict[str, list[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Apply the one rule for empty cells, and say what was done."""
    empty = {n: cells.count("") for n, cells in columns.items() if "" in cells}
    if not empty:
        return columns, ["no missing cells"]
    counts = ", ".join(f"{n} {k:,}" for n, k in empty.items())
    if own.missing == "drop":
        kept, dropped = _whole_rows(columns)
        if not (left := len(next(iter(kept.values())))):
            raise BadInput(f"{own.path}: every row has a missing cell ({counts}); leave such columns out")
        return kept, [f"{dropped:,} rows with missing cells dropped ({counts}), {left:,} left"]
    for role, name in (("label", own.label), ("client column", own.client)):
        if name in empty:
            row = columns[name].index("") + 1
            raise BadInput(
                f"the {role} {name!r} is missing in {empty[name]:,} rows (first in row {row}); "
                'fill the cells, or drop such rows with missing = "drop"'
            )
    if own.missing == "error":
        raise BadInput(
            f"{own.path} has missing cells ({counts}); fill them, leave the columns out, "
            'or set missing = "drop" (drop the rows) or missing = "group" (a level of their own)'
        )
    return columns, [f'missing cells kept as a level "missing", numbers at the training mean and marked ({counts})']


def _whole_rows(columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], int]:
    """Return the rows without an empty cell, and how many had one."""
    whole = [all(row) for row in zip(*columns.values(), strict=True)]
    kept = {n: [c for c, w in zip(cells, whole, strict=True) if w] for n, cells in columns.items()}
    return kept, whole.count(False)


def _labels(own: OwnTable, cells: Iterable[str]) -> tuple[dict[str, int], str]:
    """Return value -> 0 or 1, and in words what 1 is."""
    values = sorted({plain(c) for c in cells})
    if len(values) == 1:
        raise BadInput(f"the label {own.label!r} is {values[0]!r} in every row: one class only; a model needs both")
    if len(values) > 2:
        shown = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
        raise BadInput(f"the label {own.label!r} has {len(values)} values ({shown}); make it a column with two")
    if own.positive is None:
        if set(values) not in ({"0", "1"}, {"false", "true"}):
            raise BadInput(
                f"the label {own.label!r} holds {values[0]!r} and {values[1]!r}; "
                f"say which one is positive, such as positive = {values[1]!r}"
            )
        positive = values[1]
    else:
        positive = as_text(own.positive)
        if positive not in values:
            raise BadInput(f"positive = {positive!r} is no value of {own.label!r}; {nearest(positive, values)}")
    return {v: int(v == positive) for v in values}, f"{own.label} = {positive}"


_TOO_MANY = "too many levels"


def _column(own: OwnTable, name: str, cells: Sequence[str]) -> tuple[Column, str]:
    """Declare a column as what it looks like, and say what that is."""
    kind = kind_of(name, cells, len(cells))
    missing = "missing" if kind.missing else ""
    used = name not in own.leave_out
    says = kind.says if used else f"{kind.says}; no feature, as asked"
    if name not in own.sensitive:
        if kind.kind == "categorical":
            return Column(name, dict.fromkeys(kind.levels, ""), missing), says
        if kind.kind == "numeric":
            return Column(name, {}, missing), says
        why = _TOO_MANY if kind.kind == "too many levels" else kind.says
        return Column(name, used=False, why=why), kind.says if why == _TOO_MANY else f"{kind.says}; left out"
    is_number = kind.kind in ("numeric", "row number")
    if kind.kind == "constant":
        raise BadInput(f"the sensitive column {name!r} is {kind.says}: one group only; choose another one")
    if name in own.bins:
        if not is_number:
            raise BadInput(f"bins.{name} is given, but {name!r} is {kind.says}; remove the bins")
        return Column(name, {}, missing, used), says
    levels = tuple(sorted({c for c in cells if c}, key=float)) if is_number else kind.levels
    if is_number and len(levels) > FEW_VALUES:
        raise BadInput(
            f"the sensitive column {name!r} is {kind.says} with {len(levels):,} values; "
            f"say where to cut it into groups, such as bins = {{ {name} = [25, 60] }}"
        )
    if kind.kind not in ("numeric", "row number", "categorical"):
        raise BadInput(f"the sensitive column {name!r} holds {kind.says}; make it a column of a few groups")
    return Column(name, dict.fromkeys(levels, ""), missing, used), says


def _grouping(own: OwnTable, column: Column) -> Grouping:
    """One group for each level, or for each interval between the cut points; "missing" last."""
    name = column.name
    cuts = tuple(own.bins.get(name, ()))
    if name in own.bins:
        if not cuts or list(cuts) != sorted(set(cuts)):
            raise BadInput(f"bins.{name} is {list(cuts)}; give rising cut points, at least one")
        inner = (f"{a:g} < {name} <= {b:g}" for a, b in pairwise(cuts))
        groups = [f"{name} <= {cuts[0]:g}", *inner, f"{name} > {cuts[-1]:g}"]
        codes: dict[str, tuple[str, ...]] = dict.fromkeys(groups, ())
    else:
        codes = {level: (level,) for level in column.levels}
    if column.missing:
        codes[column.missing] = (column.missing,)
    reference = own.reference.get(name, "")
    if reference and reference not in codes:
        raise BadInput(f"reference.{name} = {reference!r} is none of its groups; {nearest(reference, codes)}")
    return Grouping(name, codes, reference, cuts)
