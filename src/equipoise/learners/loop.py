"""Local training of one client after another: any torch module, plain steps. The oracle of the stacked program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..rounds import stream
from ..types import Local
from .batches import Pool
from .chunks import Chunk, Term, loss
from .forwards import logits_of
from .optimisers import Optimiser, padded
from .parts import Parts, split
from .table import Table


@contextmanager
def keyed_noise(seed: int, t: int, client: int) -> Iterator[None]:
    """Let torch's global generator (dropout) draw this client's own numbers inside, and stand as before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(stream(seed, "noise", t, client).integers(2**62)))
        yield


class Loop:
    """The engine of any module: buffers, dropout and convolutions work as torch has them."""

    def __init__(self, module: nn.Module, parts: Parts, terms: Mapping[str, Term], rule: Optimiser, pool: Pool) -> None:
        self.module, self.parts, self.terms, self.rule, self.pool = module, parts, terms, rule, pool

    def train(self, chunk: Chunk, table: Table) -> None:
        """Train the slots of a chunk one after another, from ``start`` to ``end``."""
        for i, slot in enumerate(chunk.slots):
            if i and slot is chunk.slots[i - 1]:
                continue  # a lone slot was given twice for the stacked engine's sake
            with keyed_noise(*slot.key):
                self.train_one(chunk, i, table)

    def train_one(self, chunk: Chunk, i: int, table: Table) -> None:
        """Train slot ``i`` of a chunk."""
        row, size, trained = chunk.slots[i].row, self.parts.whole.size, self.parts.trained

        def widened(vector: Tensor) -> Tensor:
            out = torch.zeros(1, padded(size), dtype=vector.dtype)
            out[0, :size] = vector
            return out

        params, memory = widened(table.start[row]), [widened(m[row]) for m in table.state.values()]
        grads = torch.zeros_like(params)
        tensors = split(self.parts.whole, params[:, :size])
        slopes = [t for n, t in split(self.parts.whole, grads[:, :size]).items() if n in trained]
        anchor = {n: tensors[n].clone() for n in self.parts.shared.names}
        buffers = {n: t[0].clone() for n, t in tensors.items() if n not in trained}
        buffers |= {n: t[row] for n, t in table.counters.items()}  # counted on in place
        leaves = {n: t.detach().requires_grad_() for n, t in tensors.items() if n in trained}
        coefficients = {n: c[i : i + 1] for n, c in chunk.coefficients.items() if c[i] != 0}
        news = {n: v[i : i + 1] for n, v in chunk.news.items()}
        for step in range(chunk.steps[i]):
            at = step if len(chunk.rows) > 1 else 0
            real = int(chunk.valid[at, i])
            x = self.pool.x[chunk.rows[at, i, :real]]
            y, group, weight = (c[at, i : i + 1, :real] for c in (chunk.y, chunk.group, chunk.weight))
            logits = logits_of(self.module, buffers | {n: t[0] for n, t in leaves.items()}, x)
            local = Local(leaves, anchor, x[None], y, group, weight, logits[None], news)
            found = torch.autograd.grad(loss(local, coefficients, self.terms), list(leaves.values()))
            for slope, grad in zip(slopes, found, strict=True):
                slope.copy_(grad)
            self.rule.step(params, grads, memory, chunk.slots[i].taken + step + 1)
        for name, tensor in tensors.items():
            if name in buffers:
                tensor[0] = buffers[name]
        table.end[row] = params[0, :size]
        for old, new in zip(table.state.values(), memory, strict=True):
            old[row] = new[0, :size]
        table.taken[row] += chunk.steps[i]
