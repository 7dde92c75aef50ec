"""Named arrays as one flat vector and back, in a fixed order, checked by name and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from .checks import BadInput
from .types import Array


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each named array lies in a flat vector of ``size`` numbers.

    Examples
    --------
    >>> layout = Layout(("w", "b"), ((2, 2), (2,)))
    >>> layout.size
    6
    >>> vector = layout.join({"b": np.zeros(2), "w": np.ones((2, 2))})
    >>> vector
    array([1., 1., 1., 1., 0., 0.])
    >>> layout.split(vector)["w"].shape
    (2, 2)
    >>> layout.join({"w": np.ones((2, 3)), "b": np.zeros(2)})
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: 'w' has shape (2, 3), expected (2, 2); send the arrays of the model that was broadcast
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Numbers in the flat vector."""
        return sum(prod(s) for s in self.shapes)

    def join(self, arrays: Mapping[str, Array], dtype: np.dtype[np.generic] | None = None) -> Array:
        """Flatten ``arrays`` in the order of ``names``; a missing, unknown or misshapen one is a ``BadInput``."""
        if missing := [n for n in self.names if n not in arrays]:
            raise BadInput(f"{missing[0]!r} is missing; send the arrays of the model that was broadcast")
        if unknown := [n for n in arrays if n not in self.names]:
            raise BadInput(f"{unknown[0]!r} is no array of the model; send the arrays of the model that was broadcast")
        for name, shape in zip(self.names, self.shapes, strict=True):
            got = np.shape(arrays[name])
            if got != shape:
                raise BadInput(
                    f"{name!r} has shape {got}, expected {shape}; send the arrays of the model that was broadcast"
                )
        flat = [np.asarray(arrays[n]).ravel() for n in self.names]
        return np.concatenate(flat).astype(dtype, copy=False) if flat else np.zeros(0, dtype)

    def split(self, vector: Array) -> dict[str, Array]:
        """Cut the last axis of ``vector`` (..., size) into named arrays (..., *shape)."""
        out: dict[str, Array] = {}
        at = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            out[name] = vector[..., at : at + prod(shape)].reshape(*vector.shape[:-1], *shape)
            at += prod(shape)
        return out
