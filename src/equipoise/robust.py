"""Robust rules: (K, d) updates -> (d,), without sizes or scores, so that a few hostile rows cannot drag the result.

They guard against updates that lie apart; a fairness poisoner within the normal range is for weight rules and clips.
Rows come sorted by client id, and ties go to the smaller id. Too few clients for a rule is a ``BadInput``.
A rule that takes the mean of some rows has a companion ``<rule>_choice`` that returns their positions.
"""

from __future__ import annotations

import numpy as np

from .checks import BadInput, between
from .types import Array

__all__ = ["coordinate_median", "geometric_median", "krum", "multi_krum", "trimmed_mean"]


def coordinate_median(updates: Array) -> Array:
    """Return the median of every coordinate by itself; holds while fewer than half of the rows are hostile.

        delta_i = median_k Delta_ki

    Parameters
    ----------
    updates : (K, d), K >= 1; for even K the mean of the middle two

    Returns
    -------
    (d,)

    Examples
    --------
    >>> coordinate_median(np.array([[1.0, 9.0], [2.0, 0.0], [99.0, 8.0]]))
    array([2., 8.])

    References
    ----------
    Yin et al., Byzantine-robust distributed learning, ICML 2018.
    """
    return np.asarray(np.median(_matrix(updates), axis=0), updates.dtype)


def trimmed_mean(updates: Array, *, trim: float | None = None, f: int | None = None) -> Array:
    """Return the mean of every coordinate without its smallest and largest values.

        delta_i = mean of Delta_ki without the c smallest and c largest;   c = f, or max(1, floor(trim K))

    Parameters
    ----------
    updates : (K, d), K > 2 c
    trim : share cut at *each* end, above 0 and below 0.5; 0.2 if neither is given
    f : number cut at each end, >= 1, in place of trim

    Returns
    -------
    (d,)

    Raises
    ------
    BadInput : trim or f out of range, both given, too few clients

    Examples
    --------
    At least one is cut at each end, so that few clients never make it the plain mean in silence.

    >>> trimmed_mean(np.array([[1.0], [3.0], [100.0]]), trim=0.2)
    array([3.])

    References
    ----------
    Yin et al., Byzantine-robust distributed learning, ICML 2018.
    """
    u = _matrix(updates)
    k = len(u)
    cut = _cut(k, trim, f)
    if k <= 2 * cut:
        needed = 2 * cut + 1
        raise BadInput(f"cutting {cut} at each end needs n >= {needed} clients, got {k}; cut less or ask more clients")
    return np.asarray(np.sort(u, axis=0)[cut : k - cut].mean(0, dtype=np.float64), updates.dtype)


def krum(updates: Array, *, f: int = 1) -> Array:
    """Return the one row that lies closest to its nearest others.

        argmin_k  sum of ||Delta_k - Delta_j||^2 over the K - f - 2 nearest others j

    Parameters
    ----------
    updates : (K, d), K >= 2 f + 3
    f : number of hostile rows to withstand, >= 0

    Returns
    -------
    (d,), one of the rows; of equals that of the smallest client id

    Raises
    ------
    BadInput : K < 2 f + 3

    Examples
    --------
    Scores 5, 2, 5, 64.01, 65.62.

    >>> krum(np.array([[0.0], [1.0], [2.0], [10.0], [10.1]]), f=1)
    array([1.])

    References
    ----------
    Blanchard et al., Machine learning with adversaries, NeurIPS 2017.

    Notes
    -----
    Distances are to *other* rows, by differences, so that one huge row cannot cancel their digits; the cost is K^2 d.
    """
    return _mean_of_rows(updates, krum_choice(updates, f=f))


