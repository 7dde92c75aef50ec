"""Weight rules: what the server makes of scores. ``rule(scores, sizes, **params)`` -> weights, stateless and pure.

Both papers are one family, a product of the clients' sizes and of how far each score stays below its eta:

    w_k = n_k^a * prod_m (eta_m - s_mk) / sum_j n_j^a * prod_m (eta_m - s_mj)

A score lies in 0..1, higher is worse. Weights are non-negative and sum to 1; where every mass is 0, as in ALA when
all clients score 1, there is no share to speak of (0/0) and the result is all NaN: ``aggregate.weighted`` then weighs
equally and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .checks import BadInput, above, between
from .types import Array

__all__ = ["ala", "fairis", "fairis_n", "fedavg", "joint", "uniform"]

ETA = 1.01
"""Fairis' strict setting; the larger eta, the nearer to equal weights."""


def uniform(scores: ArrayLike, sizes: ArrayLike) -> Array:
    """Weigh every client the same, whatever it scores and however many rows it has.

        w_k = 1 / K

    Parameters
    ----------
    scores : ignored
    sizes : (K,) training rows, >= 0

    Returns
    -------
    (K,) non-negative, sum 1

    Examples
    --------
    >>> uniform([0.9, 0.1], [100, 300])
    array([0.5, 0.5])

    References
    ----------
    Fairis (arXiv 2608.06469), the size-blind control of its section 6.
    """
    return np.full(len(n := _sizes(sizes)), 1 / len(n))


def fedavg(scores: ArrayLike, sizes: ArrayLike) -> Array:
    """Weigh every client by its number of rows; scores play no part.

        w_k = n_k / sum_j n_j

    Parameters
    ----------
    scores : ignored
    sizes : (K,) training rows, >= 0

    Returns
    -------
    (K,) non-negative, sum 1; all NaN if every size is 0

    Examples
    --------
    >>> fedavg([0.9, 0.1], [100, 300])
    array([0.25, 0.75])

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.
    """
    return _shares(_sizes(sizes))


def fairis(scores: ArrayLike, sizes: ArrayLike, *, eta: float = ETA) -> Array:
    """Weigh every client by how far its score stays below eta; strictly less for more bias, never 0.

        w_k = (eta - s_k) / sum_j (eta - s_j)

    Parameters
    ----------
    scores : (K,) in 0..1, higher is worse
    sizes : (K,) training rows, checked but not used
    eta : above 1; ``eta_for_cap`` finds the one that caps a fully biased client's share

    Returns
    -------
    (K,) positive, sum 1; tends to 1/K as eta grows, |w_k - 1/K| <= 1/(K (eta - 1))

    Raises
    ------
    BadInput : eta <= 1, a score outside 0..1 or undefined, lengths that differ, no client

    Examples
    --------
    The paper's example: masses 0.16, 0.79, 0.83 of 1.78.

    >>> fairis([0.85, 0.22, 0.18], [1, 1, 1]).round(3)
    array([0.09 , 0.444, 0.466])

    References
    ----------
    Fairis (arXiv 2608.06469), section 4 and Appendix 0.A.9.
    """
    return _weigh(scores, sizes, [_eta(eta)], 0)


def fairis_n(scores: ArrayLike, sizes: ArrayLike, *, eta: float = ETA) -> Array:
    """Weigh every client as Fairis does, times its number of rows.

        w_k = n_k (eta - s_k) / sum_j n_j (eta - s_j)

    Parameters
    ----------
    scores : (K,) in 0..1, higher is worse
    sizes : (K,) training rows, >= 0; a client with 0 rows gets weight 0
    eta : above 1

    Returns
    -------
    (K,) non-negative, sum 1; all NaN if every size is 0. Input is refused as by ``fairis``

    Examples
    --------
    Masses 100 * 0.25, 300 * 0.75, 200 * 1.0 of 450.

    >>> fairis_n([1.0, 0.5, 0.25], [100, 300, 200], eta=1.25).round(4)
    array([0.0556, 0.5   , 0.4444])

    References
    ----------
    Fairis (arXiv 2608.06469), Eq. (4) and Proposition 1.
    """
    return _weigh(scores, sizes, [_eta(eta)], 1)


def ala(scores: ArrayLike, sizes: ArrayLike) -> Array:
    """Weigh every client by one minus its score: the family's member with eta = 1, which may exclude a client.

        w_k = (1 - s_k) / sum_j (1 - s_j)

    Parameters
    ----------
    scores : (K,) in 0..1, higher is worse; FinP takes the privacy risk rho
    sizes : (K,) training rows, checked but not used

    Returns
    -------
    (K,) non-negative, sum 1; exactly 0 at score 1; all NaN if every score is 1. Input is refused as by ``fairis``

    Examples
    --------
    >>> ala([0.5, 0.75, 1.0], [1, 1, 1]).round(3)
    array([0.667, 0.333, 0.   ])

    References
    ----------
    FinP (arXiv 2502.17748), adaptive local aggregation.

    Notes
    -----
    ``joint`` with eta > 1 repairs the exclusion.
    """
    return _weigh(scores, sizes, [1.0], 0)


