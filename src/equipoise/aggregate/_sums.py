"""The one weighted sum of the house, lengths and the clip; every step moves the model through here."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import above
from ..types import Array, Reports

BLOCK = 1 << 16


def mean(weights: Array, updates: Array) -> Array:
    """Return the weighted sum of the rows, in float64 and in the order of the rows.

        delta = sum_k w_k Delta_k

    Every column is added by itself, so the bits depend neither on how columns are cut into blocks nor on a BLAS.

    Parameters
    ----------
    weights : (K,), may be negative
    updates : (K, d), any float type; no float64 copy of it is made

    Returns
    -------
    (d,) in the type of ``updates``

    Examples
    --------
    >>> mean(np.array([0.25, 0.75]), np.array([[1.0, 2.0], [5.0, 6.0]]))
    array([4., 5.])
    """
    delta = np.empty(updates.shape[1], updates.dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum that is not finite is refused where the round is closed
        for start in range(0, updates.shape[1], BLOCK):
            block = updates[:, start : start + BLOCK]
            total = np.zeros(block.shape[1])
            for weight, row in zip(weights, block, strict=True):
                total += weight * row.astype(np.float64)
            delta[start : start + BLOCK] = total
    return delta


def norms(updates: Array) -> Array:
    """Return the length of every row, (K, d) -> (K,), in float64; also where its square would overflow.

    Examples
    --------
    >>> norms(np.array([[3.0, 4.0], [3e200, 4e200]]))
    array([5.e+000, 5.e+200])
    """
    lengths = np.zeros(len(updates))
    for k, update in enumerate(updates):
        row = update.astype(np.float64)
        largest = np.abs(row).max(initial=0.0)
        scale = largest if largest > 1e150 else 1.0
        with np.errstate(over="ignore"):  # a length beyond every float is infinite, and its clip factor 0
            lengths[k] = scale * np.sqrt(np.square(row / scale).sum())
    return lengths


def clip_factors(lengths: Array, clip: float | None) -> Array:
    """Return what every update is multiplied by so that none is longer than ``clip``; 1 everywhere without a clip.

        min(1, C / ||Delta_k||)

    Examples
    --------
    >>> clip_factors(np.array([0.0, 2.0, 8.0]), 4.0)
    array([1. , 1. , 0.5])
    """
    if clip is None:
        return np.ones(len(lengths))
    return np.asarray(clip / np.maximum(lengths, clip))


def move(reports: Reports, weights: Array, clip: float | None) -> tuple[Array, dict[str, Any]]:
    """Return the clipped weighted sum, and what there is to say about lengths."""
    lengths = norms(reports.updates)
    factors = clip_factors(lengths, clip)
    info: dict[str, Any] = {"weights": weights, "norms": lengths, "clipped": factors < 1, "clip_norm": clip}
    if clip is not None:
        info["bounds"] = np.abs(weights) * clip
    return mean(weights * factors, reports.updates), info


def check_clip(clip: float | None) -> None:
    """Refuse a clip that lets nothing in."""
    if clip is not None:
        above("clip", clip, 0, "no update at all would enter; leave it out to clip nothing")