def multi_krum(updates: Array, *, f: int = 1, keep: int | None = None) -> Array:
    """Return the mean of the rows that Krum likes best.

        delta = mean of the ``keep`` rows with the smallest Krum scores

    Parameters
    ----------
    updates : (K, d), K >= 2 f + 3
    f : number of hostile rows to withstand, >= 0
    keep : 1 (Krum) .. K - f; K - f - 2 if not given, the most for which resilience is proven

    Returns
    -------
    (d,)

    Raises
    ------
    BadInput : K < 2 f + 3, keep out of range

    Examples
    --------
    Scores 5, 2, 5, 64.01, 65.62.

    >>> multi_krum(np.array([[0.0], [1.0], [2.0], [10.0], [10.1]]), f=1, keep=3)
    array([1.])

    References
    ----------
    Blanchard et al., NeurIPS 2017; El Mhamdi et al., The hidden vulnerability of distributed learning, ICML 2018.
    """
    return _mean_of_rows(updates, multi_krum_choice(updates, f=f, keep=keep))


def krum_choice(updates: Array, *, f: int = 1) -> Array:
    """Return the position of the row that ``krum`` takes, (1,)."""
    return multi_krum_choice(updates, f=f, keep=1)


def multi_krum_choice(updates: Array, *, f: int = 1, keep: int | None = None) -> Array:
    """Return the positions of the rows that ``multi_krum`` takes, (keep,), best first.

    Examples
    --------
    >>> multi_krum_choice(np.array([[0.0], [1.0], [2.0], [10.0], [10.1]]), f=1, keep=3)
    array([1, 0, 2])
    """
    scores = krum_scores(updates, f=f)
    most = len(scores) - f
    keep = most - 2 if keep is None else keep
    if not 1 <= keep <= most:
        raise BadInput(f"keep must lie in 1..n - f = {most}, got {keep} (beyond it a hostile row is surely kept)")
    return np.argsort(scores, kind="stable")[:keep]


def krum_scores(updates: Array, *, f: int = 1) -> Array:
    """Return every row's sum of squared distances to its K - f - 2 nearest others, (K, d) -> (K,)."""
    u = _matrix(updates)
    k = len(u)
    if f != int(f) or f < 0:
        raise BadInput(f"f must be a number of clients, 0 or more, got {f:g}")
    if k < 2 * f + 3:
        raise BadInput(f"Krum needs n >= 2f + 3 = {2 * f + 3} clients, got {k}; lower f or ask more clients")
    square = np.full((k, k), np.inf)
    with np.errstate(over="ignore"):  # a row out of float range is infinitely far, and never chosen
        for i in range(k - 1):
            # Differences, not a Gram matrix: one huge row must not cancel the digits of all the others.
            apart = u[i + 1 :].astype(np.float64) - u[i]
            square[i, i + 1 :] = square[i + 1 :, i] = np.einsum("kd,kd->k", apart, apart)
        return np.asarray(np.sort(square, axis=1)[:, : k - f - 2].sum(1))


def geometric_median(updates: Array, *, tolerance: float = 1e-9, steps: int = 1000) -> Array:
    """Return the point with the smallest sum of distances to the rows; moves with every shift of them.

        argmin_y  sum_k ||Delta_k - y||

    Parameters
    ----------
    updates : (K, d), K >= 1; the point is unique unless all rows lie on one line and K is even
    tolerance : above 0; the sum of distances is within tolerance * (twice the largest distance) of the smallest
    steps : after so many (some ten are usual) the last point is returned, short of the tolerance

    Returns
    -------
    (d,); holds while fewer than half of the rows are hostile

    Examples
    --------
    The corner that sees the others under 120 degrees or more is itself the median.

    >>> geometric_median(np.array([[0.0, 0.0], [4.0, 0.1], [-4.0, 0.1]]))
    array([0., 0.])

    References
    ----------
    Vardi and Zhang, PNAS 97 (2000); as an aggregator: Pillutla et al., Robust aggregation for federated learning, 2022.

    Notes
    -----
    Weiszfeld's step, with theirs off a row, or Newton's where that comes lower. It stops at a row that is the median,
    or when the gradient, the sum of the unit vectors towards the rows, is shorter than ``tolerance``.
    """
    u = _matrix(updates)
    between("tolerance", tolerance, np.finfo(np.float64).eps, 1)
    # A shift to the middle of the crowd first, so that neither a common offset nor one far row costs digits. Distances
    # then survive the change to the at most K coordinates of the space that the rows span.
    shift = np.median(u, axis=0).astype(np.float64)
    basis, coordinates = np.linalg.qr((u - shift).T)
    points = np.asarray(coordinates).T
    largest = np.abs(points).max(initial=0.0)
    if largest == 0:
        return np.asarray(shift, updates.dtype)
    points = points / largest
    y = points.mean(0)
    for _ in range(steps):
        y, row = _closer(points, y, tolerance)
        if row == STAY:
            break
        if row >= 0:
            return np.asarray(u[row], updates.dtype)
    return np.asarray(shift + basis @ (y * largest), updates.dtype)


