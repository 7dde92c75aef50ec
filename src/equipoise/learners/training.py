"""Local training of a chunk of clients as one stacked program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import torch
from torch import Tensor

from ..types import Local
from .batches import Pool
from .chunks import Chunk, Term, slopes
from .forwards import Stacking
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
    """The engine of stackable modules: each tensor of S clients is one (S, numbers) matrix with rows of whole lanes."""

    def __init__(
        self, stacking: Stacking, parts: Parts, terms: Mapping[str, Term], rule: Optimiser, pool: Pool
    ) -> None:
        self.stacking, self.parts, self.terms, self.rule, self.pool = stacking, parts, terms, rule, pool
        named = zip(parts.whole.names, parts.whole.shapes, strict=True)
        self.shapes = {n: shape[::-1] if n in stacking.turned else shape for n, shape in named}

    def views(self, kept: list[Tensor], width: int) -> dict[str, Tensor]:
        """Name -> (width, *kept shape), views of the first rows."""
        named = zip(self.shapes.items(), kept, strict=True)
        return {n: t[:width, : prod(shape)].view(width, *shape) for (n, shape), t in named}

    def pack(self, rows: Tensor) -> list[Tensor]:
        """(S, P) -> a matrix per tensor."""
        kept = [torch.zeros(len(rows), padded(prod(s)), dtype=rows.dtype) for s in self.shapes.values()]
        views = self.views(kept, len(rows))
        for name, piece in split(self.parts.whole, rows).items():
            views[name].copy_(piece.mT if name in self.stacking.turned else piece)
        return kept

    def unpack(self, kept: list[Tensor]) -> Tensor:
        """Return (S, P)."""
        pieces = Turned(self.views(kept, len(kept[0])), self.stacking.turned)
        return torch.cat([pieces[n].reshape(len(kept[0]), -1) for n in self.shapes], 1)

    def train(self, chunk: Chunk, table: Table) -> None:
        """Train all slots of a chunk side by side, from ``start`` to ``end``."""
        at = [s.row for s in chunk.slots]
        params, memory = self.pack(table.start[at]), [self.pack(m[at]) for m in table.state.values()]
        with torch.no_grad():
            self.descend(chunk, params, memory, chunk.slots[0].taken)
        table.end[at] = self.unpack(params)
        for old, new in zip(table.state.values(), memory, strict=True):
            old[at] = self.unpack(new)
        table.taken[at] += chunk.steps

    def descend(self, chunk: Chunk, params: list[Tensor], memory: list[list[Tensor]], taken: int) -> None:
        """Take the chunk's steps, changing ``params`` and ``memory`` in place.

        One gradient serves all slots, that of the sum of their losses: no slot's loss depends on another's parameters.
        """
        turned, x = self.stacking.turned, torch.zeros(0)
        grads = [torch.zeros_like(p) for p in params]
        received = self.views([p.clone() for p in params], len(params[0]))
        before, same = -1, len(chunk.rows) == 1
        empty = chunk.valid == 0
        holes = empty.any(1).tolist()
        least = min(2, len(chunk.slots))  # two do not become one, whose bits differ
        for step in range(max(chunk.steps)):
            active = chunk.active(step)
            if active != before:  # at first, and when some slots have finished
                before, width = active, max(active, least)
                passes = self.stacking.bind(self.views(params, width), slots := self.views(grads, width))
                now = {n: t.requires_grad_() for n, t in self.views(params, width).items()}
                seen = Turned(now, turned)
                anchor = Turned({n: received[n][:width] for n in self.parts.shared.names}, turned)
                slopes_at = slopes({n: c[:width] for n, c in chunk.coefficients.items()}, self.terms)
                news = {n: v[:width] for n, v in chunk.news.items()}
                moving = [[t[:active] for t in kept] for kept in (params, grads, *memory)]
                rows = chunk.rows[:, :width].flatten(1).unbind()
                columns = [c[:, :width].unbind() for c in (chunk.y, chunk.group, chunk.weight)]
            at = 0 if same else step
            if step == 0 or not same:
                x = self.pool.x.index_select(0, rows[at]).view(width, chunk.rows.shape[2], -1)
            y, group, weight = (c[at] for c in columns)
            slope, direct = slopes_at(Local(seen, anchor, x, y, group, weight, passes.forward(x), news), now)
            passes.backward(slope)
            for name, extra in direct.items():
                slots[name].add_(extra)
            if holes[at]:  # who drew no row has no gradient
                for g in grads:
                    g[:width][empty[at, :width]] = 0
            self.rule.step(moving[0], moving[1], moving[2:], taken + step + 1)
