"""What each record adds to the curvature: a sketch of the Gauss-Newton matrix, record by record.

The loss of record i has the Gauss-Newton matrix ``J'AJ``: J the Jacobian of its logits, ``A = diag(p) - pp'``. With
``RR' = A`` and signs z, the vector ``b = J'Rz`` has ``E bb' = J'AJ`` and ``E |b|^2 = tr J'AJ``. In a network that is
piecewise linear in each of its tensors the rest of the Hessian has a diagonal of 0, and so the same trace.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rounds import stream
from ..types import Problem


def directions(logits: Tensor, weight: Tensor) -> Tensor:
    """Return R (S, B, C, C - 1) with ``RR' = diag(p) - pp'``, its columns orthogonal; (S, B, 1, 1) for one logit.

    Each record carries its share of the mean: R is scaled by ``sqrt(w / sum w)``. Orthogonal columns do not meet in the
    last layer, which keeps the noise of random signs low.

    Examples
    --------
    >>> directions(torch.zeros(1, 1), torch.ones(1, 1))  # one logit, p (1 - p) = 1/4
    tensor([[[[0.5000]]]])
    """
    share = (weight / weight.sum(1, keepdim=True)).sqrt()[..., None, None]
    if logits.dim() == 2:
        p = logits.sigmoid()
        return share * (p * (1 - p)).sqrt()[..., None, None]
    p = logits.softmax(-1)
    lost = ~p.isfinite().all(-1)[..., None, None]
    a = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    values, vectors = torch.linalg.eigh(torch.where(lost, 0, a))
    root = share * torch.where(lost, torch.nan, vectors * values.clamp(min=0).sqrt().unsqueeze(-2))
    return root[..., 1:]  # adding the same to all logits changes nothing


def signs(problem: Problem, directions: int) -> Tensor:
    """Draw a sign for each record and direction by the slots' keys, (S, B, directions)."""
    rows = problem.weight.shape[1]
    drawn = [
        torch.from_numpy(stream(seed, "curvature signs", t, client).integers(0, 2, (rows, directions)))
        for seed, t, client in problem.keys
    ]
    return torch.stack(drawn).to(problem.weight) * 2 - 1


def pulled(problem: Problem, along: Tensor, most: int | None = None) -> Tensor:
    """Return ``J'a`` of each record for a = ``along`` (S, B, C), as rows (S, m, P).

    m = B, or at most ``most``: then records next to each other are added up.
    """
    x, along = grouped(problem.x, most), grouped(along, most)
    rows: Tensor = problem.weight.new_empty(*along.shape[:2], sum(p[0].numel() for p in problem.params.values()))

    def pull(params: dict[str, Tensor], x: Tensor, along: Tensor) -> Tensor:
        logits = _alone(problem, params, x)
        total: Tensor = (logits * along.view(logits.shape)).sum()
        return total

    for s in range(len(rows)):
        own = {n: p[s].detach() for n, p in problem.params.items()}
        slope = torch.func.grad(pull)
        try:
            grads = torch.vmap(slope, (None, 0, 0))(own, x[s], along[s])
        except Exception:  # whatever the user's forward raises when it is lifted: record by record then
            each = [slope(own, *pair) for pair in zip(x[s], along[s], strict=True)]
            grads = {n: torch.stack([g[n] for g in each]) for n in own}
        torch.cat([grads[n].flatten(1) for n in own], 1, out=rows[s])
    return rows


def grouped(t: Tensor, most: int | None) -> Tensor:
    """Cut (S, B, ...) into at most ``most`` groups of neighbours, (S, m, each, ...), the last filled up with zeros."""
    rows = t.shape[1]
    each = 1 if most is None else max(1, -(-rows // most))
    groups = -(-rows // each)
    spare = groups * each - rows
    filled = torch.cat([t, t.new_zeros(len(t), spare, *t.shape[2:])], 1)
    return filled.view(len(t), groups, each, *t.shape[2:])


def bends(problem: Problem) -> bool:
    """Say whether the logits are more than piecewise linear in some tensor of the parameters, the others held fixed.

    The second derivative along a direction within one tensor is then not 0. It is 0, exactly, for ReLU, pooling,
    Linear and convolutions; not for GELU, sigmoids, normalisation by the batch's own rows or groups, or tied weights.
    """
    params = {n: p[0].detach() for n, p in problem.params.items()}
    x = problem.x[0, :2]
    for name, tensor in params.items():
        ramp = torch.linspace(-1, 1, tensor.numel(), dtype=tensor.dtype).cos().view(tensor.shape)
        step = torch.zeros((), dtype=tensor.dtype, requires_grad=True)
        with torch.enable_grad():
            z = _alone(problem, {**params, name: tensor + step * ramp}, x)
            pull = torch.linspace(1, 2, z.numel(), dtype=z.dtype).view(z.shape)
            (first,) = torch.autograd.grad((z * pull).sum(), step, create_graph=True, materialize_grads=True)
        if first.requires_grad:
            (second,) = torch.autograd.grad(first, step, materialize_grads=True)
            if second != 0:
                return True
    return False


def _alone(problem: Problem, params: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the logits of one slot, (B, f) -> (B,) or (B, C)."""
    out: Tensor = problem.logits({n: p.unsqueeze(0) for n, p in params.items()}, x.unsqueeze(0))
    return out[0]
