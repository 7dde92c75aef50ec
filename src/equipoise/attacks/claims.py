"""Hostile claims: what members say of the curvature of their loss, and of every other figure they are asked for.

Updates and counts stay honest. A rule that weighs by what clients say of themselves is only as good as its score; see
the Notes in ``scores``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from ..checks import all_finite
from ..types import Array, Broadcast, Reports
from .updates import Tamper

__all__ = ["claim_flat", "claim_huge", "claim_median"]


def claim_median(members: Iterable[int], strength: float = 1.0) -> Tamper:
    """Claim the figures of the honest client in the middle, which a score of distances rewards most.

        v_k <- median of v_j over the honest clients j that have one

    The attacker knows what honest clients send (``omniscient``), so it runs in the simulator only. Where none of them
    has the figure, the member's own stays. ``strength`` plays no part.

    Examples
    --------
    >>> sent = Reports(np.arange(4), np.zeros((4, 1)), np.ones(4), {"trace": np.array([1.0, 2.0, 5.0, 90.0])})
    >>> claim_median([3])(sent, None).figures["trace"]
    array([1., 2., 5., 2.])

    References
    ----------
    Ours, against FinP's relative rho (arXiv 2502.17748).
    """

    def lie(values: Array, mine: Array) -> Array:
        honest = values[~mine]
        honest = honest[np.isfinite(honest)]
        return np.full(mine.sum(), np.median(honest)) if len(honest) else values[mine]

    return _claim(members, lie)


claim_median.omniscient = True  # type: ignore[attr-defined]


def claim_huge(members: Iterable[int], strength: float) -> Tamper:
    """Claim figures many times one's own, which makes all others look alike to a score of distances.

        v_k <- strength |v_k|

    Raises
    ------
    BadInput : a strength that is not finite

    Examples
    --------
    >>> sent = Reports(np.arange(3), np.zeros((3, 1)), np.ones(3), {"trace": np.array([1.0, 2.0, -5.0])})
    >>> claim_huge([2], 1000)(sent, None).figures["trace"]
    array([1.e+00, 2.e+00, 5.e+03])

    References
    ----------
    Ours, against FinP's relative rho (arXiv 2502.17748).
    """
    factor = float(all_finite("strength", np.array([strength]))[0])

    def lie(values: Array, mine: Array) -> Array:
        with np.errstate(over="ignore"):  # what leaves the range of a float counts as not sent
            return np.asarray(factor * np.abs(values[mine]))

    return _claim(members, lie)


def claim_flat(members: Iterable[int], strength: float = 1.0) -> Tamper:
    """Claim that the loss does not curve at all, which a one-sided or an absolute score takes for no risk.

        v_k <- 0

    ``strength`` plays no part.

    Examples
    --------
    >>> sent = Reports(np.arange(3), np.zeros((3, 1)), np.ones(3), {"trace": np.array([1.0, 2.0, 5.0])})
    >>> claim_flat([2])(sent, None).figures["trace"]
    array([1., 2., 0.])

    References
    ----------
    Ours, against scores of curvature.
    """
    return _claim(members, lambda values, mine: np.zeros(mine.sum()))


def _claim(members: Iterable[int], lie: Callable[[Array, Array], Array]) -> Tamper:
    """Put ``lie(values (K,), mine (K,) bool)`` in the place of the members' own, figure by figure."""
    ids = np.array(sorted(members), np.int64)

    def tamper(reports: Reports, broadcast: Broadcast) -> Reports:
        mine = np.isin(reports.clients, ids)
        figures = {}
        for name, values in reports.figures.items():
            figures[name] = values.copy()
            figures[name][mine] = lie(values, mine)
        return replace(reports, figures=figures)

    return tamper
