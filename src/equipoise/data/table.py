"""From what a reader took to numbers: columns of text are encoded by declared levels, arrays are taken over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..checks import BadInput, nearest
from ..types import Array
from .delimited import numbers
from .task import Arrays, Column, Raw, Task


@dataclass(frozen=True, slots=True)
class Table:
    """A data set that is ready to be split, encoded but not scaled.

    ``x`` (n, f): float64 of a table, numeric columns as they are, categorical ones one-hot over their declared levels
    (NaN only where a user's own table keeps missing numbers; ``scale`` puts these at the training mean); float32 of
    signals and images, flat. ``features``: f names, none where a row has a ``shape``. ``attributes``: the original
    columns behind them. ``numeric`` (f,) bool: which features are scaled. ``y`` (n,) in 0..C-1. ``sensitive``: raw
    values of each column that a grouping reads, (n,). ``client``: natural ids (n,) or None. ``log``: what was read,
    dropped and encoded, a sentence each. ``hashes``: file -> sha256 of its bytes. ``shape``: of one row before it was
    laid flat, channels first, such as (3, 32, 32); None for a table.
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
    shape: tuple[int, ...] | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels 0..C-1."""
        return self.task.classes


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
    raw: Raw | Arrays,
    *,
    add: Iterable[str] = (),
    leave_out: Iterable[str] = (),
    client: str | None = None,
    hashes: Mapping[str, str] | None = None,
) -> Table:
    """Encode columns of text by the declaration of their task; nothing is learnt from the rows. Arrays are taken over.

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
    add, leave_out, log = tuple(add), tuple(leave_out), list(raw.log)
    for name in add + leave_out:
        task.column(name)
    n = len(raw.y) if isinstance(raw, Arrays) else len(next(iter(raw.columns.values()), ()))
    if not n:
        raise BadInput(f"{task.name} has no rows left to use; look at what was dropped: {'; '.join(log) or 'nothing'}")
    if isinstance(raw, Arrays):
        if client is not None:
            task.column(client)
        return _taken_over(task, raw, log, dict(hashes or {}))
    columns = raw.columns
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


def _taken_over(task: Task, arrays: Arrays, log: list[str], hashes: Mapping[str, str]) -> Table:
    """Make a table of arrays, and say what is in it."""
    sizes = np.bincount(arrays.y, minlength=len(task.classes))
    few = len(sizes) <= 10
    each = ", ".join(f"{name} {n:,}" for name, n in zip(task.classes, sizes, strict=True))
    shape = "" if arrays.shape is None else f" ({' x '.join(map(str, arrays.shape))})"
    log.append(
        f"{len(arrays.y):,} rows of {arrays.x.shape[1]:,} numbers{shape}; {len(sizes)} classes, {task.meaning}: "
        + (each if few else f"{sizes.min():,} to {sizes.max():,} rows each")
    )
    numeric = np.full(arrays.x.shape[1], arrays.scaled)
    client, shape_ = arrays.client, arrays.shape
    return Table(task, arrays.x, arrays.features, (), numeric, arrays.y, {}, client, tuple(log), hashes, shape_)


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
