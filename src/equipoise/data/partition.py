"""Split rows among clients: disjoint and complete by construction, feasible or refused at once.

Every partitioner fills a table of counts, cells x clients, whose rows sum to the cells' sizes; the shuffled rows of
each cell are then cut by it. So no row can be lost or handed out twice, and a client that is too small is mended by
moving counts, never by drawing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..checks import BadInput, above, between, one_of, same_length
from ..rounds import stream
from ..types import Array

__all__ = ["by_quantity", "dirichlet", "equal", "natural"]

Over = Literal["cells", "labels", "groups"]


def dirichlet(
    label: Array, group: Array, *, clients: int, seed: int, alpha: float, over: Over = "cells", min_size: int = 1
) -> list[Array]:
    """Split each cell in proportions p ~ Dir(alpha, ..., alpha) over the clients, cut at floor(cumsum(p) n).

    One generator of its own, ``default_rng(seed)``, goes through the cells by label, then group, and in each first
    shuffles the rows, then draws p. That order is Fairis' own: with it (and seeds 42, 123, 456, K = 3) the mean shares
    of client 0 are 0.395, 0.210 and 0.303 on German, Taiwan and Adult, the published FedAvg weights to every digit.

    Parameters
    ----------
    label, group : (n,) whole numbers
    clients : K >= 1
    alpha : > 0; small = each cell sits with few clients, large = every client is a sample of the whole
    over : what a cell is: "cells" = label x group (Fairis), "labels", or "groups"
    min_size : rows that each client gets at least; rows move from the largest clients' largest cells

    Returns
    -------
    K sorted arrays of row numbers, disjoint, together 0..n-1.

    Raises
    ------
    BadInput
        alpha <= 0, clients < 1, or clients x min_size > n.

    Examples
    --------
    >>> y, a = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    >>> [len(p) for p in dirichlet(y, a, clients=3, seed=1, alpha=1e9)]
    [32, 32, 36]
    """
    n = same_length(label=label, group=group)
    check(n, clients, min_size)
    above("alpha", alpha, 0, "the Dirichlet distribution needs a positive concentration")
    one_of("over", over, ("cells", "labels", "groups"))
    keys = {"cells": (label, group), "labels": (label,), "groups": (group,)}[over]
    rng = np.random.default_rng(seed)
    cells, counts = [], []
    for rows in _cells(*keys):
        cells.append(rng.permutation(rows))
        cuts = (np.cumsum(_proportions(rng, alpha, clients)) * len(rows)).astype(np.int64)
        counts.append(np.diff(cuts[:-1], prepend=0, append=len(rows)))
    return _cut(cells, np.stack(counts), min_size)


def equal(label: Array, group: Array, *, clients: int, seed: int, min_size: int = 1) -> list[Array]:
    """Split at random into clients whose sizes differ by at most one row.

    Examples
    --------
    >>> [len(p) for p in equal(np.zeros(10), np.zeros(10), clients=3, seed=0)]
    [4, 3, 3]
    """
    n = same_length(label=label, group=group)
    check(n, clients, min_size)
    rng = np.random.default_rng(seed)
    return _cut([rng.permutation(n)], _apportion(np.full(clients, 1 / clients), n)[None], min_size)


def by_quantity(label: Array, group: Array, *, clients: int, seed: int, alpha: float, min_size: int = 1) -> list[Array]:
    """Split at random into clients whose sizes are n p with p ~ Dir(alpha, ..., alpha): unequal in size, alike in kind.

    Examples
    --------
    >>> parts = by_quantity(np.zeros(100), np.zeros(100), clients=3, seed=0, alpha=0.5)
    >>> sum(len(p) for p in parts)
    100
    """
    n = same_length(label=label, group=group)
    check(n, clients, min_size)
    above("alpha", alpha, 0, "the Dirichlet distribution needs a positive concentration")
    rng = np.random.default_rng(seed)
    return _cut([rng.permutation(n)], _apportion(_proportions(rng, alpha, clients), n)[None], min_size)


def natural(ids: Array, *, min_size: int = 1) -> list[Array]:
    """Give every natural id (a bank, a branch, a state) its own client, in the order of ``numpy.unique(ids)``.

    Examples
    --------
    >>> natural(np.array(["b", "a", "b"]))
    [array([1]), array([0, 2])]
    """
    names, at, sizes = np.unique(np.asarray(ids), return_inverse=True, return_counts=True)
    if not len(names):
        raise BadInput("there are no rows to split; check what was dropped")
    if sizes.min() < min_size:
        small = names[int(np.argmin(sizes))]
        raise BadInput(
            f"client {small!s} has {sizes.min()} rows, fewer than min_size = {min_size}; "
            "lower min_size or leave its rows out"
        )
    return np.split(np.argsort(at, kind="stable"), np.cumsum(sizes)[:-1])


def check(n: int, clients: int, min_size: int) -> None:
    """Refuse at once what cannot be met.

    Examples
    --------
    >>> check(10, 3, 4)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: 3 clients x 4 = 12 > 10 examples; use fewer clients or a smaller min_size
    """
    if clients < 1 or clients != int(clients):
        raise BadInput(
            f"clients must be a whole number of at least 1, got {clients}; choose how many clients there are"
        )
    if min_size < 1:
        raise BadInput(f"min_size must be at least 1, got {min_size}; a client without rows cannot train")
    if clients * min_size > n:
        raise BadInput(
            f"{clients} clients x {min_size} = {clients * min_size} > {n} examples; "
            "use fewer clients or a smaller min_size"
        )


def hold_out(
    label: Array, group: Array, fraction: float, seed: int, what: str = "test_fraction"
) -> tuple[Array, Array]:
    """Set a global test pool aside, stratified over the (label x group) cells.

    Each cell gives its share of round(fraction n) rows, rounded by largest remainders. ``what`` is the fraction's name
    in messages.

    Returns
    -------
    (train, test) : sorted row numbers, disjoint, together 0..n-1

    Examples
    --------
    >>> y, a = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    >>> train, test = hold_out(y, a, 0.2, seed=0)
    >>> len(train), len(test), np.bincount(y[test] * 2 + a[test])
    (80, 20, array([5, 5, 5, 5]))
    """
    n = same_length(label=label, group=group)
    between(what, fraction, 0, 1, "it is a share of the rows")
    wanted = round(fraction * n)
    if wanted >= n:
        raise BadInput(f"{what} = {fraction:g} leaves none of the {n} rows to train on; lower it")
    cells = _cells(label, group)
    sizes = np.array([len(c) for c in cells])
    taken = _apportion(sizes / n, wanted)
    test = np.sort(
        np.concatenate(
            [_shuffled(c, seed, "hold out", i)[:k] for i, (c, k) in enumerate(zip(cells, taken, strict=True))]
        )
    )
    return np.setdiff1d(np.arange(n), test, assume_unique=True), test


@dataclass(frozen=True, slots=True)
class Split:
    """What a split looks like: counts by client, label and group, and how far each client is from the whole.

    ``cells`` (K, L, G) counts. ``distance`` (K,) total variation between the client's shares of the cells and the
    pooled ones, in [0, 1), 0 = like the whole. ``mean`` : their mean, weighted by size.
    """

    cells: Array
    distance: Array
    mean: float


def describe(parts: Sequence[Array], label: Array, group: Array, groups: int | None = None) -> Split:
    """Count the cells of every client and measure how unlike the whole it is: TV_k = 1/2 sum_c |q_kc - q_c|.

    Examples
    --------
    >>> y, a = np.array([0, 0, 1, 1]), np.zeros(4, int)
    >>> split = describe([np.array([0, 1]), np.array([2, 3])], y, a)
    >>> split.cells[:, :, 0].tolist(), split.distance, split.mean
    ([[2, 0], [0, 2]], array([0.5, 0.5]), 0.5)
    """
    g = int(np.max(group)) + 1 if groups is None else groups
    k = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    rows = np.concatenate(list(parts)).astype(np.int64)
    n_labels = int(np.max(label)) + 1
    code = (k * n_labels + np.asarray(label, np.int64)[rows]) * g + np.asarray(group, np.int64)[rows]
    cells = np.bincount(code, minlength=len(parts) * n_labels * g).reshape(len(parts), n_labels, g)
    sizes = cells.sum((1, 2))
    share = cells / np.maximum(sizes, 1)[:, None, None]
    distance = np.abs(share - cells.sum(0) / max(sizes.sum(), 1)).sum((1, 2)) / 2
    return Split(cells, distance, float((distance * sizes).sum() / max(sizes.sum(), 1)))


def _cells(*keys: Array) -> list[Array]:
    """Rows of each combination that occurs, in the order of the keys' values."""
    _, code = np.unique(np.stack([np.asarray(k) for k in keys]), axis=1, return_inverse=True)
    code = code.reshape(-1)
    return np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])


