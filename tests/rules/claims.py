"""Reports made to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings

from equipoise.metrics import signed_gap, true_positive_rate
from equipoise.types import Array, Reports


def law(*strategies: Any, **named: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a law on forty inputs, however slow the machine is."""
    return lambda test: settings(max_examples=40, deadline=None)(given(*strategies, **named)(test))


def signed_eod(counts: Array) -> Array:
    """TPR of group 0 minus TPR of group 1."""
    return -signed_gap(true_positive_rate(counts), 0)


def table(gap: float | None, accuracy: float | None = None, rows: float = 2.0) -> Array:
    """A (2, 4) table with this signed EOD (None: group 1 has no positives), and this accuracy if it can be had.

    A table of claims may hold fractions: rates then come out exactly.
    """
    out = np.zeros((2, 4))
    if gap is None:
        out[0, 0], out[0, 3], out[1, 2] = 0.5, 0.5, 1
    else:
        out[0, 0], out[0, 3] = max(gap, 0), 1 - max(gap, 0)
        out[1, 0], out[1, 3] = max(-gap, 0), 1 - max(-gap, 0)
    if accuracy is not None:
        negatives = rows - out.sum()
        right = accuracy * rows - out[:, [0, 2]].sum()
        assert 0 <= right <= negatives, "no such table"
        out[0, 2], out[0, 1] = right, negatives - right
    return out


def reports(
    gaps: Sequence[float | None],
    sizes: Sequence[float] | None = None,
    *,
    updates: Array | None = None,
    moment: str = "received",
    clients: Sequence[int] | None = None,
    tables: Sequence[Array] | None = None,
) -> Reports:
    """Reports of clients with these signed EODs."""
    k = len(gaps)
    ids = np.arange(k) if clients is None else np.array(clients)
    counts = np.array([table(g) for g in gaps] if tables is None else tables)
    n = np.ones(k) if sizes is None else np.array(sizes, float)
    return Reports(ids, np.eye(k) if updates is None else updates, n, counts={moment: counts})
