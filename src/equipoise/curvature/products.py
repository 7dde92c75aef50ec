"""A client's loss as curvature sees it: its Hessian times vectors, and its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..rounds import stream
from ..types import Problem
from .lanczos import Product


def losses(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return the mean cross-entropy of each slot over its real rows, (S,); NaN where a slot has none.

    Examples
    --------
    >>> losses(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]), torch.tensor([[1.0, 1.0, 0.0]]))  # log 2
    tensor([0.6931])
    """
    if logits.dim() == 2:
        each = F.binary_cross_entropy_with_logits(logits, y.to(logits), reduction="none")
    else:
        each = F.cross_entropy(logits.transpose(1, 2), y.long(), reduction="none")
    return (each * weight).sum(1) / weight.sum(1)


def hessian_product(problem: Problem) -> tuple[Product, Tensor]:
    """Return v (S, P) -> H v (S, P), the Hessians of all slots' losses times a vector each; and the logits on the way.

    Double backward: the graph of the first gradient is built once and used by every product. The order of the P
    numbers is that of ``problem.params``.
    """
    leaves = {n: p.detach().requires_grad_() for n, p in problem.params.items()}
    listed = list(leaves.values())
    with torch.enable_grad():
        logits = problem.logits(leaves, problem.x)
        loss = losses(logits, problem.y, problem.weight).sum()
        slopes = torch.autograd.grad(loss, listed, create_graph=True, materialize_grads=True)
    curved = [i for i, g in enumerate(slopes) if g.requires_grad]

    def product(v: Tensor) -> Tensor:
        if not curved:
            return torch.zeros_like(v)
        parts = unflatten(v, problem.params)
        along = [parts[n] for n in leaves]
        bent = torch.autograd.grad(
            [slopes[i] for i in curved], listed, [along[i] for i in curved], retain_graph=True, materialize_grads=True
        )
        return flatten(bent)

    return product, logits.detach()


def dense(product: Product, slots: int, size: int, like: Tensor) -> Tensor:
    """Return the matrices (S, P, P), column by column."""
    units = torch.eye(size, dtype=like.dtype)
    columns = torch.stack([product(unit.expand(slots, size)) for unit in units], 2)
    return (columns + columns.mT) / 2


def flatten(parts: Sequence[Tensor]) -> Tensor:
    """Join tensors (S, *shape) to (S, P)."""
    return torch.cat([p.flatten(1) for p in parts], 1)


def unflatten(v: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cut (S, P) into tensors of the shapes of ``like``."""
    cuts = torch.split(v, [p[0].numel() for p in like.values()], 1)
    return {n: c.reshape(len(v), *p.shape[1:]) for (n, p), c in zip(like.items(), cuts, strict=True)}


def subsample(problem: Problem, rows: int | None) -> Problem:
    """Keep at most ``rows`` of each slot's real rows, drawn by its key without replacement; None keeps all.

    Examples
    --------
    >>> whole = Problem(None, {}, torch.arange(5.0).view(1, 5, 1), torch.zeros(1, 5), torch.ones(1, 5), [(42, 1, 0)])
    >>> subsample(whole, 2).x.shape
    torch.Size([1, 2, 1])
    """
    if rows is None or rows >= problem.weight.shape[1]:
        return problem
    at = torch.zeros(len(problem.weight), rows, dtype=torch.long)
    weight = problem.weight.new_zeros(len(problem.weight), rows)
    for s, (seed, t, client) in enumerate(problem.keys):
        real = np.flatnonzero(problem.weight[s].numpy() > 0)
        drawn = np.sort(stream(seed, "curvature rows", t, client).permutation(real)[:rows])
        at[s, : len(drawn)] = torch.from_numpy(drawn)
        weight[s, : len(drawn)] = 1
    x = problem.x.gather(1, at.unsqueeze(2).expand(-1, -1, problem.x.shape[2]))
    return problem._replace(x=x, y=problem.y.gather(1, at), weight=weight)
