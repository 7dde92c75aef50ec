"""The trace of symmetric operators that are known by their products with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import BadInput
from ..rounds import stream
from .lanczos import Product

FEWEST = 10
"""Probes before a standard error is believed: of two or three it may be small by luck."""


class Trace(NamedTuple):
    """``value`` (S,) and its standard error ``error`` (S,)."""

    value: Tensor
    error: Tensor


def hutchinson(
    product: Product,
    keys: Sequence[tuple[int, int, int]],
    like: Tensor,
    *,
    budget: int = 100,
    tolerance: float = 1e-3,
) -> Trace:
    """Estimate the traces of S symmetric operators by random signs z.

        tr H = E z'Hz,   z_i = -1 or 1

    Parameters
    ----------
    product : (S, P) -> (S, P)
    keys : (seed, round, client id) of each slot; its signs come from these alone
    like : (S, P), of the vectors' type
    budget : products at most, at least 2
    tolerance : a slot stops where its standard error is at most ``tolerance |trace|``, after 10 probes

    Returns
    -------
    value and standard error; where H is diagonal both are exact, as every probe gives the trace

    Examples
    --------
    >>> hutchinson(lambda v: v * torch.tensor([[3.0, -5.0, 1.0]]), [(42, 1, 0)], torch.zeros(1, 3))
    Trace(value=tensor([-1.]), error=tensor([0.]))

    References
    ----------
    Hutchinson, Communications in Statistics 19 (1990).

    Notes
    -----
    FinP's authors stop where two means in a row are near each other, relative to a trace with its sign. That happens by
    luck, and always where the trace is negative.
    """
    if budget < 2:
        raise BadInput(f"a standard error needs 2 probes at least, got budget {budget}; raise it")
    draws = [stream(seed, "curvature probes", t, client) for seed, t, client in keys]
    samples: list[Tensor] = []
    value, error = like.new_full((len(keys),), torch.nan), like.new_full((len(keys),), torch.nan)
    running = torch.ones(len(keys), dtype=torch.bool)
    while running.any() and len(samples) < budget:
        z = torch.stack([torch.from_numpy(d.integers(0, 2, like.shape[1])) for d in draws]).to(like) * 2 - 1
        samples.append((z * product(z)).sum(1))
        if len(samples) >= min(FEWEST, budget):
            seen = torch.stack(samples, 1)  # a mean along rows has the same bits whoever stands beside
            mean, deviation = seen.mean(1), seen.std(1) / len(samples) ** 0.5
            value, error = torch.where(running, mean, value), torch.where(running, deviation, error)
            running = running & (deviation > tolerance * mean.abs())
    return Trace(value, error)
