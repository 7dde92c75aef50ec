"""Figures that clients compute on their trained models: side by side where they train side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..checks import BadInput, same_length
from ..types import Array, Measure, Problem
from .batches import Pool, padded
from .chunks import Slot, divide
from .forwards import Named, linear_names, logits_of, whole_lines
from .parts import Parts, split
from .table import Table

ALONE = 256
"""A client of more rows is measured alone: products of that size gain nothing from company, and padding costs."""

NUMBERS = 2**24
"""Clients are measured side by side as long as their features are at most so many numbers."""

Logits = Callable[[Named, Tensor], Tensor]
"""(name -> (S, *shape), (S, B, f)) -> (S, B) or (S, B, C), differentiable as often as one likes."""


def composed(module: nn.Module) -> Logits:
    """Write the logits of Linear, ReLU, Linear, ..., Linear as batched products.

    Raises
    ------
    BadInput : the module is something else
    """
    names = linear_names(module)

    def logits(params: Named, x: Tensor) -> Tensor:
        for i, name in enumerate(names):
            weight, bias = params[name + "weight"].mT, params.get(name + "bias")
            x = torch.bmm(x.relu() if i else x, weight)
            x = x if bias is None else x + bias.unsqueeze(1)
        return x.squeeze(-1)

    return logits


def lifted(module: nn.Module) -> Logits:
    """Let torch lift the module's forward over the slot axis."""
    return torch.vmap(lambda params, x: logits_of(module, params, x))


def single(module: nn.Module, others: Named) -> Logits:
    """Return the module as the user wrote it, for one slot; ``others``: its buffers and frozen parameters."""

    def logits(params: Named, x: Tensor) -> Tensor:
        return logits_of(module, {**{n: t[0] for n, t in params.items()}, **others}, x[0]).unsqueeze(0)

    return logits


def figures_of(module: nn.Module, measure: Measure, x: Array, y: Array, seed: int = 0) -> dict[str, float]:
    """Measure one trained module on one client's rows, for people who keep their own training code.

    Parameters
    ----------
    module : x (B, f) -> logits (B,), (B, 1) or (B, C); parameters that are frozen are left out
    measure : such as ``curvature.exact()``
    x, y : (n, f) and (n,), all training rows of the client
    seed : of what a measure draws

    Raises
    ------
    BadInput : no rows, lengths differ, labels that are no class numbers, a module without anything to train

    Examples
    --------
    >>> from ..curvature import exact
    >>> net = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(net.weight)
    >>> figures_of(net, exact(), np.array([[2.0], [2.0]]), np.array([0, 1]))["trace"]  # p (1 - p) x^2
    1.0
    """
    if not same_length(x=x, y=y):
        raise BadInput("a client without rows has no curvature; pass its training rows")
    twin = copy.deepcopy(module).eval()
    learned = {n: p.detach().unsqueeze(0) for n, p in twin.named_parameters() if p.requires_grad}
    if not learned:
        raise BadInput("nothing of this module trains, so its loss has no curvature; unfreeze a layer")
    kind = next(iter(learned.values())).dtype
    others = {n: p for n, p in twin.named_parameters() if n not in learned} | dict(twin.named_buffers())
    rows = torch.from_numpy(np.array(x)).to(kind).unsqueeze(0)
    problem = Problem(
        single(twin, others), learned, rows, torch.from_numpy(np.array(y)).to(kind).unsqueeze(0),
        torch.ones(1, len(y), dtype=kind), [(seed, 0, 0)],
    )  # fmt: skip
    size = sum(p[0].numel() for p in learned.values())
    found, _ = measure.measure(problem, {name: torch.zeros(1, size, dtype=kind) for name in measure.keeps})
    return {name: float(values[0]) for name, values in found.items()}