def joint(scores: ArrayLike, sizes: ArrayLike, *, eta: float | Sequence[float] = ETA, power: float = 0) -> Array:
    """Weigh every client by several scores at once, such as a fairness gap and a privacy risk.

        w_k = n_k^a prod_m (eta_m - s_mk) / sum_j n_j^a prod_m (eta_m - s_mj)

    Parameters
    ----------
    scores : (M, K), or (K,) for one score; in 0..1, higher is worse
    sizes : (K,) training rows, >= 0
    eta : M values above 1, or one for all scores
    power : a in 0..1; 0 ignores the sizes, 1 weighs by them

    Returns
    -------
    (K,) non-negative, sum 1; decreasing in each of a client's scores; with one score it is Fairis

    Raises
    ------
    BadInput : an eta <= 1, as many etas as scores missing, power outside 0..1, and as for ``fairis``

    Examples
    --------
    Masses 1.5 * 1.0 and 1.0 * 2.0 of 3.5.

    >>> joint([[0.0, 0.5], [1.0, 0.0]], [1, 1], eta=[1.5, 2.0]).round(4)
    array([0.4286, 0.5714])

    References
    ----------
    Ours: Fairis' factor for fairness times ALA's factor for privacy with eta > 1.
    """
    return _weigh(scores, sizes, _etas(eta, len(np.atleast_2d(scores))), between("power", power, 0, 1))


def eta_for_cap(share: float, clients: int, honest: float = 0.0) -> float:
    """Return the eta at which a client of score 1 keeps just this share while the others score ``honest``.

        eta = (1 - c - c (K - 1) h) / (1 - c K)

    Since the share only falls when others score lower, it is a cap as long as every honest score stays below h.
    Among clients that are all fully biased the share is 1/K, whatever eta.

    Parameters
    ----------
    share : c, above 0 and below 1/K
    clients : K >= 2
    honest : h in 0..1, below 1

    Raises
    ------
    BadInput : a share that no eta gives, fewer than 2 clients, h = 1

    Examples
    --------
    >>> round(eta_for_cap(1 / 9, 3), 6)  # (K + 1) / K
    1.333333
    >>> round(eta_for_cap(0.05, 3, honest=0.3), 4)
    1.0824

    References
    ----------
    Solved for eta from Fairis' weight (arXiv 2608.06469), with (s_0, s_j) = (1, h).
    """
    _clients(clients)
    between("honest", honest, 0, 1)
    above("share", share, 0, "no client of the family is ever excluded")
    if not share < 1 / clients:
        raise BadInput(f"share must be below 1/K = {1 / clients:g}, got {share:g} (equal weights already give 1/K)")
    if honest == 1:
        raise BadInput("honest must be below 1, got 1 (among equally biased clients each gets 1/K, whatever eta)")
    return float((1 - share - share * (clients - 1) * honest) / (1 - share * clients))


def worst_share(eta: float, clients: int, honest: float = 0.0) -> float:
    """Return the share of a client of score 1 among K - 1 clients of score ``honest``: what Fairis leaves it.

        w_0 = (eta - 1) / ((eta - 1) + (K - 1) (eta - h))

    Examples
    --------
    >>> round(worst_share(1.01, 3), 4), round(worst_share(4 / 3, 3), 4)
    (0.0049, 0.1111)

    References
    ----------
    Fairis (arXiv 2608.06469), the worst case behind its default range of eta.
    """
    _eta(eta)
    _clients(clients)
    between("honest", honest, 0, 1)
    return float((eta - 1) / ((eta - 1) + (clients - 1) * (eta - honest)))


def largest_default_eta(clients: int) -> float:
    """Return the upper end of Fairis' default range, where a fully biased client among fair ones gets 1/K^2.

        eta = (K + 1) / K

    Examples
    --------
    >>> largest_default_eta(4)
    1.25

    References
    ----------
    Fairis (arXiv 2608.06469), Eq. (2).
    """
    return (_clients(clients) + 1) / clients


