"""Who is compared with whom: the group of every row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from ..checks import BadInput, nearest
from ..types import Array
from .table import Table
from .task import Grouping


class Groups(NamedTuple):
    """Who belongs where: ``codes`` (n,) in 0..G-1, G ``names`` (also of groups nobody is in), what there is to say."""

    codes: Array
    names: tuple[str, ...]
    log: tuple[str, ...]


def groups_of(table: Table, sensitive: str | None = None) -> Groups:
    """Return the group of every row.

    Parameters
    ----------
    sensitive : a grouping of the task, a raw sensitive column, or several of either joined by ``&`` for their
        intersections; None takes the task's default. Groups without rows keep their place. Where the task has no
        groups of people, None makes one group of everyone.

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
    if not task.groupings and sensitive is None:
        said = f"{task.name} has no sensitive attribute: its {len(table.y):,} rows are one group, everyone"
        return Groups(np.zeros(len(table.y), np.int64), ("everyone",), (said,))
    parts = [p.strip() for p in (sensitive or task.default).split("&")]
    singles = [_single(table, p) for p in parts]
    codes = _crossed(singles)
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


def codes_of(table: Table, sensitive: str) -> Array:
    """Return the group (n,) of every row of a member's own table, which may well hold one group only."""
    return _crossed([_single(table, p.strip()) for p in sensitive.split("&")])


def _crossed(singles: Sequence[tuple[Array, tuple[str, ...], str]]) -> Array:
    """Number the intersections of several groupings."""
    codes = np.zeros(len(singles[0][0]), np.int64)
    for c, names, _ in singles:
        codes = codes * len(names) + c
    return codes


def _single(table: Table, name: str) -> tuple[Array, tuple[str, ...], str]:
    """Return codes, names and the reference of one grouping or one raw sensitive column."""
    task = table.task
    grouping = task.groupings.get(name)
    if grouping is None:
        if name not in table.sensitive:
            known = dict.fromkeys([*task.groupings, *table.sensitive])
            if not known:
                raise BadInput(f"{task.name} has no sensitive attribute at all, so not {name!r} either; leave it out")
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
