"""Split rows among clients: disjoint and complete by construction, feasible or refused at once.

Every partitioner fills a table of counts, cells x clients, whose rows sum to the cells' sizes; the shuffled rows of
each cell are then cut by it. So no row can be lost or handed out twice, and a client that is too small is mended by
moving counts, never by drawing again. Where a setting leaves rows out on purpose, such as a cap, ``left_out`` counts
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..checks import BadInput, above, between, one_of, same_length
from ..rounds import stream
from ..types import Array

__all__ = ["by_quantity", "dirichlet", "equal", "natural"]

Over = Literal["cells", "labels", "groups"]


def dirichlet(
    label: Array,
    group: Array,
    *,
    clients: int,
    seed: int,
    alpha: float,
    over: Over = "cells",
    min_size: int = 1,
    cap: int | None = None,
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
    cap : rows of one cell that a client gets at most; what is above it goes to nobody. With 500 and over = "labels"
        this is FinP's split of CIFAR-10

    Returns
    -------
    K sorted arrays of row numbers, disjoint, together 0..n-1 unless there is a cap.

    Raises
    ------
    BadInput
        alpha <= 0, clients < 1, cap < min_size, or clients x min_size > n or what the cap leaves of it.

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
    if cap is not None and (cap != int(cap) or cap < min_size):
        raise BadInput(
            f"cap must be a whole number of at least min_size = {min_size}, got {cap}; raise it or leave it out"
        )
    keys = {"cells": (label, group), "labels": (label,), "groups": (group,)}[over]
    rng = np.random.default_rng(seed)
    cells, counts = [], []
    for rows in _cells(*keys):
        cells.append(rng.permutation(rows))
        cuts = (np.cumsum(_proportions(rng, alpha, clients)) * len(rows)).astype(np.int64)
        counts.append(np.diff(cuts[:-1], prepend=0, append=len(rows)))
    table = np.stack(counts)
    if cap is not None:
        table = np.minimum(table, cap)
        check(int(table.sum()), clients, min_size)
    return _cut(cells, table, min_size)


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


class Dealt(NamedTuple):
    """Rows of K clients, their names, and a sentence for each kind of rows that nobody gets."""

    parts: list[Array]
    names: tuple[str, ...]
    log: tuple[str, ...]


def natural(
    ids: Array,
    label: Array | None = None,
    *,
    seed: int | None = None,
    min_size: int = 1,
    choose: int | None = None,
    thin: bool = False,
    split: int = 1,
) -> Dealt:
    """Give every natural id (a bank, a branch, a person) its own client, in the order of ``numpy.unique(ids)``.

    Parameters
    ----------
    label : (n,) whole numbers, needed to thin
    seed : needed to choose, thin or split; whether a client is chosen does not change how it is thinned or split
    choose : how many of the clients take part, drawn at random; None = all of them
    thin : keep of every (client, label) cell of m rows a random number of rows, uniform on 1..m, as FinP does with HAR
    split : cut every client at random into this many, whose sizes differ by at most one row. A part of a person is no
        person, so it is called a part

    Returns
    -------
    parts : sorted arrays of row numbers, disjoint; names of the clients; a log of the rows that were left out.

    Raises
    ------
    BadInput
        There are no rows, fewer clients than are to be chosen, or a client with less than ``min_size`` rows.

    Examples
    --------
    >>> natural(np.array(["b", "a", "b"]))
    Dealt(parts=[array([1]), array([0, 2])], names=('a', 'b'), log=())
    >>> natural(np.repeat(["Ann", "Bo"], 4), choose=1, split=2, seed=1).names
    ('Bo, part 1 of 2', 'Bo, part 2 of 2')

    References
    ----------
    FinP (arXiv 2502.17748): choose and thin are its preparation of HAR.
    """
    known, at, sizes = np.unique(np.asarray(ids), return_inverse=True, return_counts=True)
    if not len(known):
        raise BadInput("there are no rows to split; check what was dropped")
    if split < 1 or split != int(split):
        raise BadInput(f"split must be a whole number of at least 1, got {split}; 1 leaves every client whole")
    if choose is not None and not 1 <= choose <= len(known):
        raise BadInput(f"choose must lie in 1..{len(known)}, the number of natural clients, got {choose}; change it")
    if seed is None and (choose is not None or thin or split > 1):
        raise BadInput("choose, thin and split draw at random and need a seed; give one")
    if thin and label is None:
        raise BadInput("thin needs the labels of the rows; give them, or set thin = false")
    key = 0 if seed is None else seed  # without a seed nothing is drawn
    drawn = np.arange(len(known))
    if choose is not None:
        drawn = np.sort(stream(key, "choose").permutation(len(known))[:choose])
    everyone = np.split(np.argsort(at, kind="stable"), np.cumsum(sizes)[:-1])
    parts, names, thinned = [], [], 0
    for k in drawn:
        rows = everyone[k]
        if thin and label is not None:
            rows = _thinned(rows, label, stream(key, "thin", 0, int(k)))
        thinned += int(sizes[k]) - len(rows)
        if len(rows) < min_size * split:
            raise BadInput(
                f"client {known[k]!s} has {len(rows)} rows, fewer than min_size = {min_size}"
                + (f" for each of {split} parts" if split > 1 else "")
                + "; lower min_size or leave its rows out"
            )
        if split == 1:
            parts.append(rows)
            names.append(str(known[k]))
            continue
        mixed = stream(key, "split", 0, int(k)).permutation(rows)
        parts += [np.sort(part) for part in np.array_split(mixed, split)]
        names += [f"{known[k]!s}, part {i + 1} of {split}" for i in range(split)]
    log, theirs = [], int(sizes[drawn].sum())
    if len(drawn) < len(known):
        others = f"{len(at) - theirs:,} rows of the others"
        log.append(f"{len(drawn)} of {len(known)} clients chosen; {others} are left out")
    if thin:
        log.append(f"thinned by client and label: {thinned:,} of {theirs:,} rows are left out")
    return Dealt(parts, tuple(names), tuple(log))


def _thinned(rows: Array, label: Array, rng: np.random.Generator) -> Array:
    """Keep a random number of the rows of each label, at least one."""
    cells = _cells(np.asarray(label)[rows])
    return np.sort(np.concatenate([rows[rng.permutation(cell)[: rng.integers(1, len(cell) + 1)]] for cell in cells]))


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
    cuts = [np.split(rows, np.cumsum(k)) for rows, k in zip(cells, counts, strict=True)]  # the last is given to nobody
    return [np.sort(np.concatenate([cut[k] for cut in cuts])) for k in range(counts.shape[1])]