STAY, MOVE = -1, -2
SAME = 1e-12
"""Distances, of points scaled to 1, below which two points are one: the last digits must not tell them apart."""


def _closer(points: Array, y: Array, tolerance: float) -> tuple[Array, int]:
    """Return a point of smaller distance sum and ``MOVE``; or ``y`` and ``STAY``, or the row that is the median."""
    away, distance = _distances(points, y)
    nearest = int(distance.argmin())
    if distance[nearest] > SAME and _length((away / distance[:, None]).sum(0)) <= tolerance:
        return y, STAY
    others, apart = _distances(points, points[nearest])
    same = apart <= SAME
    pull = _length((others[~same] / apart[~same, None]).sum(0))
    if pull <= same.sum() + tolerance:
        return y, nearest
    here = distance <= SAME
    inverse = np.where(here, 0.0, 1 / np.where(here, 1.0, distance))
    weiszfeld = inverse @ points / inverse.sum()
    if here.any():
        stay = here.sum() / pull
        return (1 - stay) * weiszfeld + stay * y, MOVE
    ridge = (1 + 1e-14) * inverse.sum() * np.eye(len(y))  # rows on one line leave the Hessian singular
    newton = y + np.linalg.solve(ridge - (away * inverse[:, None] ** 3).T @ away, inverse @ away)
    best = min((newton, weiszfeld), key=lambda z: _distances(points, z)[1].sum())
    return best, MOVE


def _distances(points: Array, y: Array) -> tuple[Array, Array]:
    away = points - y
    return away, np.sqrt(np.square(away).sum(1))


def _length(vector: Array) -> float:
    return float(np.sqrt(np.square(vector).sum()))


def _mean_of_rows(updates: Array, at: Array) -> Array:
    return np.asarray(updates[np.sort(at)].mean(0, dtype=np.float64), updates.dtype)


def _cut(k: int, trim: float | None, f: int | None) -> int:
    if f is not None:
        if trim is not None:
            raise BadInput(f"trim {trim:g} and f {f:g} were both given; give one of them")
        if f != int(f) or f < 1:
            raise BadInput(f"f must be a number of clients, 1 or more, got {f:g} (cutting none is the plain mean)")
        return int(f)
    trim = 0.2 if trim is None else trim
    if not trim < 0.5:
        raise BadInput(f"trim must be below 0.5, got {trim:g} (it is the share cut at each end)")
    if not trim > 0:
        raise BadInput(f"trim must be above 0, got {trim:g} (cutting none is the plain mean)")
    return max(1, int(trim * k + 1e-9))


def _matrix(updates: Array) -> Array:
    u = np.asarray(updates)
    if u.ndim != 2 or not len(u):
        raise BadInput(f"updates have shape {u.shape}; give one row per client, for at least one client")
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(u.sum(1)).all() and len(bad := np.flatnonzero(~np.isfinite(u).all(1))):
            raise BadInput(f"the update at position {bad[0]} is not finite; reject that client first")
    return u
