"""From columns of text to numbers: encoding by declared levels, groups of people, scaling fitted on training rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np

from ..checks import BadInput, nearest
from ..types import Array
from .delimited import numbers
from .task import Column, Grouping, Raw, Task


@dataclass(frozen=True, slots=True)
class Table:
    """A data set that is ready to be split, encoded but not scaled.

    ``x`` (n, f) float64: numeric columns as they are, categorical ones one-hot over their declared levels (NaN only
    where a user's own table keeps missing numbers; ``scale`` puts these at the training mean). ``features``: f names.
    ``attributes``: the original columns behind them. ``numeric`` (f,) bool: which features are scaled. ``y`` (n,) in
    {0, 1}. ``sensitive``: raw values of each column that a grouping reads, (n,). ``client``: natural ids (n,) or
    None. ``log``: what was read, dropped and encoded, a sentence each. ``hashes``: file -> sha256 of its bytes.
    """

    task: Task
    x: Array
    features: tuple[str, ...]
    attributes: tuple[str, ...]
    numeric: Array
    y: Array
    sensitive: Mapping[str, Array]
    client: Array | None = None
    log: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)


class Groups(NamedTuple):
    """Who belongs where: ``codes`` (n,) in 0..G-1, G ``names`` (also of groups nobody is in), what there is to say."""

    codes: Array
    names: tuple[str, ...]
    log: tuple[str, ...]


class Scaling(NamedTuple):
    """Mean and standard deviation (population) of every feature, (f,) each; 0 and 1 where nothing is scaled."""

    mean: Array
    spread: Array


def _codes(column: Column, cells: Sequence[str], what: str, keep_missing: bool) -> tuple[Array, tuple[str, ...]]:
    """Return (n,) positions in the declared levels, and these levels; "2.0" is read as the level "2"."""
    names = tuple(column.levels)
    if keep_missing and column.missing:
        names += (column.missing,)
    at = {name: i for i, name in enumerate(names)}
    known = {f"{name}.0": i for name, i in at.items() if name.lstrip("-").isdigit()} | at
    if keep_missing and column.missing:
        known[""] = at[column.missing]
    codes = np.array([known.get(c, -1) for c in cells], np.int64)
    if len(codes) and codes.min() < 0:
        row = int(np.argmax(codes < 0))
        n = int((codes < 0).sum())
        if not cells[row]:
            raise BadInput(f"{what}: column {column.name!r} is empty in row {row + 1}; fill the cell or drop the row")
        raise BadInput(
            f"{what}: column {column.name!r} holds {cells[row]!r} in row {row + 1} ({n} rows with undeclared levels); "
            f"declared: {', '.join(names)}"
        )
    return codes, names


def encode(
    task: Task,
    raw: Raw,
    *,
    add: Iterable[str] = (),
    leave_out: Iterable[str] = (),
    client: str | None = None,
    hashes: Mapping[str, str] | None = None,
) -> Table:
    """Encode columns of text by the declaration of their task; nothing is learnt from the rows.

    Parameters
    ----------
    add : columns to use as features that the task leaves out, such as Adult's ``fnlwgt``
    leave_out : columns not to use as features; they can still make groups
    client : a column whose values are the natural clients

    Raises
    ------
    BadInput
        A column is missing, a level is not declared, a number is not finite, or no row is left.
    """
    columns, log = raw.columns, list(raw.log)
    add, leave_out = tuple(add), tuple(leave_out)
    for name in add + leave_out:
        task.column(name)
    n = len(next(iter(columns.values()), ()))
    if not n:
        raise BadInput(f"{task.name} has no rows left to use; look at what was dropped: {'; '.join(log) or 'nothing'}")
    blocks: list[Array] = []
    features: list[str] = []
    is_numeric: list[bool] = []
    attributes: list[str] = []
    raws: dict[str, Array] = {}
    wanted = {g.column for g in task.groupings.values()}
    for column in task.columns:
        name = column.name
        use = (column.used or name in add) and name not in leave_out
        if not use and name not in wanted:
            continue
        cells = _cells(task, columns, name)
        if column.levels:
            codes, names = _codes(column, cells, task.name, raw.keep_missing)
            raws[name] = np.array(names)[codes]
            block = (codes[:, None] == np.arange(len(names))).astype(np.float64)
            labels = [f"{name}={level}" for level in names]
            scaled = [False] * len(labels)
        else:
            keep_missing = raw.keep_missing and bool(column.missing)
            raws[name] = values = numbers(name, cells, missing=keep_missing)
            block, labels, scaled = values[:, None], [name], [True]
            if keep_missing:
                block = np.column_stack([values, np.isnan(values)])
                labels, scaled = [name, f"{name} is missing"], [True, False]
        if use:
            blocks.append(block)
            features += labels
            is_numeric += scaled
            attributes.append(name)
    if not blocks:
        raise BadInput(f"{task.name} has no features left; leave fewer columns out")
    y = _labels(task, _cells(task, columns, task.target))
    log.append(
        f"{n:,} rows encoded: {len(attributes)} attributes as {len(features)} features "
        f"({sum(is_numeric)} numeric, {len(features) - sum(is_numeric)} one-hot); y = 1 means {task.meaning} "
        f"({int(y.sum()):,} rows, {100 * y.mean():.2f} %)"
    )
    ids = None if client is None else np.array(_cells(task, columns, client))
    if ids is not None and (ids == "").any():
        row = int(np.argmax(ids == ""))
        raise BadInput(
            f"the client column {client!r} is empty in {(ids == '').sum()} rows "
            f"(first in row {row + 1}); fill or drop them"
        )
    return Table(
        task, np.hstack(blocks), tuple(features), tuple(attributes), np.array(is_numeric), y,
        {name: raws[name] for name in raws if name in wanted}, ids, tuple(log), dict(hashes or {}),
    )  # fmt: skip


def _cells(task: Task, columns: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
    if name not in columns:
        raise BadInput(f"{task.name} has no column {name!r} in its file; {nearest(name, columns)}")
    return columns[name]


def _labels(task: Task, cells: Sequence[str]) -> Array:
    known = {f"{k}.0": v for k, v in task.labels.items() if k.isdigit()} | dict(task.labels)
    y = np.array([known.get(c, -1) for c in cells], np.int64)
    if y.min() < 0:
        row = int(np.argmax(y < 0))
        raise BadInput(
            f"{task.name}: the label {task.target!r} holds {cells[row]!r} in row {row + 1}; "
            f"known: {', '.join(task.labels)}"
        )
    return y


def groups_of(table: Table, sensitive: str | None = None) -> Groups:
    """Return the group of every row.

    Parameters
    ----------
    sensitive : a grouping of the task, a raw sensitive column, or several of either joined by ``&`` for their
        intersections; None takes the task's default. Groups without rows keep their place.

    Returns
    -------
    codes (n,) in 0..G-1; names (G,); a log with n and the rate of the favourable outcome in every group.

    Raises
    ------
    BadInput
        The name is unknown, or fewer than two groups have rows: nothing can be compared.

    Examples
    --------
    >>> from equipoise.data import load
    >>> groups = groups_of(load("german"), "sex & age")
    >>> groups.names[0], np.bincount(groups.codes)
    ('female & 25 or younger', array([105, 205,  85, 605]))
    """
    task = table.task
    parts = [p.strip() for p in (sensitive or task.default).split("&")]
    singles = [_single(table, p) for p in parts]
    codes = np.zeros(len(table.y), np.int64)
    for c, names, _ in singles:
        codes = codes * len(names) + c
    names = tuple(" & ".join(combination) for combination in product(*(s[1] for s in singles)))
    reference = " & ".join(s[2] for s in singles) if all(s[2] for s in singles) else ""
    sizes = np.bincount(codes, minlength=len(names))
    if (sizes > 0).sum() < 2:
        only = names[int(np.argmax(sizes))]
        raise BadInput(
            f"{sensitive or task.default!r} puts all {len(codes)} rows into {only!r}; choose another sensitive column"
        )
    good = table.y == (task.favourable_is == "positive")
    hits = np.bincount(codes[good], minlength=len(names))
    rate = np.divide(hits, sizes, out=np.full(len(names), np.nan), where=sizes > 0)
    shown = ", ".join(
        f"{name} {100 * r:.2f} % of {n:,}" if n else f"{name} has no rows"
        for name, r, n in zip(names, rate, sizes, strict=True)
    )
    log = [f"groups by {' & '.join(parts)}; favourable outcome ({task.favourable}): {shown}"]
    if reference and rate[names.index(reference)] < np.nanmax(rate):
        log.append(f"note: the reference group {reference!r} does not have the highest rate of the favourable outcome")
    log += [task.groupings[p].note for p in parts if p in task.groupings and task.groupings[p].note]
    return Groups(codes, names, tuple(log))


def _single(table: Table, name: str) -> tuple[Array, tuple[str, ...], str]:
    """Return codes, names and the reference of one grouping or one raw sensitive column."""
    task = table.task
    grouping = task.groupings.get(name)
    if grouping is None:
        if name not in table.sensitive:
            known = dict.fromkeys([*task.groupings, *table.sensitive])
            raise BadInput(f"{task.name} has no sensitive attribute {name!r}; {nearest(name, known)}")
        column = task.column(name)
        values = table.sensitive[name]
        if not column.levels:
            raise BadInput(
                f"{name!r} of {task.name} is numeric; "
                f"use a grouping that says where to cut: {', '.join(task.groupings)}"
            )
        names = tuple(column.levels) + (
            (column.missing,) if column.missing and (values == column.missing).any() else ()
        )
        return assign(Grouping(name, {n: (n,) for n in names}, ""), values), names, ""
    return assign(grouping, table.sensitive[grouping.column]), tuple(grouping.groups), grouping.reference


def assign(grouping: Grouping, values: Array) -> Array:
    """Return the (n,) place of every value among the groups of one grouping.

    Examples
    --------
    >>> age = Grouping("age", {"25 or younger": (), "over 25": ()}, "over 25", cuts=(25,))
    >>> assign(age, np.array([26.0, 25.0, 40.0, 19.0]))
    array([1, 0, 1, 0])
    """
    if grouping.cuts:
        codes = np.searchsorted(np.asarray(grouping.cuts, np.float64), values, side="left").astype(np.int64)
        codes[np.isnan(values)] = len(grouping.groups) - 1  # the group "missing", which is declared last
        return codes
    place = {code: i for i, codes in enumerate(grouping.groups.values()) for code in codes}
    return np.array([place[v] for v in values.tolist()], np.int64)


def fit_scaling(x: Array, numeric: Array, rows: Array | None = None) -> Scaling:
    """Return mean and population standard deviation of the numeric features over the training rows only.

    Parameters
    ----------
    x : (n, f); numeric : (f,) bool; rows : indices of the training rows, None = all of ``x``

    Examples
    --------
    >>> x = np.array([[1.0, 1.0], [3.0, 0.0], [99.0, 1.0]])
    >>> fit_scaling(x, np.array([True, False]), np.array([0, 1]))
    Scaling(mean=array([2., 0.]), spread=array([1., 1.]))
    """
    train = x if rows is None else x[rows]
    mean, spread = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if not len(train):
        raise BadInput("scaling needs at least one training row, got none; lower the test fraction")
    known = ~np.isnan(train[:, numeric])
    n = np.maximum(known.sum(0), 1)
    mean[numeric] = m = np.where(known, train[:, numeric], 0.0).sum(0) / n
    s = np.sqrt((np.where(known, train[:, numeric] - m, 0.0) ** 2).sum(0) / n)
    spread[numeric] = np.where(s > 0, s, 1.0)
    return Scaling(mean, spread)


def scale(x: Array, scaling: Scaling) -> Array:
    """Return (x - mean) / spread; a missing number lies at the training mean, which is 0.

    Examples
    --------
    >>> scale(np.array([[4.0, 1.0], [np.nan, 0.0]]), Scaling(np.array([2.0, 0.0]), np.array([1.0, 1.0])))
    array([[2., 1.],
           [0., 0.]])
    """
    scaled: Array = np.nan_to_num((x - scaling.mean) / scaling.spread, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return scaled
