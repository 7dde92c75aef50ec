"""What a split looks like: who has how many rows of what, and which rows nobody has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import Array


def left_out(parts: Sequence[Array], label: Array, classes: Sequence[str]) -> str:
    """Say how many rows of each label a split gives to nobody, "" if everybody has an owner.

    Examples
    --------
    >>> left_out([np.array([0, 2])], np.array([0, 0, 1, 1]), ("no", "yes"))
    '2 of 4 rows are given to no client: no 1, yes 1'
    """
    free = np.ones(len(label), bool)
    free[np.concatenate(list(parts))] = False
    if not free.any():
        return ""
    counts = np.bincount(label[free], minlength=len(classes))
    each = ", ".join(f"{name} {n:,}" for name, n in zip(classes, counts, strict=True) if n)
    return f"{int(free.sum()):,} of {len(label):,} rows are given to no client: {each}"


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
