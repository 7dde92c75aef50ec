"""Slots and chunks: a slot is one client of one run, a chunk is some slots that train side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..types import Array, Local, Work
from .batches import LARGE, Pool, Sampling, local_steps, plan, width

Term = Callable[[Local], Tensor]


class Slot(NamedTuple):
    """One client of one run in one round, and where its rows lie in the pool."""

    work: Work
    k: int  # the client's place in the run
    row: int  # its row in the table
    rows: slice  # its training rows in the pool
    taken: int  # optimiser steps it has taken before, where they matter

    @property
    def size(self) -> int:
        """Training rows."""
        return int(self.rows.stop) - int(self.rows.start)

    @property
    def key(self) -> tuple[int, int, int]:
        """Seed, round, client: all that its randomness depends on."""
        return self.work.seed, self.work.broadcast.round, int(self.work.federation.clients[self.k])


class Recipe(NamedTuple):
    """How a client trains; see ``stacked``."""

    terms: Mapping[str, Term]
    steps: int | None
    batch: int | None
    sampling: Sampling
    epochs: int = 1

    def width(self, slot: Slot) -> int:
        """Padded batch size of a client."""
        return width(slot.size, self.steps, self.batch, self.sampling, *slot.key, self.epochs)

    def steps_of(self, slot: Slot) -> int:
        """Local steps of a client."""
        return local_steps(slot.size, self.steps, self.batch, self.sampling, self.epochs)


@dataclass(slots=True)
class Chunk:
    """S slots with batches of one shape B, those with most steps first; T = 1 when all steps see the same rows.

    Attributes
    ----------
    rows : (T, S, B) places in the pool
    valid : (T, S) how many of the B are real; the rest has weight 0. A slot that has finished keeps one row, so that
        what it computes is finite while nobody uses it, and so does an empty batch, whose ``valid`` is 0
    y, group, weight : (T, S, B)
    steps : local steps of each slot, falling
    coefficients, news : name -> (S,)
    """

    slots: list[Slot]
    rows: Tensor
    valid: Tensor
    y: Tensor
    group: Tensor
    weight: Tensor
    steps: list[int]
    coefficients: dict[str, Tensor]
    news: dict[str, Tensor]

    def active(self, step: int) -> int:
        """Count the slots that still train at this step; they are the first ones."""
        return sum(n > step for n in self.steps)


def make(slots: Sequence[Slot], recipe: Recipe, pool: Pool) -> Chunk:
    """Draw the batches of these slots and lay them side by side."""
    plans = [plan(s.size, recipe.steps, recipe.batch, recipe.sampling, *s.key, recipe.epochs) for s in slots]
    order = sorted(range(len(slots)), key=lambda i: -len(plans[i][1]))
    slots, plans = [slots[i] for i in order], [plans[i] for i in order]
    longest, wide = plans[0][0].shape
    rows = np.zeros((longest, len(slots), wide), np.int64)
    valid = np.ones((longest, len(slots)), np.int64)
    for i, (slot, (chosen, real)) in enumerate(zip(slots, plans, strict=True)):
        rows[: len(chosen), i] = chosen
        rows[:, i] += slot.rows.start
        valid[: len(real), i] = real
    at, full = torch.from_numpy(rows), torch.from_numpy(valid)
    y, group, weight = (c.index_select(0, at.view(-1)).view(at.shape) for c in (pool.y, pool.group, pool.weight))
    if valid.min() < wide:
        shown = torch.arange(wide) < full.clamp(min=1)[:, :, None]
        weight = torch.where(shown, weight, torch.zeros((), dtype=pool.dtype))

    def column(told: Callable[[Slot], Mapping[str, Array]], name: str) -> Tensor:
        values = [float(told(s)[name][s.k]) if name in told(s) else 0.0 for s in slots]
        return torch.tensor(values, dtype=pool.dtype)

    coefficients = {n: column(lambda s: s.work.federation.terms, n) for n in recipe.terms}
    names = sorted({n for s in slots for n in s.work.broadcast.news})
    return Chunk(
        list(slots),
        at,
        full,
        y,
        group,
        weight,
        [recipe.steps_of(s) for s in slots],
        {n: c for n, c in coefficients.items() if bool((c != 0).any())},
        {n: column(lambda s: s.work.broadcast.news, n) for n in names},
    )


def divide(slots: Sequence[Slot], wide: Callable[[Slot], int], most: int, large: int = LARGE) -> Iterator[list[Slot]]:
    """Cut the slots into groups of one batch width and step count, at most ``most`` each, about equally large.

    A slot alone is given twice: a batched product of one differs in bits from the same product among others, and a
    client's bits must not depend on its company. Those wider than ``large`` are always alone, and once.
    """
    groups: dict[object, list[Slot]] = {}
    for slot in slots:
        if (size := wide(slot)) > large:
            yield [slot]
        else:
            groups.setdefault((size, slot.taken), []).append(slot)
    for group in groups.values():
        parts = min(-(-len(group) // most), max(1, len(group) // 2))
        for at in np.array_split(np.arange(len(group)), parts):
            chosen = [group[i] for i in at]
            yield chosen * 2 if len(chosen) == 1 else chosen


def loss(local: Local, coefficients: Mapping[str, Tensor], terms: Mapping[str, Term]) -> Tensor:
    """Return the sum over slots of each slot's own loss; a coefficient of 0 leaves the term out, whatever its value."""
    total = torch.zeros((), dtype=local.weight.dtype)
    for name, c in coefficients.items():
        value = terms[name](local)
        total = total + torch.where(c != 0, c * value, torch.zeros((), dtype=value.dtype)).sum()
    return total


Slopes = Callable[[Local, Mapping[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]


def slopes(coefficients: Mapping[str, Tensor], terms: Mapping[str, Term]) -> Slopes:
    """Return (local, params) -> the loss's gradient with respect to the logits, and to params that a term reads.

    A term may bring its own derivative, ``term.slope(local)`` in the shape of the logits, (S, B) or (S, B, C), which
    saves the way through autograd; the others are differentiated by torch.
    """
    closed = {n: c for n, c in coefficients.items() if hasattr(terms[n], "slope")}
    scales = [(terms[n].slope, None if bool((c == 1).all()) else c) for n, c in closed.items()]  # type: ignore[attr-defined]
    rest = {n: c for n, c in coefficients.items() if n not in closed}

    def at(local: Local, params: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        parts: list[Tensor] = []
        for own, c in scales:
            part: Tensor = own(local)
            if c is not None:
                each = c.view(-1, *[1] * (part.dim() - 1))
                part = torch.where(each != 0, each * part, torch.zeros((), dtype=c.dtype))
            parts.append(part)
        direct: dict[str, Tensor] = {}
        if rest:
            with torch.enable_grad():
                logits = local.logits.detach().requires_grad_()
                total = loss(replace(local, logits=logits), rest, terms)
            if not total.requires_grad:  # such as a pull towards the shared part where nothing is shared
                return sum(parts, torch.zeros_like(logits)), direct
            first, *others = torch.autograd.grad(total, [logits, *params.values()], allow_unused=True)
            direct = {n: g for n, g in zip(params, others, strict=True) if g is not None}
            parts.append(torch.zeros_like(logits) if first is None else first)
        return sum(parts[1:], parts[0]), direct

    return at
