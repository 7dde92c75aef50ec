"""Local training of one client after another: any torch module, plain steps. The oracle of the stacked program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from ..checks import BadInput
from ..rounds import stream
from ..types import Local
from .batches import Pool
from .chunks import Chunk, Slot, Term, loss
from .forwards import Named, logits_of
from .optimisers import Optimiser
from .parts import Parts, split
from .private import Private, generator, gradient
from .table import Table

Stage = Callable[[Named, Named, Local, Mapping[str, Tensor]], list[Tensor]]
"""(trained, other tensors, a batch without logits, coefficients) -> a gradient for each trained tensor."""


@contextmanager
def keyed_noise(seed: int, t: int, client: int) -> Iterator[None]:
    """Let torch's global generator (dropout) draw this client's own numbers inside, and stand as before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(stream(seed, "noise", t, client).integers(2**62)))
        yield


class Loop:
    """The engine of any module: buffers, dropout and convolutions work as torch has them."""

    def __init__(
        self,
        module: nn.Module,
        parts: Parts,
        terms: Mapping[str, Term],
        rule: Optimiser,
        pool: Pool,
        private: Private | None = None,
        batch: int | None = None,
    ) -> None:
        self.module, self.parts, self.terms, self.rule, self.pool = module, parts, terms, rule, pool
        self.private, self.batch = private, batch

    def train(self, chunk: Chunk, table: Table) -> None:
        """Train the slots of a chunk one after another, from ``start`` to ``end``."""
        for i, slot in enumerate(chunk.slots):
            if i and slot is chunk.slots[i - 1]:
                continue  # a lone slot was given twice for the stacked engine's sake
            with keyed_noise(*slot.key):
                self.train_one(chunk, i, table)

    def train_one(self, chunk: Chunk, i: int, table: Table) -> None:
        """Train slot ``i`` of a chunk."""
        row, whole, trained = chunk.slots[i].row, self.parts.whole, self.parts.trained
        tensors = {n: t[0].clone() for n, t in split(whole, table.start[row : row + 1]).items()}
        buffers = {n: t for n, t in tensors.items() if n not in trained}
        buffers |= {n: t[row] for n, t in table.counters.items()}  # counted on in place, as the floats are
        leaves = {n: t.requires_grad_() for n, t in tensors.items() if n in trained}
        memory = [{n: t[0].clone() for n, t in split(whole, m[row : row + 1]).items()} for m in table.state.values()]
        moved = [[m[n] for n in leaves] for m in memory]
        anchor = {n: tensors[n].detach().clone()[None] for n in self.parts.shared.names}
        coefficients = {n: c[i : i + 1] for n, c in chunk.coefficients.items() if c[i] != 0}
        news = {n: v[i : i + 1] for n, v in chunk.news.items()}
        stage = self.stage(chunk.slots[i])
        for step in range(chunk.steps[i]):
            at = step if len(chunk.rows) > 1 else 0
            real = int(chunk.valid[at, i])
            x = self.pool.x[chunk.rows[at, i, :real]]
            y, group, weight = (c[at, i : i + 1, :real] for c in (chunk.y, chunk.group, chunk.weight))
            shown = {n: t[None] for n, t in leaves.items()}
            local = Local(shown, anchor, x[None], y, group, weight, None, news)
            grads = stage(leaves, buffers, local, coefficients)
            with torch.no_grad():
                self.rule.step(
                    list(leaves.values()), [g.contiguous() for g in grads], moved, chunk.slots[i].taken + step + 1
                )

        def flat(named: Mapping[str, Tensor]) -> Tensor:
            return torch.cat([named[n].detach().reshape(-1) for n in whole.names])

        table.end[row] = flat(tensors)
        for old, new in zip(table.state.values(), memory, strict=True):
            old[row] = flat(new)
        table.taken[row] += chunk.steps[i]

    def stage(self, slot: Slot) -> Stage:
        """Return what makes a batch of this slot into a gradient."""
        if self.private is None:
            return self.plain
        expected = slot.size if self.batch is None else min(self.batch, slot.size)
        return partial(gradient, self.private, self.module, self.terms, expected, generator(*slot.key))

    def plain(self, trained: Named, others: Named, rows: Local, coefficients: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the gradient of the loss, a tensor for each trained one; ``rows`` come without logits.

        An empty batch, as Poisson sampling draws them, has none: 0.
        """
        if not rows.x.shape[1]:
            return [torch.zeros_like(t) for t in trained.values()]
        try:
            logits = logits_of(self.module, {**trained, **others}, rows.x[0])
        except ValueError as e:  # BatchNorm cannot train on one row, the short last batch of an epoch
            count = rows.x.shape[1]
            raise BadInput(f"the model refuses a batch of {count} rows ({e}); use sampling 'replacement'") from e
        total = loss(replace(rows, logits=logits[None]), coefficients, self.terms)
        return list(torch.autograd.grad(total, list(trained.values()), materialize_grads=True))