def _proportions(rng: np.random.Generator, alpha: float, clients: int) -> Array:
    """Draw p ~ Dir(alpha, ..., alpha); where the draw under- or overflows, take its limit."""
    with np.errstate(all="ignore"):
        p = rng.dirichlet(np.full(clients, alpha)) if alpha < 1e12 else np.full(clients, 1 / clients)
    if np.isfinite(p).all() and p.sum() > 0.5:
        return np.asarray(p)
    one = np.zeros(clients)  # the limit alpha -> 0: all with one client
    one[rng.integers(clients)] = 1
    return one


def _apportion(shares: Array, n: int) -> Array:
    """Whole numbers near shares * n that sum to n: floors, the rest to the largest remainders (ties: small shares)."""
    exact = shares / shares.sum() * n
    whole: Array = np.floor(exact).astype(np.int64)
    rest = int(n - whole.sum())
    whole[np.lexsort((exact, np.round(whole - exact, 9)))[:rest]] += 1
    return whole


def _shuffled(rows: Array, seed: int, purpose: str, cell: int) -> Array:
    shuffled: Array = stream(seed, purpose, cell).permutation(rows)
    return shuffled


def _cut(cells: Sequence[Array], counts: Array, min_size: int) -> list[Array]:
    """Mend counts (cells, K) until every client has ``min_size`` rows, then cut each cell's shuffled rows by them."""
    counts = counts.copy()
    sizes = counts.sum(0)
    while sizes.min() < min_size:
        poor, rich = int(np.argmin(sizes)), int(np.argmax(sizes))
        cell = int(np.argmax(counts[:, rich]))
        counts[cell, [rich, poor]] += [-1, 1]
        sizes[[rich, poor]] += [-1, 1]
    cuts = [np.split(rows, np.cumsum(k)[:-1]) for rows, k in zip(cells, counts, strict=True)]
    return [np.sort(np.concatenate([cut[k] for cut in cuts])) for k in range(counts.shape[1])]
