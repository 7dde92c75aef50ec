"""Small problems: networks of two clients, their rows ragged and padded, and the Hessian by brute force."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from equipoise.types import Problem

torch.set_num_threads(1)


def net(kind: str, classes: int = 3) -> nn.Module:
    """Return a tiny network that takes rows of 8 numbers."""
    out = 1 if classes == 2 else classes
    bend = {"relu": nn.ReLU, "gelu": nn.GELU, "sigmoid": nn.Sigmoid}
    if kind == "conv":
        layers = [nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 3, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(9, out))
    if kind == "norm":
        return nn.Sequential(nn.Linear(8, 4), nn.GroupNorm(2, 4), nn.ReLU(), nn.Linear(4, out))
    if kind == "linear":
        return nn.Linear(8, out)
    return nn.Sequential(nn.Linear(8, 5), bend[kind](), nn.Linear(5, out))


def clients(kind: str, classes: int = 3, sizes: Sequence[int] = (12, 7)) -> Problem:
    """Return a problem of one client per size, each with its own model and rows."""
    torch.manual_seed(len(kind) + classes)
    modules = [net(kind, classes).double() for _ in sizes]
    rows = [torch.randn(n, 8, dtype=torch.float64) for n in sizes]
    labels = [torch.randint(0, classes, (n,)) for n in sizes]
    return together(modules, rows, labels)


def together(modules: Sequence[nn.Module], rows: Sequence[Tensor], labels: Sequence[Tensor]) -> Problem:
    """Stack clients into one problem; short ones are padded with rows that would be seen if they counted."""
    width, first = max(len(x) for x in rows), modules[0]

    def padded(t: Tensor, value: float) -> Tensor:
        return torch.cat([t, t.new_full((width - len(t), *t.shape[1:]), value)])

    def one(params: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(first, params, (x,))
        return out.squeeze(-1) if out.shape[-1] == 1 else out

    names = [n for n, p in first.named_parameters() if p.requires_grad]
    params = {n: torch.stack([dict(m.named_parameters())[n].detach() for m in modules]) for n in names}
    x = torch.stack([padded(t, 50.0) for t in rows])
    y = torch.stack([padded(t, 1) for t in labels])
    weight = torch.stack([padded(torch.ones(len(t), dtype=x.dtype), 0.0) for t in rows])
    return Problem(torch.vmap(one), params, x, y, weight, [(42, 3, k) for k in range(len(rows))])


def alone(problem: Problem, s: int) -> Problem:
    """Return slot ``s`` only, without its padding."""
    real = problem.weight[s] > 0
    return Problem(
        problem.logits,
        {n: p[s : s + 1] for n, p in problem.params.items()},
        problem.x[s : s + 1, real],
        problem.y[s : s + 1, real],
        problem.weight[s : s + 1, real],
        problem.keys[s : s + 1],
    )


def hessian_by_hand(problem: Problem, s: int) -> Tensor:
    """Return the dense Hessian (P, P) of one slot's mean loss, written out for itself and differentiated by torch."""
    one = alone(problem, s)
    shapes = {n: p.shape[1:] for n, p in one.params.items()}
    cuts = [shape.numel() for shape in shapes.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = torch.split(flat, cuts)
        params = {n: c.view(1, *shapes[n]) for n, c in zip(shapes, parts, strict=True)}
        z, y = one.logits(params, one.x)[0], one.y[0]
        if z.dim() == 1:
            return (torch.logaddexp(z, torch.zeros_like(z)) - y * z).mean()
        return (z.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean()

    flat = torch.cat([p[0].flatten() for p in one.params.values()])
    h: Tensor = torch.autograd.functional.hessian(loss, flat)
    return h
