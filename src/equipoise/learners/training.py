"""Local training of a chunk of clients as one stacked program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..layout import Layout
from ..types import Local
from .batches import Pool
from .chunks import Chunk, Term, loss
from .forwards import Forward
from .optimisers import Optimiser, padded
from .parts import Parts, split
from .table import Table


class Turned(Mapping[str, Tensor]):
    """Stacked parameters as torch shapes them, turned back only when a term looks at them."""

    def __init__(self, kept: Mapping[str, Tensor], turned: frozenset[str]) -> None:
        self.kept, self.turned = kept, turned

    def __getitem__(self, name: str) -> Tensor:
        return self.kept[name].mT if name in self.turned else self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)


class Stack:
    """The engine of stackable modules: (S, P) matrices in the order that a forward keeps, padded for the optimiser."""

    def __init__(self, forward: Forward, parts: Parts, terms: Mapping[str, Term], rule: Optimiser, pool: Pool) -> None:
        self.forward, self.parts, self.terms, self.rule, self.pool = forward, parts, terms, rule, pool
        self.layout, turned = parts.whole, forward.turned
        shapes = (s[::-1] if n in turned else s for n, s in zip(self.layout.names, self.layout.shapes, strict=True))
        self.kept = Layout(self.layout.names, tuple(shapes))

    def views(self, kept: Tensor) -> dict[str, Tensor]:
        """Name -> (S, *kept shape), views of the rows."""
        return split(self.kept, kept[:, : self.layout.size])

    def pack(self, rows: Tensor) -> Tensor:
        """(S, P) -> (S, P padded)."""
        kept = torch.zeros(len(rows), padded(self.layout.size), dtype=rows.dtype)
        for name, piece in split(self.layout, rows).items():
            self.views(kept)[name].copy_(piece.mT if name in self.forward.turned else piece)
        return kept

    def unpack(self, kept: Tensor) -> Tensor:
        """(S, P padded) -> (S, P)."""
        pieces = Turned(self.views(kept), self.forward.turned)
        return torch.cat([pieces[n].reshape(len(kept), -1) for n in self.layout.names], 1)

    def train(self, chunk: Chunk, table: Table) -> None:
        """Train all slots of a chunk side by side, from ``start`` to ``end``.

        The gradient is plain autograd on the sum of the slots' losses: no slot's loss depends on another's parameters.
        """
        at = [s.row for s in chunk.slots]
        params, memory = self.pack(table.start[at]), [self.pack(m[at]) for m in table.state.values()]
        self.descend(chunk, params, memory, chunk.slots[0].taken)
        table.end[at] = self.unpack(params)
        for old, new in zip(table.state.values(), memory, strict=True):
            old[at] = self.unpack(new)
        table.taken[at] += chunk.steps

    def descend(self, chunk: Chunk, params: Tensor, memory: list[Tensor], taken: int) -> None:
        """Take the chunk's steps, changing ``params`` and ``memory`` (S, P padded) in place."""
        grads = torch.zeros_like(params)
        turned = self.forward.turned
        anchor = {n: t.clone() for n, t in self.views(params).items() if n in self.parts.shared.names}
        width, same = -1, len(chunk.rows) == 1
        for step in range(max(chunk.steps)):
            at, active = 0 if same else step, chunk.active(step)
            if max(active, 2) != width:  # at first, and when some slots have finished; never a lone slot
                width = max(active, 2)
                leaves = {n: t[:width].detach().requires_grad_() for n, t in self.views(params).items()}
                pieces, listed = list(self.views(grads[:width]).values()), list(leaves.values())
                forward, now = self.forward.bind(leaves), Turned(leaves, turned)
                before = Turned({n: t[:width] for n, t in anchor.items()}, turned)
                coefficients = {n: c[:width] for n, c in chunk.coefficients.items()}
                news = {n: v[:width] for n, v in chunk.news.items()}
            if step == 0 or not same:
                rows = chunk.rows[at, :width]
                x = self.pool.x.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
            y, group, weight = chunk.y[at, :width], chunk.group[at, :width], chunk.weight[at, :width]
            local = Local(now, before, x, y, group, weight, forward(x), news)
            torch._foreach_copy_(pieces, torch.autograd.grad(loss(local, coefficients, self.terms), listed))
            self.rule.step(params[:active], grads[:active], [m[:active] for m in memory], taken + step + 1)
