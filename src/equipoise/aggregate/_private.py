"""Differential privacy of whole clients under unequal weights: noise on the weighted sum and on the sum of weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import BadInput, between, one_of
from ..rounds import stream, take
from ..types import Aggregator, Array, Reports
from ._lift import UNDEFINED, Score, _settle, _worst
from ._sums import check_clip, clip_factors, norms

ADJACENCY = {"add": 1, "replace": 2}
"""What one client may do in a neighbouring run, and how many contributions the weighted sum then differs by."""


def central_dp(
    score: Score | None = None,
    *,
    clip: float | None,
    noise: float,
    seed: int | None,
    eta: float | Sequence[float] = 1.01,
    power: float = 0.0,
    most_rows: float | None = None,
    adjacency: str = "add",
    share: float | None = None,
    undefined: str = "neutral",
    asks: Collection[str] = ("trained",),
) -> Aggregator:
    """Weigh clients by the family of ``weights``, and hide each of them, score included, from who sees models.

        delta = (sum_k m_k Delta_k + N(0, sigma_1^2 I)) / (sum_k m_k + N(0, sigma_2^2)),    ||Delta_k|| clipped to C
        m_k = min(n_k, N)^a prod_m (eta_m - s_mk), in 0..M,    M = N^a prod_m eta_m

    Both sums are released by one Gaussian mechanism; see ``noise_sds``. The rest is made from the two and costs
    nothing: delta is put back onto the ball of radius C, which holds every weighted mean, and the model is kept where
    the noised denominator does not exceed sigma_2.

    Parameters
    ----------
    score : reports -> (K,) or (M, K) in 0..1; each client is judged alone, see ``alone``. None: nobody is judged
    clip : C, chosen without looking at the clients' updates
    noise : z, the noise multiplier of a round, >= 0; ``accounting.central`` says what all rounds have spent
    seed : of the noise, keyed by round. Who knows it takes the noise off again: None draws from the operating system
        instead, for every deployment
    eta : 1 or more, one for all scores or one for each
    power : a in 0..1; above 0 it needs ``most_rows``, N, chosen without looking at the clients' numbers of rows
    adjacency : "add": one client's contributions are there or not; "replace": they become any others, or none
    share : of the budget that the denominator takes, above 0 and below 1; see ``noise_sds``
    undefined : as for ``weighted``, but not "error": one client could end the run, which no noise hides
    asks : moments and figures the score reads

    Returns
    -------
    Aggregator whose info holds, for the server's eyes only, what that of ``weighted`` does, with the weights m_k over
    their sum; beside it ``noise_sd``, (sigma_1, sigma_2), and where the model stays ``kept``

    Raises
    ------
    BadInput : at set-up, no clip, noise that is negative or infinite, an eta below 1, power without ``most_rows``, a
        share outside 0..1, policy "error"; in a step, a score that depends on other clients, another number of etas

    Examples
    --------
    Without noise it is the weighted mean: masses 0.5 and 1.5 of 2.

    >>> server = central_dp(lambda r: r.figures["s"], clip=1.0, noise=0.0, seed=0, eta=1.5, asks=["s"])
    >>> reports = Reports(np.arange(2), np.array([[1.0], [-1.0]]), np.ones(2), {"s": np.array([1.0, 0.0])})
    >>> delta, info, _ = server.step(reports, server.init())
    >>> delta, info["weights"]
    (array([-0.5]), array([0.25, 0.75]))

    References
    ----------
    Ours. McMahan et al., Learning differentially private recurrent language models (ICLR 2018), noise a sum over a
    denominator that is fixed, or has a fixed floor; here the sum of weights is what scores decide, and is noised too.

    Notes
    -----
    max_k w_k C is not how far one client moves the mean: its score moves everybody else's weight as well, and the
    weights that the maximum is taken over are private themselves.
    """
    if clip is None:
        raise BadInput("clip is None, and no noise hides an update of any length; give clip a number")
    check_clip(clip)
    if not 0 <= noise < np.inf:
        raise BadInput(f"noise must be a number of 0 or more, got {noise:g}")
    etas = np.atleast_1d(np.asarray(eta, np.float64))
    if bad := [e for e in etas.tolist() if not 1 <= e < np.inf]:
        raise BadInput(f"eta must be 1 or more, got {bad[0]:g} (a score of 1 would get a negative weight)")
    between("power", power, 0, 1)
    if power and not (most_rows and most_rows >= 1):
        raise BadInput(
            f"power = {power:g} weighs by rows, and a client may have any number of them; "
            "give most_rows, the most that count"
        )
    if most_rows is not None and not power:
        raise BadInput(f"most_rows = {most_rows:g} belongs to weights by rows, and these ignore them; leave it out")
    if undefined == "error":
        raise BadInput('undefined = "error" lets one client end the run, which no noise hides; take neutral or worst')
    one_of("policy for undefined scores", undefined, [policy for policy in UNDEFINED if policy != "error"])
    noise_sds(1.0, clip, noise, adjacency=adjacency, share=share)  # refuses its parameters now
    judge = alone(score) if score else None

    def step(reports: Reports, state: Any) -> tuple[Array, dict[str, Any], Any]:
        k, d = reports.updates.shape
        raw = judge(reports) if judge else np.zeros(k)
        used, fallbacks, after = _settle(raw, reports, undefined, {"scores": state["scores"]})
        tops = _tops(etas if judge else np.ones(1), np.atleast_2d(used))
        most = (most_rows or 1.0) ** power * float(tops.prod())
        mass = np.minimum(reports.sizes, most_rows or np.inf) ** power * (tops[:, None] - used).prod(0)
        lengths = norms(reports.updates)
        factors = clip_factors(lengths, clip)
        sds = noise_sds(most, clip, noise, d, adjacency=adjacency, share=share)
        drawn = normal(seed, state["round"], d + 1)
        numerator, denominator = release(mass * factors, mass, reports.updates, sds, drawn)
        info: dict[str, Any] = {"norms": lengths, "clipped": factors < 1, "clip_norm": clip, "noise_sd": list(sds)}
        if mass.sum() > 0:
            info |= {"weights": mass / mass.sum(), "bounds": mass / mass.sum() * clip}
        else:
            info["note"] = "every weight was 0/0: nothing but noise was summed"
        if judge:
            parts = {"score_parts": used} if used.ndim == 2 else {}
            info |= {"scores": _worst(used), "raw_scores": _worst(raw), "fallbacks": fallbacks} | parts
        delta = np.zeros(d)
        if denominator > sds[1]:
            delta = numerator / denominator
            delta *= clip_factors(norms(delta[None]), clip)[0]
        else:
            info["kept"] = "the noised sum of weights does not stand out from its own noise"
        return delta.astype(reports.updates.dtype), info, {"round": state["round"] + 1, **after}

    return Aggregator(lambda: {"round": 1, "scores": {}}, step, asks=frozenset(asks if score else ()))


def sensitivity(most: float, clip: float, adjacency: str = "add") -> tuple[float, float]:
    """Return how far one client moves the two sums: its weight m lies in 0..M, its update within C, and both are free.

        numerator: M C to add or remove it, 2 M C to replace it;    denominator: M for both

    A replaced client turns a weight of up to M into one of at least 0 (silence, or a reply that is refused, is 0), so
    the sum of weights moves by M at most; the weighted sum moves by m C + m' C, where both updates point away.

    Examples
    --------
    >>> sensitivity(1.5, 2.0), sensitivity(1.5, 2.0, "replace")
    ((3.0, 1.5), (6.0, 1.5))
    """
    return ADJACENCY[one_of("adjacency", adjacency, ADJACENCY)] * most * clip, most


def noise_sds(
    most: float, clip: float, noise: float, d: int = 1, *, adjacency: str = "add", share: float | None = None
) -> tuple[float, float]:
    """Split the noise of one Gaussian mechanism over the weighted sum and the sum of weights.

        add:      sigma_1 = z M C / sqrt(1 - h),            sigma_2 = z M / sqrt(h)
        replace:  both times sqrt(max(4 (1 - h), 1))

    So the pair (numerator / sigma_1, denominator / sigma_2) moves by 1 / z at most when one client is added, removed
    or replaced, whatever h: its weights m, m' in 0..M and its updates move the square of it by at most
    (m + m')^2 C^2 / sigma_1^2 + (m - m')^2 / sigma_2^2, which is convex, and so largest at (M, 0) or at (M, M).

    Parameters
    ----------
    most : M, the largest weight before division; clip : C; noise : z
    d : numbers of the model
    share : h; the default has the least error of the step, to first order and for a step of length C: 1 / (1 + sqrt(d))
        to add or remove; 3/4 to replace, where the worst client for the numerator does not move the denominator, whose
        noise is then free

    Returns
    -------
    (sigma_1, sigma_2)

    Examples
    --------
    >>> noise_sds(1.0, 1.0, 1.0, adjacency="replace")  # doctest: +ELLIPSIS
    (2.0, 1.154...)
    >>> sds = noise_sds(1.01, 2.0, 0.5, 99**2)
    >>> round(sds[0], 3), round(sds[1], 3)
    (1.015, 5.05)
    """
    one_of("adjacency", adjacency, ADJACENCY)
    h = share if share is not None else 0.75 if adjacency == "replace" else 1 / (1 + np.sqrt(max(d, 1)))
    if not 0 < h < 1:
        raise BadInput(f"share must lie between 0 and 1, got {h:g}; leave it out for the one with the least error")
    lift = max(4 * (1 - h), 1.0) if adjacency == "replace" else 1.0
    return float(noise * most * clip * np.sqrt(lift / (1 - h))), float(noise * most * np.sqrt(lift / h))


def release(pulls: Array, mass: Array, updates: Array, sds: tuple[float, float], drawn: Array) -> tuple[Array, float]:
    """Return the noised sum of updates times ``pulls`` (K,), (d,), and the noised sum of ``mass`` (K,).

    ``drawn`` (d + 1,) is standard normal. Sums stay in float64 until the noise is on them: rounding a sum before would
    move it by what is no client's.

    Examples
    --------
    >>> release(np.array([1.0, 0.5]), np.ones(2), np.array([[2.0], [2.0]]), (0.1, 1.0), np.array([1.0, -0.5]))
    (array([3.1]), 1.5)
    """
    total = np.zeros(updates.shape[1])
    for pull, row in zip(pulls, updates, strict=True):
        total += pull * row.astype(np.float64)
    return total + sds[0] * drawn[:-1], float(mass.sum() + sds[1] * drawn[-1])


def normal(seed: int | None, t: int, n: int) -> Array:
    """Draw standard normals (n,) for round t: from the seed, or without one from the operating system, never again."""
    if seed is not None:
        return stream(seed, "central noise", t).standard_normal(n)
    half = -(-n // 2)
    u = (np.frombuffer(os.urandom(16 * half), np.uint64).reshape(2, half) >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-u[0])), 2 * np.pi * u[1]  # Box and Muller, 1958
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


def alone(score: Score) -> Score:
    """Judge every client from its own report and nobody else's, and refuse a score that is made for comparison.

        s_k = score(report k)

    No other client can move such a score, whatever function is given. One that compares clients would be senseless
    then, so it is tried on made-up reports first, whose values come from no client.

    Raises
    ------
    BadInput : from the score, if it judges made-up clients otherwise together than alone

    Examples
    --------
    >>> reports = Reports(np.arange(2), np.zeros((2, 1)), np.ones(2), {"trace": np.array([1.0, 4.0])})
    >>> alone(lambda r: r.figures["trace"] / 4)(reports)
    array([0.25, 1.  ])
    >>> alone(lambda r: r.figures["trace"] / r.figures["trace"].max())(reports)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: this score judges a client by what others report, ...
    """

    def judged(reports: Reports) -> Array:
        made_up = _made_up(reports)
        if not np.allclose(_each(score, made_up), score(made_up), rtol=1e-6, atol=1e-9, equal_nan=True):
            raise BadInput(
                "this score judges a client by what others report, so one client moves the weights of all and the "
                "noise would not hide it; take a score of the client's own, such as a gap or absolute"
            )
        return _each(score, reports)

    return judged


def _each(score: Callable[[Reports], ArrayLike], reports: Reports) -> Array:
    found = [np.asarray(score(take(reports, [k])), np.float64) for k in range(len(reports.clients))]
    return np.concatenate(found, -1)


def _made_up(reports: Reports) -> Reports:
    """Reports of at least three clients with the names and shapes of these, and values that are nobody's."""
    random, k = stream(0, "made-up reports"), max(3, len(reports.clients))
    column = random.standard_normal((k, 1)).astype(reports.updates.dtype)
    return Reports(
        np.resize(reports.clients, k),
        np.broadcast_to(column, (k, reports.updates.shape[1])),
        random.integers(1, 1000, k).astype(np.float64),
        {name: random.standard_normal(k) * 10.0 ** random.integers(-2, 3, k) for name in sorted(reports.figures)},
        {m: random.integers(0, 30, (k, *reports.counts[m].shape[1:])) for m in sorted(reports.counts)},
    )


def _tops(etas: Array, scores: Array) -> Array:
    """One eta for each score: (1,) or (M,) -> (M,)."""
    if len(etas) not in (1, len(scores)):
        raise BadInput(f"eta has {len(etas)} values for {len(scores)} scores; give one per score, or one for all")
    return np.broadcast_to(etas, len(scores))
