"""FinP's aggregation by distances: a model as far from one client as from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import extra
from ..types import Aggregator, Array, Reports
from ._sums import BLOCK, check_clip, clip_factors, move, norms

LONGEST = 1e100
"""Beyond this a squared distance may leave the range of a float."""


def equidistant(*, published: bool = False, clip: float | None = None) -> Aggregator:
    """Weigh the clients so that the new model lies equally far from every client's own, as nearly as it can.

        minimise sum_k (d_k - mean d)^2,   d_k = ||Delta_k - sum_j w_j Delta_j||,   w >= 0, sum_j w_j = 1

    The distance stands for the client's privacy risk: nobody's own model should be nearer to the global one. Sizes and
    scores play no part. One client has weight 1; where all updates are equal every weight does, and they are equal.

    Parameters
    ----------
    published : as the authors do it: a PCA of all models, fitted anew at every trial of the weights, and SLSQP with
        numerical derivatives from 0.1 each; else the same distances from one Gram matrix of the updates, with their
        derivative. Both find the same weights; ``benchmarks/aggregation.py`` has the time of each
    clip : C, as for ``weighted``; distances are those of the clipped updates

    Returns
    -------
    Aggregator with the info of ``weighted``, less its scores, and the ``distances`` (K,). Where the search does not
    converge the round is weighted equally, and says so

    Raises
    ------
    BadInput : a clip <= 0; scipy is not installed, or scikit-learn if published

    Examples
    --------
    Three corners of a right triangle: the middle of the longest side is the point between them.

    >>> reports = Reports(np.arange(3), np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]), np.ones(3))
    >>> delta, info, _ = equidistant().step(reports, {})
    >>> delta.round(4) + 0.0, info["weights"].round(4) + 0.0, info["distances"].round(4)
    (array([1.5, 2. ]), array([0. , 0.5, 0.5]), array([2.5, 2.5, 2.5]))

    References
    ----------
    FinP (arXiv 2502.17748), PCA aggregation.

    Notes
    -----
    K + 1 points span K dimensions at most, so a PCA with K components keeps all distances and is not needed. The point
    that is equally far from all is the centre of the sphere through them, where it has weights >= 0; it lies nearer to
    long updates than the mean does, so the rule favours outliers. Ours stops at 1e-12 of the mean square distance, the
    published form at 1e-6 of whatever unit the model has.
    """
    check_clip(clip)
    extra("scipy.optimize", "privacy")
    if published:
        extra("sklearn.decomposition", "privacy")

    def step(reports: Reports, state: Any) -> tuple[Array, dict[str, Any], Any]:
        lengths = norms(reports.updates)
        factors = clip_factors(lengths, clip)
        k = len(lengths)
        weights, distances, notes = np.full(k, 1 / k), np.full(k, np.nan), {}
        if (lengths * factors).max(initial=0.0) > LONGEST:
            notes = {"note": f"an update is longer than {LONGEST:g}: weighted equally"}
        else:
            gram = _gram(reports.updates, factors)
            if np.trace(gram) > 1e-24 * np.square(lengths * factors).sum():  # else all are equal, but for rounding
                found = _search_by_pca(reports.updates, factors) if published else _search(gram)
                if found.success:
                    weights = np.clip(found.x, 0, 1) / np.clip(found.x, 0, 1).sum()
                else:
                    notes = {"note": f"no weights found ({found.message}): weighted equally"}
            distances = _distances(weights, gram)
        delta, info = move(reports, weights, clip)
        return delta, info | {"distances": distances} | notes, state

    return Aggregator(dict, step)


def _gram(updates: Array, factors: Array) -> Array:
    """Return the inner products (K, K) of the clipped updates about their mean, which no distance depends on."""
    gram = np.zeros((len(updates), len(updates)))
    for start in range(0, updates.shape[1], BLOCK):
        rows = updates[:, start : start + BLOCK] * factors[:, None]
        rows -= rows.mean(0)
        gram += rows @ rows.T
    return gram


def _distances(weights: Array, gram: Array) -> Array:
    across = gram @ weights
    return np.asarray(np.sqrt(np.maximum(gram.diagonal() - 2 * across + weights @ across, 0)))


def _search(gram: Array) -> Any:
    gram = gram / gram.diagonal().mean()

    def spread(weights: Array) -> tuple[float, Array]:
        """Return sum_k e_k^2, e_k = d_k - mean d, and its gradient 2 sum_k (e_k / d_k) (G w - G_k)."""
        d = _distances(weights, gram)
        e = d - d.mean()
        pull = np.divide(e, d, out=np.zeros_like(d), where=d > 0)
        return float(e @ e), 2 * (pull.sum() * (gram @ weights) - gram @ pull)

    return _slsqp(spread, np.full(len(gram), 1 / len(gram)), jac=True, options={"ftol": 1e-12, "maxiter": 1000})


def _search_by_pca(updates: Array, factors: Array) -> Any:
    pca = extra("sklearn.decomposition", "privacy").PCA
    models = updates * factors[:, None]
    fit = pca(min(models.shape), svd_solver="full")

    def spread(weights: Array) -> float:
        new, *own = fit.fit_transform(np.vstack([weights @ models, models]))
        d = np.sqrt(np.square(np.array(own) - new).sum(1))
        return float(np.square(d - d.mean()).sum())

    return _slsqp(spread, np.full(len(models), 0.1))


def _slsqp(spread: Callable[[Array], Any], first: Array, **options: Any) -> Any:
    whole = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    minimize = extra("scipy.optimize", "privacy").minimize
    return minimize(spread, first, method="SLSQP", bounds=[(0, 1)] * len(first), constraints=whole, **options)