def stacked_logits(module: nn.Module, parts: Parts, x: Tensor) -> Logits | None:
    """Return the logits of many clients of a module in eval mode that trains stacked; ``x`` (S, B, f) to try it on.

    None where matrices do not fill whole cache lines, as a client's figures would depend in their last bits on its
    place among the others; and where torch cannot lift the forward.
    """
    if not whole_lines(parts):
        return None
    try:
        return composed(module)
    except BadInput:
        twin, rows = copy.deepcopy(module).double(), x[:1].expand(2, *x.shape[1:]).double()
    both = {n: torch.stack([p.detach(), p.detach() * 9 / 8]) for n, p in twin.named_parameters()}
    right = [single(twin, {})({n: t[k : k + 1] for n, t in both.items()}, rows[k : k + 1]) for k in range(2)]
    try:
        got = lifted(twin)(both, rows)
    except Exception:  # whatever the user's forward raises on stacked input
        return None
    return lifted(module) if torch.allclose(got, torch.cat(right), rtol=1e-9, atol=1e-12) else None


def problem_of(slots: Sequence[Slot], width: int, logits: Logits, params: Named, pool: Pool) -> Problem:
    """Lay all training rows of these clients side by side, padded to ``width`` with weight 0.

    They are copied also for one client: where its rows lie in the pool, and so how they are aligned, depends on others.
    """
    sizes = torch.tensor([s.size for s in slots])
    at = torch.arange(width).expand(len(slots), width)
    weight = (at < sizes.unsqueeze(1)).to(pool.dtype)
    at = torch.where(weight > 0, at, 0) + torch.tensor([s.rows.start for s in slots]).unsqueeze(1)
    return Problem(logits, params, pool.x[at], pool.y[at], weight, [s.key for s in slots])


def measured(
    measures: Sequence[Measure],
    slots: Sequence[Slot],
    table: Table,
    module: nn.Module,
    parts: Parts,
    pool: Pool,
    together: Logits | None,
    chunk: int,
) -> None:
    """Write into the table what the clients are asked for: ``figures``, and what they keep for the next time.

    Parameters
    ----------
    slots : those who trained; the others' figures stay NaN, and so do those of a model that is not finite
    module : in eval mode
    together : logits of many clients; None measures one after another
    """
    for each in measures:
        asked = [
            s._replace(taken=0)  # steps taken keep nobody apart here
            for s in slots
            if s.work.asks.intersection(each.names) and table.end[s.row].isfinite().all()
        ]
        groups: Iterable[list[Slot]] = ([s] for s in asked)
        company = None if each.alone else together
        if company is not None and asked:
            most = min(chunk, max(2, NUMBERS // (ALONE * max(1, pool.x.shape[1]))))
            groups = divide(asked, _width, most, ALONE)
        for some in groups:
            rows = [s.row for s in some]
            tensors = {n: t.contiguous() for n, t in split(parts.whole, table.end[rows]).items()}
            params = {n: t for n, t in tensors.items() if n in parts.trained}
            others = {n: t[0] for n, t in tensors.items() if n not in parts.trained}
            width = some[0].size if company is None else _width(some[0])
            logits = single(module, others) if company is None else company
            problem = problem_of(some, width, logits, params, pool)
            found, kept = each.measure(problem, {n: table.keeps[n][rows] for n in each.keeps})
            _write(table.figures, found, each.names, rows, torch.nan)
            _write(table.keeps, kept, each.keeps, rows, 0.0)


def _width(slot: Slot) -> int:
    return slot.size if slot.size > ALONE else padded(slot.size, None)


def _write(
    columns: Mapping[str, Tensor], found: Mapping[str, Tensor], names: Sequence[str], rows: list[int], lost: float
) -> None:
    """Write what was found into its rows; what is not finite counts as lost."""
    for name in names:
        values = torch.as_tensor(found[name]).detach().to(columns[name].dtype)
        whole = values.isfinite() if values.dim() == 1 else values.isfinite().all(1, keepdim=True)
        columns[name][rows] = torch.where(whole, values, lost)