def marginal(rule: Callable[..., Array], scores: ArrayLike, sizes: ArrayLike, **params: object) -> Array:
    """Return how fast each client's weight moves with its own score.

        d w_k / d s_mk = -(m_k / (eta_m - s_mk)) (M - m_k) / M^2      m_k the masses, M their sum

    Closed form for this module's rules; a rule from elsewhere is differenced (step 1e-6, one-sided at 0 and 1).

    Parameters
    ----------
    rule : a weight rule; its parameters follow by name
    scores : (K,), or (M, K) for ``joint``
    sizes : (K,)

    Returns
    -------
    the shape of ``scores``; negative or 0 for this module's rules, NaN where the weights are

    Examples
    --------
    Masses 0.5 and 1.5: -1.5 / 4 and -0.5 / 4.

    >>> marginal(fairis, [1.0, 0.0], [1, 1], eta=1.5)
    array([-0.375, -0.125])

    References
    ----------
    Fairis (arXiv 2608.06469), proofs of Theorem 5.1 and Proposition 1.
    """
    given, n = np.asarray(scores, np.float64), _sizes(sizes)
    weights = rule(given, n, **params)
    if rule in (uniform, fedavg):
        return np.zeros_like(given)
    if rule not in (fairis, fairis_n, ala, joint):
        return _differences(rule, given, n, params)
    s = np.atleast_2d(given)
    etas = np.ones(1) if rule is ala else np.array(_etas(params.get("eta", ETA), len(s)))
    power = 1.0 if rule is fairis_n else float(params.get("power", 0))  # type: ignore[arg-type]
    left = etas[:, None] - s
    # Each mass without the factor of score m, so that ALA's zero factor is never divided by.
    others = np.stack([np.delete(left, m, 0).prod(0) for m in range(len(s))]) * n**power
    total = (left[0] * others[0]).sum()
    slope = -others / (total or np.nan) * (1 - weights)
    return np.asarray(slope.reshape(given.shape))


def _differences(rule: Callable[..., Array], scores: Array, sizes: Array, params: dict[str, object]) -> Array:
    slope = np.empty_like(scores)
    for at in np.ndindex(scores.shape):
        low, high = scores.copy(), scores.copy()
        low[at], high[at] = max(scores[at] - 1e-6, 0.0), min(scores[at] + 1e-6, 1.0)
        rise = rule(high, sizes, **params)[at[-1]] - rule(low, sizes, **params)[at[-1]]
        slope[at] = rise / (high[at] - low[at])
    return slope


def _weigh(scores: ArrayLike, sizes: ArrayLike, etas: Sequence[float], power: float) -> Array:
    n = _sizes(sizes)
    mass = n**power
    for eta, row in zip(etas, _scores(scores, len(etas), len(n)), strict=True):
        mass = mass * (eta - row)
    return _shares(mass)


def _shares(mass: Array) -> Array:
    """Divide by the sum, all NaN where that is 0; sizes near the end of float64 are scaled first."""
    total = mass.sum() if mass.max() < 1e300 else np.inf
    if not np.isfinite(total):
        mass = mass / mass.max()
        total = mass.sum()
    return mass / total if total > 0 else np.full(len(mass), np.nan)


def _eta(eta: float) -> float:
    lowest = "zero" if eta == 1 else "negative"
    return above("eta", eta, 1, f"scores lie in 0..1, so {eta:g} would give a {lowest} weight")


def _etas(eta: object, scores: int) -> list[float]:
    etas = np.atleast_1d(np.asarray(eta, np.float64))
    if len(etas) not in (1, scores):
        raise BadInput(f"eta has {len(etas)} values for {scores} scores; give one per score, or one for all")
    return [_eta(float(e)) for e in np.broadcast_to(etas, scores)]


def _clients(clients: int) -> int:
    return int(above("the number of clients", clients, 1, "a share needs somebody to share with"))


def _sizes(sizes: ArrayLike) -> Array:
    n = np.asarray(sizes, np.float64)
    if n.ndim != 1 or not len(n):
        raise BadInput(f"sizes have shape {n.shape}; give one number of rows per client, for at least one client")
    if len(bad := np.flatnonzero(~((n >= 0) & np.isfinite(n)))):
        raise BadInput(f"size {n[bad[0]]:g} at position {bad[0]} is not a number of rows; give 0 or more")
    return n


def _scores(scores: ArrayLike, m: int, k: int) -> Array:
    s = np.atleast_2d(np.asarray(scores, np.float64))
    if s.shape != (m, k):
        expected = (k,) if m == 1 else (m, k)
        raise BadInput(f"scores have shape {np.shape(scores)}, expected {expected}; give one score per client")
    if len(bad := np.argwhere(np.isnan(s))):
        raise BadInput(f"the score at position {bad[0][1]} is undefined; say what it counts as, such as neutral")
    if len(bad := np.argwhere((s < 0) | (s > 1))):
        at = tuple(bad[0])
        raise BadInput(f"score {s[at]:g} at position {at[1]} lies outside 0..1; give an absolute gap or a share")
    return s
