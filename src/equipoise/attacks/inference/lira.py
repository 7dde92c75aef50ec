"""LiRA: membership inference by likelihood ratio, against shadow models with and without the record."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...checks import BadInput
from ...metrics import mean
from ...rounds import stream
from ...types import Array

__all__ = ["lira_offline", "lira_online", "logit_confidence", "shadow_rows"]

LARGEST_LOSS = 700.0
"""A confidence below exp(-700) is read as that; it is next to the smallest that a float holds."""

SMALLEST_LOSS = float(np.finfo(np.float64).eps)
"""A loss below this one cannot be told from it beside a confidence of 1."""

SMALLEST_VARIANCE = 1e-12
"""Shadows that agree fully have this variance, so that a ratio exists."""


def logit_confidence(losses: Any) -> Array:
    """Turn cross-entropies into logits of the confidence in the true label, which are nearly normal.

        phi = log(p / (1 - p)) = -log(exp(loss) - 1),  p = exp(-loss)

    Parameters
    ----------
    losses : >= 0, any shape; NaN stays NaN

    Returns
    -------
    finite, within about -700..36, falling in the loss

    Examples
    --------
    >>> logit_confidence([0.0, 0.1, np.log(2), 50.0, np.inf]).round(2) + 0.0
    array([ 36.04,   2.25,   0.  , -50.  , -700.  ])
    """
    loss = np.clip(np.asarray(losses, np.float64), SMALLEST_LOSS, LARGEST_LOSS)
    return np.asarray(-loss - np.log(-np.expm1(-loss)))


def lira_online(observed: Any, inside: Any, outside: Any, *, fixed_variance: bool = True) -> Array:
    """Score records by the likelihood ratio of having been trained on.

        s = log N(phi; mean_in, var_in) - log N(phi; mean_out, var_out)

    Parameters
    ----------
    observed : (n,) ``logit_confidence`` of the attacked model on each record
    inside, outside : (m, n) that of shadow models which trained on the record, and which did not; NaN elsewhere. m may
        differ
    fixed_variance : one variance for all records, inside and outside each; else one for each record, which needs many
        shadows (the source has it pay from about 64 on)

    Returns
    -------
    (n,) higher = a surer member; NaN where a mean or a variance has no shadow to come from

    Raises
    ------
    BadInput
        Shapes do not fit, or a value is infinite.

    Examples
    --------
    >>> inside, outside = [[4.0, 4.0], [6.0, 6.0]], [[0.0, 0.0], [2.0, 2.0]]
    >>> lira_online([5.0, 1.0], inside, outside)
    array([ 4., -4.])

    References
    ----------
    Carlini, Chien, Nasr, Song, Terzis and Tramer, Membership inference attacks from first principles, S&P 2022
    (arXiv 2112.03570).

    Notes
    -----
    The fixed variance is that of the shadows around each record's own mean, pooled over the records, without bias. The
    authors' code takes the variance of all values about one mean, which also holds how much the records differ.
    """
    phi, (of_in, of_out) = _checked(observed, inside=inside, outside=outside)
    return _log_normal(phi, of_in, fixed_variance) - _log_normal(phi, of_out, fixed_variance)


def lira_offline(observed: Any, outside: Any, *, fixed_variance: bool = True) -> Array:
    """Score records by how far they are better known than to models that never trained on them.

        s = (phi - mean_out) / std_out

    Parameters
    ----------
    observed, outside, fixed_variance : as in ``lira_online``

    Returns
    -------
    (n,) higher = a surer member; NaN where there is no shadow

    Examples
    --------
    >>> lira_offline([3.0, 1.0], [[0.0, 0.0], [2.0, 2.0]]).round(3)
    array([1.414, 0.   ])

    References
    ----------
    Carlini et al. (arXiv 2112.03570).

    Notes
    -----
    The source scores by P(N(mean_out, var_out) <= phi), which rises with s and rounds to 1 for the surest members. The
    order, and with it every figure, is the same; s keeps it.
    """
    phi, (of_out,) = _checked(observed, outside=outside)
    return np.asarray((phi - mean(of_out)) / np.sqrt(_variance(of_out, fixed_variance)))


def shadow_rows(rows: int, shadows: int, *, seed: int, client: int = 0) -> Array:
    """Say which rows each shadow model trains on: every row in half of the shadows.

    Returns
    -------
    (shadows, rows) bool; with an odd number of shadows a row is in the smaller half

    Raises
    ------
    BadInput
        Fewer than two shadows: a row would be inside or outside of none.

    Examples
    --------
    >>> inside = shadow_rows(5, 4, seed=1)
    >>> inside.shape, inside.sum(0)
    ((4, 5), array([2, 2, 2, 2, 2]))
    """
    if shadows < 2:
        raise BadInput(f"{shadows} shadow models cannot be with and without a record; take at least 2")
    order = np.tile(np.arange(shadows)[:, None], (1, rows))
    return np.asarray(stream(seed, "shadows", 0, client).permuted(order, axis=0) < shadows // 2)


def _log_normal(phi: Array, shadows: Array, fixed: bool) -> Array:
    """Log density of each record under its shadows, without the constant that a ratio cancels."""
    variance = _variance(shadows, fixed)
    return np.asarray(-((phi - mean(shadows)) ** 2) / (2 * variance) - np.log(variance) / 2)


def _variance(shadows: Array, fixed: bool) -> Array:
    """(n,) variance without bias of the shadows (n, m) around each record's mean; NaN where nothing can be said."""
    known = ~np.isnan(shadows)
    squares = np.sum((shadows - mean(shadows)[:, None]) ** 2, 1, where=known)
    free = (known.sum(1) - 1).clip(min=0)
    if fixed:
        squares, free = np.full_like(squares, squares.sum()), np.full_like(free, free.sum())
    variance = np.divide(squares, free, out=np.full(len(squares), np.nan), where=free > 0)
    return np.asarray(np.maximum(variance, SMALLEST_VARIANCE))


def _checked(observed: Any, **shadows: Any) -> tuple[Array, list[Array]]:
    """Return phi (n,) and the shadows (n, m) of each kind."""
    phi = np.asarray(observed, np.float64)
    tables = {name: np.asarray(table, np.float64) for name, table in shadows.items()}
    for name, table in tables.items():
        if table.ndim != 2 or table.shape[1:] != phi.shape:
            raise BadInput(
                f"{name} has shape {table.shape}, expected (shadows, {len(phi)}); NaN marks what is not there"
            )
    for name, table in {"observed": phi, **tables}.items():
        if np.isinf(table).any():
            raise BadInput(f"{name} holds an infinite value; use logit_confidence, which bounds them")
    return phi, [table.T for table in tables.values()]
