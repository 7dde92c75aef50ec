"""What all slots of a call hold, one row each, and the way from works in to reports and memories out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..checks import BadInput, nearest
from ..types import Array, Done, Memory, Reports, Work
from .batches import Pool
from .chunks import Slot
from .parts import Build, Parts, first_vector


@dataclass(slots=True)
class Table:
    """One row per slot: ``start``, ``end`` and each optimiser ``state`` (S, P), steps ``taken`` (S,), ``counters``."""

    start: Tensor
    end: Tensor
    state: dict[str, Tensor]
    taken: Array
    counters: dict[str, Tensor]


def first_model(
    build: Build, parts: Parts, kept: Sequence[str], clients: int, seed: int, dtype: np.dtype[np.generic]
) -> tuple[Array, Memory]:
    """Return the first shared model (d,) and what K clients keep: all start alike, private layers too."""
    first = first_vector(build, parts, seed, dtype)
    d = parts.shared.size
    memory: dict[str, Array] = {}
    if parts.private.size:
        memory["private"] = np.tile(first[d:], (clients, 1))
    if kept:
        memory |= {name: np.zeros((clients, len(first)), dtype) for name in kept}
        memory["t"] = np.zeros(clients, np.int64)
    return first[:d], memory | {n: np.stack([c] * clients) for n, c in parts.counters.items()}


def open_table(
    works: Sequence[Work], parts: Parts, state: Sequence[str], kept: Sequence[str], kind: torch.dtype
) -> Table:
    """Lay the received models and the memories of all works under each other."""
    d, size = parts.shared.size, parts.whole.size
    ends = np.cumsum([0] + [len(w.federation.clients) for w in works]).tolist()
    start = torch.empty(ends[-1], size, dtype=kind)
    memories = {n: torch.zeros(ends[-1], size, dtype=kind) for n in state}
    taken = np.zeros(ends[-1], np.int64)
    counters = {n: torch.from_numpy(np.stack([c] * ends[-1])) for n, c in parts.counters.items()} if ends[-1] else {}
    for w, a, b in zip(works, ends, ends[1:], strict=False):
        start[a:b, :d] = torch.from_numpy(np.array(w.broadcast.model))
        if size > d:
            start[a:b, d:] = torch.from_numpy(np.array(w.memory["private"]))
        for name in kept:
            memories[name][a:b] = torch.from_numpy(np.array(w.memory[name]))
        if kept:
            taken[a:b] = w.memory["t"]
        for name, values in counters.items():
            values[a:b] = torch.from_numpy(np.array(w.memory[name]))
    return Table(start, start.clone(), memories, taken, counters)


def slots_of(works: Sequence[Work], table: Table, pool: Pool) -> list[Slot]:
    """List those who train: who have rows, and a term."""
    slots, row = [], 0
    for w in works:
        told = [np.asarray(c) != 0 for c in w.federation.terms.values()]
        for k, shard in enumerate(w.federation.shards):
            if w.train and len(shard.y) and any(t[k] for t in told):
                slots.append(Slot(w, k, row, pool.place(shard), int(table.taken[row])))
            row += 1
    return slots


def close_table(
    works: Sequence[Work],
    table: Table,
    parts: Parts,
    kept: Sequence[str],
    counted: Callable[[Work, Mapping[str, Tensor]], Mapping[str, Array]],
) -> list[Done]:
    """Cut the table into each work's reports and memory."""
    d, done, first = parts.shared.size, [], 0
    layers = {n.rpartition(".")[0] for n in parts.shared.names}
    for w in works:
        own = slice(first, first := first + len(w.federation.clients))
        start, end = table.start[own], table.end[own]
        memory = {"private": end[:, d:].numpy()} if parts.private.size else {}
        if kept:
            memory |= {n: table.state[n][own].numpy() for n in kept} | {"t": table.taken[own]}
        memory |= {n: c[own].numpy() for n, c in table.counters.items()}
        reports = Reports(
            w.federation.clients,
            (end[:, :d] - start[:, :d]).numpy(),
            np.array([len(s.y) for s in w.federation.shards], np.float64),
            counts=counted(w, {"received": start, "trained": end}),
            counters={n: c[own].numpy() for n, c in table.counters.items() if n.rpartition(".")[0] in layers},
        )
        done.append(Done(reports, memory))
    return done


def check(works: Sequence[Work], terms: Mapping[str, object]) -> None:
    """Refuse coefficients of a term that this learner does not have."""
    for w in works:
        if unknown := sorted(set(w.federation.terms) - set(terms)):
            raise BadInput(f"the learner has no loss term {unknown[0]!r}; {nearest(unknown[0], terms)}")
