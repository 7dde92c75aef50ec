"""What a client is judged by: makers of ``score(reports)`` -> (K,) in 0..1, higher is worse, NaN where undefined.

A score is made on the server from what clients report, in the order of ``reports.clients``. What an undefined score
counts as is decided in ``aggregate.weighted``, not here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .checks import BadInput, above, one_of
from .types import Array, Reports

__all__ = ["absolute", "deviation", "gap", "rank"]

Metric = Callable[[Any], Array]
"""Counts (..., G, 4), columns tp fp tn fn -> (...), NaN where undefined."""
Score = Callable[[Reports], Array]


def gap(metric: Metric, moment: str = "trained") -> Score:
    """Judge a client by a metric of its own counts, such as its equal opportunity difference.

        s_k = |metric(counts_k)|

    Parameters
    ----------
    metric : counts (K, G, 4) -> (K,) in -1..1, NaN where undefined; a signed one counts by its size
    moment : which counts; "trained" (Fairis: the model the client sends) or "received" (FairFed)

    Returns
    -------
    reports -> (K,) in 0..1; NaN where the client's metric is undefined

    Examples
    --------
    >>> def tpr_gap(counts):
    ...     tp, fn = counts[..., 0], counts[..., 3]
    ...     rate = tp / (tp + fn)
    ...     return rate[..., 0] - rate[..., 1]
    >>> counts = np.array([[[4, 0, 5, 0], [1, 0, 5, 3]], [[2, 0, 5, 2], [2, 0, 5, 2]]])
    >>> gap(tpr_gap)(Reports(np.arange(2), np.zeros((2, 1)), np.ones(2), counts={"trained": counts}))
    array([0.75, 0.  ])

    References
    ----------
    Fairis (arXiv 2608.06469), section 4: F_k is the absolute EOD on the client's own data.
    """

    def score(reports: Reports) -> Array:
        found = np.asarray(metric(_counts(reports, moment)), np.float64)
        if found.shape != (len(reports.clients),):
            name, k = getattr(metric, "__name__", "the metric"), len(reports.clients)
            raise BadInput(f"metric {name} returned shape {found.shape} for counts of {k} clients; return ({k},)")
        return np.abs(found)

    return score


def deviation(*figures: str) -> Score:
    """Judge a client by how far its figures lie from everybody else's, on either side.

        r_k = sum_j |v_k - v_j| / (K - 1);   s_k = mean over figures of r_k / max_j r_j

    An unusually small figure counts as much as an unusually large one, and a negative one is a figure like any other.
    All equal, 0/0: 0.5 each, the value before the first round. Two clients: 1 each. A client alone has NaN; so has one
    that lacks a figure (it is not finite), and the others are compared among themselves.

    Parameters
    ----------
    figures : names in ``reports.figures``, each (K,); FinP takes the top Hessian eigenvalue and the trace

    Returns
    -------
    reports -> (K,) in 0..1; the most distant client has 1 if it is so in every figure

    Examples
    --------
    Distances 3, 2.5, 4.5 of at most 4.5 and 15, 15, 30 of at most 30.

    >>> figures = {"eigenvalue": np.array([1.0, 2.0, 6.0]), "trace": np.array([10.0, 10.0, 40.0])}
    >>> reports = Reports(np.arange(3), np.zeros((3, 1)), np.ones(3), figures)
    >>> deviation("eigenvalue", "trace")(reports).round(4)
    array([0.5833, 0.5278, 1.    ])

    References
    ----------
    FinP (arXiv 2502.17748), rho as in its authors' code.

    Notes
    -----
    The score is relative, so a liar moves it. One with a huge figure pushes everybody else's to 1 / (K - 1); one with
    the median has the least of all. ``absolute`` does not have this weakness.
    """
    return _of_figures(figures, _deviation)


def rank(*figures: str) -> Score:
    """Judge a client by the rank of its figures among everybody's: the largest, with its sign, is the worst.

        s_k = mean over figures of (#{j: v_j < v_k} + (#{j: v_j = v_k} + 1) / 2) / K

    Equal figures share their mean rank: all equal, (K + 1) / 2K each. Two clients: 0.5 and 1. A client alone has NaN;
    so has one that lacks a figure (it is not finite), and it is not counted in K.

    Parameters
    ----------
    figures : names in ``reports.figures``, each (K,)

    Returns
    -------
    reports -> (K,) in 0..1

    Examples
    --------
    >>> reports = Reports(np.arange(3), np.zeros((3, 1)), np.ones(3), {"trace": np.array([9.0, 2.0, 2.0])})
    >>> rank("trace")(reports)
    array([1. , 0.5, 0.5])

    References
    ----------
    FinP (arXiv 2502.17748), rho in the paper's words: a relative rank of overfitting.

    Notes
    -----
    One-sided: an unusually flat client has the least. The authors' code computes ``deviation`` instead. The score is
    relative: a liar moves nobody by more than one place, 1 / K, and has the least of all if it claims to be flat.
    """
    return _of_figures(figures, _rank)


def absolute(*figures: str, constant: float = 1.0) -> Score:
    """Judge a client by the size of its own figures against a fixed constant, which nobody else can move.

        s_k = mean over figures of v_k / (v_k + c),   v_k < 0 counts as 0

    A loss that is flat or curves downwards at the client's model does not sit in a minimum of its own: no risk, 0. All
    equal, two clients and a client alone are nothing special. A client that lacks a figure (it is not finite) has NaN.

    Parameters
    ----------
    figures : names in ``reports.figures``, each (K,)
    constant : c, above 0 and in the unit of the figures: the value that scores 0.5. Take it from a pilot, once

    Returns
    -------
    reports -> (K,) in 0..1, increasing in the client's own figures; near 1 only for v much above c

    Raises
    ------
    BadInput : c <= 0, no figure

    Examples
    --------
    >>> reports = Reports(np.arange(3), np.zeros((3, 1)), np.ones(3), {"trace": np.array([-5.0, 10.0, 30.0])})
    >>> absolute("trace", constant=10.0)(reports)
    array([0.  , 0.5 , 0.75])

    References
    ----------
    Ours, in place of FinP's relative rho (arXiv 2502.17748).

    Notes
    -----
    A client can still lie about itself, and nothing but itself: one that claims to be flat scores 0.
    """
    return _of_figures(figures, partial(_absolute, above("constant", constant, 0)))


def several(*scores: Score) -> Score:
    """Put several scores side by side, (M, K), for ``weights.joint``."""
    if not scores:
        raise BadInput("no score given; pass at least one")
    return lambda reports: np.stack([score(reports) for score in scores])


def population(metric: Metric, moment: str = "received", statistic: str = "pooled") -> Callable[[Reports], float]:
    """Return the figure that all clients may be told, F_global: reports -> one number, NaN where undefined.

    ``"pooled"``: the metric of the summed counts, exact. ``"mean"``: the size-weighted mean of absolute local ones,
    over the clients that have one; the two differ as widely as 49/50 and 0.
    """
    one_of("statistic", statistic, ("pooled", "mean"))

    def figure(reports: Reports) -> float:
        counts = _counts(reports, moment)
        if statistic == "pooled":
            return float(metric(counts.sum(0, dtype=np.float64)))
        local = np.abs(metric(counts))
        sizes = np.where(np.isnan(local), 0, reports.sizes)
        return float(np.nansum(sizes * np.nan_to_num(local)) / sizes.sum()) if sizes.sum() > 0 else np.nan

    return figure


def _deviation(v: Array) -> Array:
    if len(v) < 2:
        return np.full(len(v), np.nan)
    v = v / (np.abs(v).max() or 1.0)  # a client may send 1e308
    distance = np.abs(v[:, None] - v).sum(1) / (len(v) - 1)
    return distance / distance.max() if distance.max() > 0 else np.full(len(v), 0.5)


def _rank(v: Array) -> Array:
    if len(v) < 2:
        return np.full(len(v), np.nan)
    below, equal = (v < v[:, None]).sum(1), (v == v[:, None]).sum(1)
    return np.asarray((below + (equal + 1) / 2) / len(v))


def _absolute(constant: float, v: Array) -> Array:
    with np.errstate(over="ignore"):  # a client may send 1e308
        return np.asarray(1 - 1 / (1 + np.maximum(v, 0.0) / constant))


def _of_figures(figures: tuple[str, ...], judge: Callable[[Array], Array]) -> Score:
    if not figures:
        raise BadInput("no figure named; pass at least one, such as 'trace'")

    def score(reports: Reports) -> Array:
        parts = np.full((len(figures), len(reports.clients)), np.nan)
        for row, name in zip(parts, figures, strict=True):
            if name not in reports.figures:
                raise BadInput(f"figure {name!r} was not reported; let the aggregator ask for it")
            values = np.asarray(reports.figures[name], np.float64)
            known = np.isfinite(values)
            row[known] = judge(values[known])
        return np.asarray(parts.mean(0))

    return score


def _counts(reports: Reports, moment: str) -> Array:
    if moment not in reports.counts:
        raise BadInput(f"no counts at the moment {moment!r} were reported; let the aggregator ask for it")
    return reports.counts[moment]
