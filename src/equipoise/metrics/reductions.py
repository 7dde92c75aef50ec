"""Reductions: many values to one number, over groups or over clients; (..., m) -> (...) along the last axis.

NaN stands for "undefined" and is left out, never read as 0. A figure that compares values (gap, ratio, dispersion)
needs two of them and is NaN with fewer; lowest, highest and mean need one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import BadInput
from ..types import Array

__all__ = [
    "coefficient_of_variation",
    "gap",
    "gini",
    "highest",
    "jain",
    "mean",
    "mean_absolute_difference",
    "ratio",
    "sen_welfare",
    "signed_gap",
    "worst",
]


def gap(values: Any) -> Array:
    """Largest minus smallest of the defined values, unsigned.

    Examples
    --------
    >>> gap([[0.2, 0.7, np.nan], [0.2, np.nan, np.nan]])
    array([0.5, nan])
    """
    v, ok = _defined(values)
    return _where(ok.sum(-1) >= 2, _max(v, ok) - _min(v, ok))


def signed_gap(values: Any, reference: int) -> Array:
    """Value that differs most from the reference's, minus the reference's: negative = the other one has less.

    Parameters
    ----------
    values : (..., m)
    reference : position of the reference in the last axis; with two values the result is the other minus it

    Returns
    -------
    (...); NaN where the reference or all others are undefined; of two equally far values the lower one counts

    Examples
    --------
    >>> signed_gap([[0.2, 0.7], [0.9, 0.7], [0.9, np.nan]], reference=1)
    array([-0.5,  0.2,  nan])
    """
    v, ok = _defined(values)
    if not 0 <= reference < v.shape[-1]:
        raise BadInput(f"reference must lie in 0..{v.shape[-1] - 1}, got {reference}; name one of the groups")
    ok &= np.arange(v.shape[-1]) != reference
    here = v[..., reference]
    up, down = _max(v, ok) - here, _min(v, ok) - here
    return _where(ok.any(-1) & ~np.isnan(here), np.where(up > -down, up, down))


def ratio(values: Any) -> Array:
    """Smallest over largest of the defined values, for values >= 0; 0/0 is NaN.

    Examples
    --------
    >>> ratio([[0.3, 0.6], [0.0, 0.6], [0.0, 0.0]])
    array([0.5, 0. , nan])
    """
    v, ok = _defined(values)
    return _divide(_min(v, ok), _max(v, ok), ok.sum(-1) >= 2)


def worst(values: Any) -> Array:
    """Smallest of the defined values, for figures where high is good.

    Examples
    --------
    >>> worst([0.9, np.nan, 0.7]).item()
    0.7
    """
    v, ok = _defined(values)
    return _where(ok.any(-1), _min(v, ok))


def highest(values: Any) -> Array:
    """Largest of the defined values: the worst one where high is bad, such as a risk.

    Examples
    --------
    >>> highest([0.9, np.nan, 0.7]).item()
    0.9
    """
    v, ok = _defined(values)
    return _where(ok.any(-1), _max(v, ok))


def mean(values: Any) -> Array:
    """Plain mean of the defined values; say beside it over how many.

    Examples
    --------
    >>> mean([0.5, np.nan, 0.7]).item()
    0.6
    """
    v, ok = _defined(values)
    return _divide(_sum(v, ok), ok.sum(-1), ok.any(-1))


def coefficient_of_variation(values: Any) -> Array:
    """Return population standard deviation (ddof 0) over mean; NaN where the mean is 0.

    Examples
    --------
    >>> coefficient_of_variation([0.2, 0.4, 0.6]).round(4).item()
    0.4082
    """
    v, ok = _defined(values)
    m = mean(v)
    spread = np.sqrt(_divide(_sum((v - m[..., None]) ** 2, ok), ok.sum(-1), ok.any(-1)))
    return _divide(spread, m, ok.sum(-1) >= 2)


def jain(values: Any) -> Array:
    """Jain's fairness index, (sum x)^2 / (m sum x^2) = 1 / (1 + CoV^2), in 1/m..1 for values >= 0; NaN if all are 0.

    Where the values are averages over rounds, note that a mean of indices is not the index of means.

    Examples
    --------
    >>> jain([[0.2, 0.4, 0.6, np.nan], [1, 0, 0, 0]]).round(4)
    array([0.8571, 0.25  ])
    """
    v, ok = _defined(values)
    # A common scale cancels out, and keeps tiny values from vanishing when they are squared.
    scale = _max(np.abs(v), ok)
    v = np.divide(v, scale[..., None], out=np.zeros_like(v), where=ok & (scale[..., None] > 0))
    return _divide(_sum(v, ok) ** 2, ok.sum(-1) * _sum(v**2, ok), ok.sum(-1) >= 2)


def mean_absolute_difference(values: Any) -> Array:
    """Mean distance of two values drawn with replacement, in the unit of the values.

        MAD = sum_ij |x_i - x_j| / m^2

    Examples
    --------
    >>> mean_absolute_difference([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]).round(4)
    array([0.    , 0.4444])

    Notes
    -----
    Nothing is divided by the mean, so it exists where all values are 0, unlike the Gini coefficient, which is
    MAD / (2 mean).
    """
    v, ok = _defined(values)
    m = ok.sum(-1)
    # Undefined values sort to the end; the i-th smallest enters the sum of differences 2 (2i - m - 1) times.
    ordered = np.sort(np.where(ok, v, np.inf), -1)
    place = np.arange(1, v.shape[-1] + 1)
    times = 2 * (2 * place - m[..., None] - 1)
    inside = place <= m[..., None]
    return _divide(_sum(np.where(inside, ordered, 0.0) * times, inside), m**2, m >= 2)


def gini(values: Any) -> Array:
    """Gini coefficient, sum_ij |x_i - x_j| / (2 m^2 mean), in 0..1-1/m for values >= 0; NaN where the mean is 0.

    Examples
    --------
    >>> gini([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]).round(4)
    array([0.    , 0.6667])
    """
    return _divide(mean_absolute_difference(values), 2 * mean(values), True)


def sen_welfare(values: Any) -> Array:
    """Sen's welfare, mean (1 - Gini), for values where high is good; NaN where the mean is 0.

    Of a risk it takes what is left of it: FinP applies it to ``1 - risk``.

    Examples
    --------
    >>> sen_welfare([[0.5, 0.5], [1.0, 0.0]])
    array([0.5 , 0.25])

    References
    ----------
    Sen, Real national income, Review of Economic Studies, 1976.
    """
    return np.asarray(mean(values) * (1 - gini(values)))


def _defined(values: Any) -> tuple[Array, Array]:
    v = np.asarray(values, np.float64)
    if v.ndim < 1:
        raise BadInput("one number cannot be reduced; pass an array with one value per group or client")
    return v, ~np.isnan(v)


def _max(v: Array, ok: Array) -> Array:
    return np.asarray(v.max(-1, where=ok, initial=-np.inf))


def _min(v: Array, ok: Array) -> Array:
    return np.asarray(v.min(-1, where=ok, initial=np.inf))


def _sum(v: Array, ok: Array) -> Array:
    return np.asarray(v.sum(-1, where=ok))


def _where(ok: Any, v: Array) -> Array:
    return np.where(ok, v, np.nan)


def _divide(a: Any, b: Any, ok: Any) -> Array:
    b = np.asarray(b, np.float64)
    return np.asarray(np.divide(a, b, out=np.full(b.shape, np.nan), where=ok & (b != 0)))
