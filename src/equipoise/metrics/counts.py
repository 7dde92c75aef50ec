"""Counting: the one pass over rows from which every figure comes.

A table is int64 (..., G, 4) with columns ``tp fp tn fn``. Tables of disjoint rows *add*: the table of a population is
the sum of its members' tables, so a pooled figure is exact and never an average of averages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import BadInput, same_length
from ..types import Array

TP, FP, TN, FN = range(4)
COLUMNS = ("tp", "fp", "tn", "fn")

Rows = Array | Sequence[Any]


def counts(y: Rows, yhat: Rows, group: Rows, groups: int) -> npt.NDArray[np.int64]:
    """Count true and false positives and negatives per group.

    Law: ``counts(all rows) == counts(some rows) + counts(the rest)``.

    Parameters
    ----------
    y : (n,) in {0, 1}, what is true
    yhat : (n,) in {0, 1}, what was predicted
    group : (n,) integers in 0..groups-1
    groups : G; a group without rows keeps its place, as a row of zeros

    Returns
    -------
    (G, 4) int64, columns tp fp tn fn; sums to n

    Raises
    ------
    BadInput
        Lengths differ, a label is not 0 or 1, a group is out of range.

    Examples
    --------
    >>> counts([1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 2], groups=3)
    array([[1, 1, 0, 1],
           [0, 0, 0, 0],
           [0, 0, 1, 0]])
    """
    n = same_length(y=y, yhat=yhat, group=group)
    (table,) = counts_by(y, yhat, group, np.zeros(n, np.int64), groups, 1)
    return np.asarray(table, np.int64)


def counts_by(y: Rows, yhat: Rows, group: Rows, client: Rows, groups: int, clients: int) -> npt.NDArray[np.int64]:
    """Count per client and group in one pass; ``counts_by(...).sum(0)`` is the pooled table.

    Parameters
    ----------
    y, yhat, group, groups : as in ``counts``
    client : (n,) integers in 0..clients-1
    clients : K

    Returns
    -------
    (K, G, 4) int64, columns tp fp tn fn

    Examples
    --------
    >>> counts_by([1, 0], [1, 1], group=[0, 0], client=[0, 1], groups=1, clients=2).tolist()
    [[[1, 0, 0, 0]], [[0, 1, 0, 0]]]
    """
    same_length(y=y, yhat=yhat, group=group, client=client)
    truth, said = _binary("y", y), _binary("yhat", yhat)
    row = _index("client", client, clients) * groups + _index("group", group, groups)
    cell = np.where(said == 1, 1 - truth, 2 + truth)
    return np.bincount(row * 4 + cell, minlength=clients * groups * 4).reshape(clients, groups, 4).astype(np.int64)


def hits(y: Rows, yhat: Rows, group: Rows, groups: int) -> npt.NDArray[np.int64]:
    """Count right and wrong predictions per group where there are more than two classes.

    Every row's own class is its positive one: a hit is a true positive, a miss a false negative, and there are no
    negatives. So accuracy and true positive rate are the share of hits, the tables still add, and figures that need a
    favourable class or negatives are undefined.

    Parameters
    ----------
    y, yhat : (n,) class numbers, what is true and what was predicted
    group, groups : as in ``counts``

    Returns
    -------
    (G, 4) int64, columns tp fp tn fn; sums to n

    Examples
    --------
    >>> hits([2, 0, 1], [2, 0, 0], [0, 0, 1], groups=2)
    array([[2, 0, 0, 0],
           [0, 0, 0, 1]])
    """
    n = same_length(y=y, yhat=yhat, group=group)
    return counts(np.ones(n, np.int64), np.asarray(y) == np.asarray(yhat), group, groups)


def as_table(table: Any) -> Array:
    """Return ``table`` as an array (..., G, 4); anything else is refused.

    Examples
    --------
    >>> as_table([[1, 2, 3]])
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: a count table ends in 4 columns (tp fp tn fn), got shape (1, 3)
    """
    out = np.asarray(table)
    if out.ndim < 1 or out.shape[-1] != len(COLUMNS):
        raise BadInput(f"a count table ends in 4 columns (tp fp tn fn), got shape {out.shape}")
    return out


def _binary(what: str, values: Rows) -> npt.NDArray[np.int64]:
    v = np.asarray(values)
    if v.ndim != 1:
        raise BadInput(f"{what} has shape {v.shape}; pass one value per row")
    if v.dtype.kind not in "biuf":
        raise BadInput(f"{what} holds {v.dtype} values; code it as 0 and 1, or use metrics.encode with positive=...")
    if v.dtype.kind != "b" and not ((v == 0) | (v == 1)).all():
        at = int(np.flatnonzero((v != 0) & (v != 1))[0])
        raise BadInput(f"{what} must hold only 0 and 1, got {v[at]} at row {at}; use metrics.encode with positive=...")
    return v.astype(np.int64)


def _index(what: str, values: Rows, size: int) -> npt.NDArray[np.int64]:
    v = np.asarray(values)
    if v.size and v.dtype.kind not in "biu":
        raise BadInput(f"{what} holds {v.dtype} values; code it as integers 0..{size - 1}, or use metrics.encode")
    if v.ndim != 1:
        raise BadInput(f"{what} has shape {v.shape}; pass one value per row")
    if v.size and not 0 <= v.min() <= v.max() < size:
        at = int(np.flatnonzero((v < 0) | (v >= size))[0])
        raise BadInput(f"{what} must lie in 0..{size - 1}, got {v[at]} at row {at}; code it as 0..{size - 1}")
    return v.astype(np.int64)
