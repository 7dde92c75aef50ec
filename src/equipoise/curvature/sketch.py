"""Eigenvalue and trace of a Hessian H with the help of a rough B'B that costs little: B (S, m, P), m rows a slot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from .lanczos import Pair, Product, combined, end, inner, random_start, top_eigenpair, unit, whole_lines
from .traces import Trace, hutchinson

roughly = partial(top_eigenpair, budget=30, tolerance=1e-2)
"""Lanczos on the rough matrix, whose products cost next to nothing."""


def times(rough: Tensor, v: Tensor) -> Tensor:
    """Return ``B'B v``, (S, P)."""
    size = v.shape[1]
    rows = whole_lines(rough)
    return combined(rows, inner(rows, whole_lines(v)))[:, :size]


def top_by_sketch(
    product: Product,
    rough: Tensor,
    start: Tensor,
    keys: Sequence[tuple[int, int, int]],
    *,
    budget: int = 3,
    tolerance: float = 0.05,
) -> Pair:
    """Return the top eigenpairs of H as far as a few products show it, and of ``B'B`` beyond them.

        M = H on span V,   B'B across it:   M = VV'H + HVV' - VV'HVV' + (1 - VV') B'B (1 - VV')

    V holds the vectors that were multiplied by H. The top eigenvector of M is multiplied next, and joins V. With more
    products the value tends to that of H, however rough B'B is.

    Parameters
    ----------
    product : (S, P) -> (S, P), of H
    start : (S, P), the first of V; where it is 0, the top eigenvector of B'B takes its place
    keys : (seed, round, client id) of each slot
    budget : products at most
    tolerance : a slot stops where M's eigenvalue exceeds what H has within V, which is certain, by less than this share

    Returns
    -------
    value, vector, and as error that excess, of which the true error is a fraction

    Examples
    --------
    >>> h, b = torch.tensor([[4.0, 2.0]]), torch.eye(2).unsqueeze(0)
    >>> top_by_sketch(lambda v: h * v, b, torch.tensor([[1.0, 0.0]]), [(42, 1, 0)], budget=1).value
    tensor([4.])
    """
    size = start.shape[1]
    rough, start = whole_lines(rough), whole_lines(start)
    cold = ~start.any(1, keepdim=True)
    if cold.any():
        first = whole_lines(random_start(keys, size).to(start))
        start = torch.where(cold, roughly(partial(times, rough), first).vector, start)
    known = images = start.new_zeros(len(start), 0, start.shape[1])
    value, error, vector = start.new_zeros(len(start)), start.new_zeros(len(start)), start
    running, candidate = torch.ones(len(start), dtype=torch.bool), start
    for _ in range(budget):
        fresh = unit(_beside(known, _beside(known, candidate)))[0]
        known = torch.cat([known, fresh.unsqueeze(1)], 1)
        images = torch.cat([images, whole_lines(product(fresh[:, :size])).unsqueeze(1)], 1)
        best = roughly(partial(_joined, known, images, rough), candidate)
        within = known @ images.mT
        excess = best.value - end((within + within.mT) / 2, "algebraic")[0]
        value, error = torch.where(running, best.value, value), torch.where(running, excess, error)
        vector = torch.where(running.unsqueeze(1), best.vector, vector)
        running = running & (excess > tolerance * best.value.abs())
        if not running.any():
            break
        candidate = best.vector
    return Pair(value, vector[:, :size], error)


def sketched_trace(rough: Tensor, share: Tensor) -> Trace:
    """Return ``|B|^2`` and an upper estimate of its standard error: how far rows lie from their ``share`` (S, m) of it.

    Examples
    --------
    >>> sketched_trace(torch.tensor([[[3.0, 0.0], [0.0, 4.0]]]), torch.tensor([[0.5, 0.5]]))  # 9 and 16, 12.5 each
    Trace(value=tensor([25.]), error=tensor([4.9497]))
    """
    rows = rough.norm(dim=2).square()
    value = rows.sum(1)
    even = share / share.sum(1, keepdim=True) * value.unsqueeze(1)
    return Trace(value, (rows - even).norm(dim=1))


def corrected_trace(product: Product, rough: Tensor, keys: Sequence[tuple[int, int, int]], probes: int) -> Trace:
    """Return ``|B|^2`` plus Hutchinson's estimate of ``tr(H - B'B)``, which has less noise than one of tr H."""
    size, like, rough = rough.flatten(1).norm(dim=1).square(), rough[:, 0], whole_lines(rough)
    rest = hutchinson(lambda v: product(v) - times(rough, v), keys, like, budget=probes, tolerance=0)
    return Trace(size + rest.value, rest.error)


def _beside(known: Tensor, v: Tensor) -> Tensor:
    """Return v without its part in the span of the rows of ``known`` (S, b, P), which are orthonormal."""
    return v - combined(known, inner(known, v))


def _joined(known: Tensor, images: Tensor, rough: Tensor, v: Tensor) -> Tensor:
    """Return M v: H where it is known, the rough matrix elsewhere."""
    inside = inner(known, v)
    outside = v - combined(known, inside)
    guess = times(rough, outside)
    return guess + combined(images, inside) + combined(known, inner(images, outside) - inner(known, guess))
