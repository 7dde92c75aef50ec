"""What all slots of a call hold, one row each, and the way from works in to reports and memories out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..checks import BadInput, nearest
from ..types import Array, Done, Measure, Memory, Reports, Work
from .batches import Pool
from .chunks import Slot
from .parts import Build, Parts, first_vector


@dataclass(slots=True)
class Table:
    """One row per slot: ``start``, ``end`` and each optimiser ``state`` (S, P), steps ``taken`` (S,), ``counters``.

    ``figures`` (S,) float64, NaN until they are measured; ``keeps`` (S, Q), what measures remember, Q learned numbers.
    """

    start: Tensor
    end: Tensor
    state: dict[str, Tensor]
    taken: Array
    counters: dict[str, Tensor]
    figures: dict[str, Tensor]
    keeps: dict[str, Tensor]


def names_of(measures: Sequence[Measure]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of all figures, and of all that is kept for them."""
    return tuple(n for m in measures for n in m.names), tuple(n for m in measures for n in m.keeps)


def first_model(
    build: Build,
    parts: Parts,
    kept: Sequence[str],
    measures: Sequence[Measure],
    clients: int,
    seed: int,
    dtype: np.dtype[np.generic],
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
    memory |= {name: np.zeros((clients, parts.learned.size), dtype) for name in names_of(measures)[1]}
    return first[:d], memory | {n: np.stack([c] * clients) for n, c in parts.counters.items()}


def open_table(
    works: Sequence[Work],
    parts: Parts,
    state: Sequence[str],
    kept: Sequence[str],
    measures: Sequence[Measure],
    kind: torch.dtype,
) -> Table:
    """Lay the received models and the memories of all works under each other."""
    d, size = parts.shared.size, parts.whole.size
    ends = np.cumsum([0] + [len(w.federation.clients) for w in works]).tolist()
    start = torch.empty(ends[-1], size, dtype=kind)
    memories = {n: torch.zeros(ends[-1], size, dtype=kind) for n in state}
    taken = np.zeros(ends[-1], np.int64)
    counters = {n: torch.from_numpy(np.stack([c] * ends[-1])) for n, c in parts.counters.items()} if ends[-1] else {}
    figures, keeps = names_of(measures)
    told = {n: torch.full((ends[-1],), torch.nan, dtype=torch.float64) for n in figures}
    remembered = {n: torch.zeros(ends[-1], parts.learned.size, dtype=kind) for n in keeps}
    for w, a, b in zip(works, ends, ends[1:], strict=False):
        start[a:b, :d] = torch.from_numpy(np.array(w.broadcast.model))
        if size > d:
            start[a:b, d:] = torch.from_numpy(np.array(w.memory["private"]))
        for name in kept:
            memories[name][a:b] = torch.from_numpy(np.array(w.memory[name]))
        if kept:
            taken[a:b] = w.memory["t"]
        for name, values in (counters | remembered).items():
            values[a:b] = torch.from_numpy(np.array(w.memory[name]))
    return Table(start, start.clone(), memories, taken, counters, told, remembered)


def slots_of(works: Sequence[Work], table: Table, pool: Pool, counts: bool) -> list[Slot]:
    """List those who train: who have rows, and a term; ``counts``: the steps that they have taken before matter."""
    slots, row = [], 0
    for w in works:
        told = [np.asarray(c) != 0 for c in w.federation.terms.values()]
        for k, shard in enumerate(w.federation.shards):
            if w.train and len(shard.y) and any(t[k] for t in told):
                slots.append(Slot(w, k, row, pool.place(shard), int(table.taken[row]) if counts else 0))
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
        memory |= {n: c[own].numpy() for n, c in (table.counters | table.keeps).items()}
        reports = Reports(
            w.federation.clients,
            (end[:, :d] - start[:, :d]).numpy(),
            np.array([len(s.y) for s in w.federation.shards], np.float64),
            figures={n: f[own].numpy() for n, f in table.figures.items() if w.train and n in w.asks},
            counts=counted(w, {"received": start, "trained": end}),
            counters={n: c[own].numpy() for n, c in table.counters.items() if n.rpartition(".")[0] in layers},
        )
        done.append(Done(reports, memory, end.numpy()))
    return done


def check(works: Sequence[Work], terms: Mapping[str, object]) -> None:
    """Refuse coefficients of a term that this learner does not have, and labels that are none of the classes."""
    for w in works:
        if (c := w.federation.classes) > 2:
            for client, shard in zip(w.federation.clients, w.federation.shards, strict=True):
                if len(shard.y) and not 0 <= np.min(shard.y) <= np.max(shard.y) < c:
                    raise BadInput(f"client {client} has labels outside 0..{c - 1}; number the {c} classes from 0")
        if unknown := sorted(set(w.federation.terms) - set(terms)):
            raise BadInput(f"the learner has no loss term {unknown[0]!r}; {nearest(unknown[0], terms)}")
