"""Intervals."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from ..checks import BadInput
from ..types import Array

__all__ = ["wilson"]


def wilson(successes: Any, trials: Any, level: float = 0.95) -> tuple[Array, Array]:
    """Return Wilson's score interval of a rate, (low, high); NaN where there are no trials.

    (p + z^2/2n ± z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), with p = successes / n.

    Parameters
    ----------
    successes, trials : arrays that broadcast, 0 <= successes <= trials
    level : nominal coverage, in (0, 1)

    Raises
    ------
    BadInput
        More successes than trials, a negative count, or a level outside (0, 1).

    Examples
    --------
    >>> low, high = wilson([0, 5, 0], [10, 10, 0])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.237,   nan]), array([0.278, 0.763,   nan]))

    References
    ----------
    Wilson, Probable inference, the law of succession, and statistical inference, 1927. Unlike the textbook interval
    p ± z sqrt(p(1-p)/n) it stays in 0..1 and does not shrink to a point at p = 0 or 1.
    """
    if not 0 < level < 1:
        raise BadInput(f"level must lie between 0 and 1, got {level:g}; 0.95 is usual")
    x, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if not ((x >= 0) & (x <= n)).all():
        at = np.flatnonzero(~((x >= 0) & (x <= n)).ravel())[0]
        raise BadInput(f"{x.ravel()[at]:g} successes in {n.ravel()[at]:g} trials; successes must lie in 0..trials")
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    m = np.where(n > 0, n, np.nan)
    p = x / m
    centre = (p + z2 / (2 * m)) / (1 + z2 / m)
    half = np.sqrt(z2 * (p * (1 - p) / m + z2 / (4 * m * m))) / (1 + z2 / m)
    # The limits 0 and 1 are exact at p = 0 and 1; do not leave them to rounding.
    return np.where(x == 0, 0.0, centre - half) * (m / m), np.where(x == n, 1.0, centre + half) * (m / m)
