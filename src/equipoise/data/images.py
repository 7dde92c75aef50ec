"""What readers of images share."""

from __future__ import annotations

import math

import numpy as np

from ..types import Array


def pixels(images: Array, top: float = 255) -> Array:
    """Lay images (n, ...) with values 0..top flat, as (n, f) float32 in 0..1.

    Examples
    --------
    >>> pixels(np.array([[[0, 51], [102, 255]]], np.uint8))
    array([[0. , 0.2, 0.4, 1. ]], dtype=float32)
    """
    flat = images.reshape(len(images), math.prod(images.shape[1:])).astype(np.float32)
    flat /= np.float32(top)
    return flat
