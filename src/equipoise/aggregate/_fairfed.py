"""FairFed: weights with a memory, moved by gaps to the population."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import BadInput, one_of
from ..types import Aggregator, Array, Reports
from ._lift import empty_counts
from ._sums import check_clip, move

Metric = Callable[[Any], Array]


def fairfed(
    metric: Metric,
    *,
    beta: float = 1.0,
    statistic: str = "pooled",
    state: str = "cumulative",
    floor: bool = True,
    form: str = "linear",
    moment: str = "received",
    clip: float | None = None,
) -> Aggregator:
    """Move every client's weight by how far its metric lies from the population's, compared with the others.

        v_k <- max(0, v_k - beta (gap_k - mean gap)),   gap_k = |F_k - F_global|,   w_k = v_k / sum_j v_j

    v starts at n_k / n; a newcomer enters at its n_k / n among those present, an absent client keeps its v. Where F_k
    is undefined its gap is |accuracy_k - accuracy|, and where F_global is, everybody's is; both are named.

    Parameters
    ----------
    metric : counts (..., G, 4) -> (...) signed gap in -1..1, NaN where undefined
    beta : >= 0; 0 is FedAvg (over whoever is present, by v)
    statistic : "pooled": F_k signed, F_global the metric of the summed counts, as FairFed has it; "mean": F_k absolute,
        F_global their size-weighted mean over the clients that have one, as Fairis has it
    state : "cumulative", or "reset" to n_k / n in every round
    floor : False lets v and w go below 0: no longer shares, but |w_k| C still bounds what a client can move
    form : "exponential": v_k <- v_k exp(-beta gap_k), which needs no floor
    moment : counts of the model as "received" (FairFed) or "trained"
    clip : C, as for ``weighted``

    Returns
    -------
    Aggregator with the info of ``weighted``; ``raw_scores`` are the F_k, ``scores`` the gaps, ``f_global`` the
    population's figure or None

    Raises
    ------
    BadInput : a negative beta, a clip <= 0, an unknown option

    Examples
    --------
    F = 0, 1, 0.5 around F_global = 0.5: gaps 0.5, 0.5, 0, their mean 1/3, so 1/3 - 1/6 twice and 1/3 + 1/3.

    >>> def signed(counts):
    ...     rate = counts[..., 0] / (counts[..., 0] + counts[..., 3])
    ...     return rate[..., 0] - rate[..., 1]
    >>> counts = np.zeros((3, 2, 4), int)
    >>> counts[..., 0], counts[..., 3] = [[4, 4], [4, 0], [4, 2]], [[0, 0], [0, 4], [0, 2]]
    >>> server = fairfed(signed)
    >>> reports = Reports(np.arange(3), np.eye(3), np.ones(3), counts={"received": counts})
    >>> server.step(reports, server.init())[1]["weights"].round(4)
    array([0.1667, 0.1667, 0.6667])

    References
    ----------
    Ezzeldin et al., FairFed, AAAI 2023 (arXiv 2110.00857); exponential form: Bendoukha et al., PoPETs 2025.

    Notes
    -----
    The floor is ours, as in most implementations; where every v is 0, the round is weighted n_k / n and v is kept, so
    that being among the floored restores nobody. Bendoukha's form is the exponential one, reset, with equal sizes.
    """
    check_clip(clip)
    _not_negative("beta", beta)
    one_of("statistic", statistic, ("pooled", "mean"))
    one_of("state", state, ("cumulative", "reset"))
    one_of("form", form, ("linear", "exponential"))

    def step(reports: Reports, memory: Any) -> tuple[Array, dict[str, Any], Any]:
        table = np.asarray(reports.counts[moment], np.float64)  # sums of lies must not wrap around
        ids = [str(c) for c in reports.clients]
        share = _share(reports.sizes)
        local = np.asarray(metric(table), np.float64)
        if statistic == "mean":
            local = np.abs(local)
            everyone = _mean_of_known(local, reports.sizes)
        else:
            everyone = float(metric(table.sum(0)))
        accuracy = _accuracy(table)
        gaps = fairfed_gaps(local, everyone, accuracy, _mean_of_known(accuracy, reports.sizes))
        old = np.array([memory["weights"].get(c, p) for c, p in zip(ids, share, strict=True)])
        new = fairfed_step(old, gaps, beta=beta, floor=floor, form=form)
        notes = [] if np.isfinite(everyone) else ["the population's figure is undefined: every gap is by accuracy"]
        if new.sum() > 0:
            weights = new / new.sum()
        else:
            weights = share
            notes.append("no weight above 0 was left: weighted by size in this round")
        if state == "cumulative":
            memory = {"weights": {**memory["weights"], **dict(zip(ids, new.tolist(), strict=True))}}
        delta, info = move(reports, weights, clip)
        fallbacks = {
            int(c): f"metric undefined{empty_counts(reports, k)}: " + _instead(accuracy[k])
            for k, c in enumerate(reports.clients)
            if not np.isfinite(local[k])
        }
        info |= {"scores": gaps, "raw_scores": local, "fallbacks": fallbacks}
        info["f_global"] = everyone if np.isfinite(everyone) else None
        return delta, info | ({"note": "; ".join(notes)} if notes else {}), memory

    return Aggregator(lambda: {"weights": {}}, step, asks=frozenset({moment}))


def fairfed_gaps(local: Array, everyone: float, accuracy: Array, accuracy_everyone: float) -> Array:
    """Return FairFed's gaps (K,): by metric, else by accuracy, else the mean of the others' (neither gain nor loss).

    Examples
    --------
    >>> fairfed_gaps(np.array([0.1, np.nan, 0.2]), 0.2, np.array([0.8, 0.7, 0.9]), 0.8).round(3)
    array([0.1, 0.1, 0. ])
    """
    gaps = np.abs(local - everyone)
    gaps = np.where(np.isfinite(gaps), gaps, np.abs(accuracy - accuracy_everyone))
    known = np.isfinite(gaps)
    return np.asarray(np.where(known, gaps, gaps[known].mean() if known.any() else 0.0))


def fairfed_step(old: Array, gaps: Array, *, beta: float = 1.0, floor: bool = True, form: str = "linear") -> Array:
    """Return FairFed's unnormalised weights (K,) after one step from ``old``.

    Examples
    --------
    >>> fairfed_step(np.array([0.25, 0.25, 0.5]), np.array([0.1, 0.3, 0.0])).round(4)
    array([0.2833, 0.0833, 0.6333])
    """
    if form == "exponential":
        return np.asarray(old * np.exp(-beta * (gaps - gaps.min())))  # a common factor changes no share
    new = old - beta * (gaps - gaps.mean())
    return np.asarray(np.maximum(new, 0.0) if floor else new)


def _instead(accuracy: float) -> str:
    return "gap by accuracy" if np.isfinite(accuracy) else "no accuracy either, mean gap of the others"


def _accuracy(table: Array) -> Array:
    right, rows = table[..., [0, 2]].sum((-1, -2)), table.sum((-1, -2))
    return np.asarray(np.divide(right, rows, out=np.full(len(rows), np.nan), where=rows > 0))


def _mean_of_known(values: Array, sizes: Array) -> float:
    known = np.isfinite(values)
    return float((values[known] * _share(sizes[known])).sum()) if sizes[known].any() else np.nan


def _share(sizes: Array) -> Array:
    largest = sizes.max(initial=0.0)
    if largest > 1e300:  # a claim that would make the sum infinite
        sizes = sizes / largest
    return np.asarray(sizes / sizes.sum()) if largest > 0 else np.full(len(sizes), 1 / len(sizes))


def _not_negative(what: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise BadInput(f"{what} must be 0 or more, got {value:g}")
