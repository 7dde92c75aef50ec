"""What a module is made of: named tensors in the order of the flat vector, which of them train, and how it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..checks import BadInput, nearest
from ..layout import Layout
from ..rounds import stream
from ..types import Array

Build = Callable[[], nn.Module]


@dataclass(frozen=True)
class Parts:
    """A module's tensors: ``shared`` and ``private`` lie in this order in a client's flat vector of P numbers.

    ``trained``: names with a gradient; the other floats are buffers (BatchNorm's running mean) or frozen.
    ``counters``: integer buffers with their first values, never in the vector.
    """

    shared: Layout
    private: Layout
    trained: frozenset[str]
    counters: dict[str, Array]

    @property
    def whole(self) -> Layout:
        """Everything, shared first."""
        return Layout(self.shared.names + self.private.names, self.shared.shapes + self.private.shapes)

    @property
    def learned(self) -> Layout:
        """What has a gradient, in the order of ``whole``."""
        both = zip(self.whole.names, self.whole.shapes, strict=True)
        names, shapes = zip(*(pair for pair in both if pair[0] in self.trained), strict=True)
        return Layout(names, shapes)


def parts_of(module: nn.Module, shared: Sequence[str]) -> Parts:
    """Sort a module's parameters and persistent buffers into shared and private ones.

    Raises
    ------
    BadInput
        If ``shared`` names a tensor that the module does not have.
    """
    once = {name for name, _ in module.named_parameters()} | {name for name, _ in module.named_buffers()}
    state = {n: t for n, t in module.state_dict(keep_vars=True).items() if n in once and isinstance(t, Tensor)}
    floats = {n: t for n, t in state.items() if t.is_floating_point()}
    if unknown := [n for n in shared if n not in floats]:
        raise BadInput(f"the module has no tensor {unknown[0]!r} to share; {nearest(unknown[0], floats)}")

    def layout(names: Sequence[str]) -> Layout:
        return Layout(tuple(names), tuple(tuple(floats[n].shape) for n in names))

    integers = {n: t.numpy().copy() for n, t in state.items() if n not in floats and t.dtype != torch.bool}
    chosen = set(shared)
    return Parts(
        layout([n for n in floats if n in chosen]),
        layout([n for n in floats if n not in chosen]),
        frozenset(n for n, t in floats.items() if t.requires_grad),
        integers,
    )


def layouts(build: Build, shared: Sequence[str]) -> tuple[Layout, Layout]:
    """Return the layouts of the shared (d) and of the private part (P - d) of a client's vector.

    Shapes are torch's own: a Linear weight is (out, in). Float buffers are part of it, integer buffers are not.

    Examples
    --------
    >>> both = layouts(lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), ("0.weight", "0.bias"))
    >>> both[0].names, both[0].size
    (('0.weight', '0.bias'), 8)
    >>> both[1].names, both[1].size
    (('2.weight', '2.bias'), 3)
    """
    parts = parts_of(build(), shared)
    return parts.shared, parts.private


def first_vector(build: Build, parts: Parts, seed: int, dtype: np.dtype[np.generic]) -> Array:
    """Return the module's own initialisation as one vector (P,), drawn from the stream (seed, "model").

    torch's global generator is forked, so that it stands afterwards where it stood before.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(stream(seed, "model").integers(2**62)))
        state = build().state_dict()
    return parts.whole.join({n: state[n].numpy() for n in parts.whole.names}, dtype)


def split(layout: Layout, rows: Tensor) -> dict[str, Tensor]:
    """Cut (S, P) into name -> (S, *shape), views where torch can."""
    sizes = [int(np.prod(s, dtype=np.int64)) for s in layout.shapes]
    pieces = zip(layout.names, torch.split(rows, sizes, 1), layout.shapes, strict=True)
    return {name: piece.reshape(len(rows), *shape) for name, piece, shape in pieces}
