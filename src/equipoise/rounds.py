"""The moves of a round that every driver shares, and keyed random streams.

A driver (the simulator, a Flower strategy) opens a round, gets replies from somewhere, and closes it. Nothing that a
client sends can end a run here: a bad row is rejected and named, the rest is sorted by client id and goes on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .checks import BadInput
from .layout import Layout
from .types import Array, Broadcast, Federation, Memory, Reports, Round, Run, Snapshot


def stream(seed: int, purpose: str, t: int = 0, client: int = 0) -> np.random.Generator:
    """Return the random generator that belongs to (seed, purpose, round, client) and to nothing else.

    Two drivers, two machines or a resumed run draw the same numbers; the global generator is never touched.

    Examples
    --------
    >>> int(stream(42, "batch", 3, 1).integers(1000)) == int(stream(42, "batch", 3, 1).integers(1000))
    True
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), t, client)))


def rows(mapping: Mapping[str, Array], at: Any) -> dict[str, Array]:
    """Take the rows ``at`` of every array."""
    return {name: values[at] for name, values in mapping.items()}


def part(federation: Federation, ids: Array) -> Federation:
    """Return the federation of ``ids`` only (sorted, all of them members)."""
    at = np.searchsorted(federation.clients, ids)
    return replace(
        federation,
        clients=ids,
        shards=[federation.shards[i] for i in at],
        terms=rows(federation.terms, at),
        views={name: [shards[i] for i in at] for name, shards in federation.views.items()},
    )


def take(reports: Reports, at: Any) -> Reports:
    """Return the rows ``at`` of the reports."""
    return Reports(
        reports.clients[at],
        reports.updates[at],
        reports.sizes[at],
        rows(reports.figures, at),
        rows(reports.counts, at),
        rows(reports.counters, at),
    )


def collect(
    replies: Iterable[tuple[int, Mapping[str, Array], float]], layout: Layout, received: Array
) -> tuple[Reports, dict[int, str]]:
    """Turn trained models by name into reports, rejecting those whose arrays do not fit.

    Parameters
    ----------
    replies : (client id, named arrays of the trained shared part, training rows); integer arrays that the layout
        does not hold are counters (such as BatchNorm's number of batches) and keep their type and shape
    layout : names and shapes of the shared part, d numbers
    received : (d,) the model that was broadcast

    Returns
    -------
    reports : rows sorted by client id
    rejected : client id -> reason

    Examples
    --------
    >>> layout = Layout(("w",), ((2,),))
    >>> good, bad = np.array([3.0, 4.0]), np.array([3.0])
    >>> reports, rejected = collect([(1, {"w": bad}, 5), (0, {"w": good}, 5)], layout, np.zeros(2))
    >>> reports.clients, rejected
    (array([0]), {1: "'w' has shape (1,), expected (2,); send the arrays of the model that was broadcast"})
    """
    kept: list[tuple[int, Array, float, dict[str, Array]]] = []
    rejected: dict[int, str] = {}
    for client, arrays, size in replies:
        counters = {
            n: np.asarray(a)
            for n, a in arrays.items()
            if n not in layout.names and np.issubdtype(np.asarray(a).dtype, np.integer)
        }
        try:
            vector = layout.join({n: a for n, a in arrays.items() if n not in counters}, received.dtype)
            if kept and {n: c.shape for n, c in counters.items()} != {n: c.shape for n, c in kept[0][3].items()}:
                raise BadInput("integer buffers differ from the other clients'")
            kept.append((client, vector - received, size, counters))
        except BadInput as e:
            rejected[client] = str(e)
    kept.sort(key=lambda row: row[0])
    reports = Reports(
        np.array([row[0] for row in kept], np.int64),
        np.array([row[1] for row in kept]).reshape(len(kept), layout.size),
        np.array([row[2] for row in kept], np.float64),
        counters={n: np.stack([row[3][n] for row in kept]) for n in (kept[0][3] if kept else {})},
    )
    return reports, rejected


def guard(reports: Reports, asked: Array, d: int) -> tuple[Reports, dict[int, str]]:
    """Sort by client id and reject every row that may not enter a sum, with the reason.

    Rejected are: a client that was not asked, one that appears twice (all its rows), an update of the wrong length or
    with a NaN or infinity anywhere, a size that is negative or not finite, a count below 0. Claims that are merely
    false are not seen here; that is what scores and clipping are for.

    Examples
    --------
    >>> r = Reports(np.array([2, 0]), np.array([[1.0, 2.0], [np.nan, 0.0]]), np.array([5.0, 5.0]))
    >>> good, rejected = guard(r, np.array([0, 1, 2]), 2)
    >>> good.clients, rejected
    (array([2]), {0: 'update not finite'})
    """
    reports = take(reports, np.argsort(reports.clients, kind="stable"))
    ids, times = np.unique(reports.clients, return_counts=True)
    twice = set(ids[times > 1].tolist())
    asked_ids = set(asked.tolist())
    fits = reports.updates.ndim == 2 and reports.updates.shape[1] == d
    # A finite sum proves finite entries without a (K, d) mask; only a suspicious row is looked at in full.
    with np.errstate(over="ignore", invalid="ignore"):
        sums = reports.updates.sum(1) if fits else np.zeros(len(reports.clients))
    rejected: dict[int, str] = {}
    for i, client in enumerate(reports.clients.tolist()):
        if client not in asked_ids:
            rejected[client] = "was not asked in this round"
        elif client in twice:
            rejected[client] = "client id appears twice"
        elif not fits:
            rejected[client] = f"update has {reports.updates.shape[-1]} numbers, expected {d}"
        elif not np.isfinite(sums[i]) and not np.isfinite(reports.updates[i]).all():
            rejected[client] = "update not finite"
        elif not (np.isfinite(reports.sizes[i]) and reports.sizes[i] >= 0):
            rejected[client] = f"size {reports.sizes[i]:g} is not a number of rows"
        elif any((table[i] < 0).any() for table in reports.counts.values()):
            rejected[client] = "a count is negative"
    good = np.array([c not in rejected for c in reports.clients.tolist()], bool)
    return take(reports, good), rejected


def open_round(run: Run, snapshot: Snapshot) -> Broadcast:
    """Choose the cohort of the next round and say what it is sent."""
    t = snapshot.round + 1
    ids = np.sort(run.cohort(run.federation.clients, run.seed, t))
    return Broadcast(t, ids, snapshot.model, run.aggregator.tell(snapshot.state, ids))


def close_round(
    run: Run,
    snapshot: Snapshot,
    broadcast: Broadcast,
    reports: Reports,
    memory: Memory,
    *,
    rejected: Mapping[int, str] | None = None,
    measured: Mapping[str, Array] | None = None,
    measured_clients: Array | None = None,
) -> Round:
    """Guard the replies, let the aggregator step, and move the model; or keep the model and say why.

    The model is kept, and ``info["kept"]`` says so, when no valid reply came, when all sizes are 0, when too few are
    left for the rule, or when the aggregate or the model moved by it is not finite. A client asked but not heard of is
    in ``info["missing"]``.
    """
    asks = run.aggregator.asks
    unknown = dict(rejected or {})
    reports, bad = guard(reports, broadcast.clients, len(snapshot.model))
    bad = {**unknown, **bad}
    seen = set(reports.clients.tolist()) | set(bad)
    missing = [c for c in broadcast.clients.tolist() if c not in seen]
    shown = replace(
        reports,
        counts={m: c for m, c in reports.counts.items() if m in asks},
        figures={f: v for f, v in reports.figures.items() if f in asks},
    )
    info: dict[str, Any] = {}
    delta, state = np.zeros_like(snapshot.model), snapshot.state
    if not len(reports.clients):
        info = {"kept": "no valid reply"}
    elif not reports.sizes.sum() > 0:
        info = {"kept": "every client reports 0 rows"}
    else:
        try:
            run.aggregator.check(len(reports.clients))
        except BadInput as e:
            info = {"kept": str(e)}
        else:
            delta, stepped, state = run.aggregator.step(shown, snapshot.state)
            info = dict(stepped)
            with np.errstate(over="ignore", invalid="ignore"):
                whole = np.isfinite(snapshot.model + delta).all()
            if not whole:
                delta, state = np.zeros_like(snapshot.model), snapshot.state
                info["kept"] = "the aggregate is not finite"
    info |= {"missing": missing, "rejected": bad}
    counters = {n: c.max(0) for n, c in reports.counters.items()} if len(reports.clients) else {}
    after = Snapshot(
        broadcast.round,
        (snapshot.model + delta).astype(snapshot.model.dtype),
        state,
        memory,
        {**snapshot.counters, **counters},
    )
    return Round(
        run.name,
        broadcast,
        shown,
        info,
        after,
        measured or {},
        broadcast.clients[:0] if measured_clients is None else measured_clients,
    )


def present(run: Run, broadcast: Broadcast) -> Broadcast:
    """Return what those of the cohort are sent who are not lost this round: a client that drops out does not train."""
    ids = np.setdiff1d(broadcast.clients, run.lost(broadcast.clients, run.seed, broadcast.round))
    return replace(broadcast, clients=ids, news=rows(broadcast.news, np.searchsorted(broadcast.clients, ids)))


def closing_broadcast(run: Run, snapshot: Snapshot) -> Broadcast:
    """Everyone gets the final model once more, to measure it where it arrives."""
    return Broadcast(
        snapshot.round + 1,
        run.federation.clients,
        snapshot.model,
        run.aggregator.tell(snapshot.state, run.federation.clients),
    )


def closing(run: Run, snapshot: Snapshot, measured: Mapping[str, Array], clients: Array | None = None) -> Round:
    """Return line T + 1, in which nobody trains: what the final model does at every client, or those heard of."""
    broadcast = closing_broadcast(run, snapshot)
    nobody = Reports(broadcast.clients[:0], np.zeros((0, len(snapshot.model)), snapshot.model.dtype), np.zeros(0))
    heard = broadcast.clients if clients is None else clients
    return Round(run.name, broadcast, nobody, {}, snapshot, measured, heard, closing=True)


def remember(run: Run, snapshot: Snapshot, ids: Array, new: Memory) -> dict[str, Array]:
    """Write the memories of those who trained back to their places."""
    at = np.searchsorted(run.federation.clients, ids)
    memory = {name: values.copy() for name, values in snapshot.memory.items()}
    for name, values in memory.items():
        values[at] = new[name]
    return memory


def drive(
    runs: Sequence[Run],
    snapshots: Mapping[str, Snapshot],
    advance: Callable[[Sequence[Run], Sequence[Snapshot]], list[Round]],
    finish: Callable[[Sequence[Run], Sequence[Snapshot]], list[Round]],
) -> Iterator[list[Round]]:
    """Yield, step by step, the rounds of all runs that still have some, and at each run's end its closing line.

    Parameters
    ----------
    runs : with distinct names
    snapshots : run name -> where it stands
    advance, finish : take runs one round further; return their closing lines
    """
    live = [(run, snapshots[run.name]) for run in runs]
    while live:
        open_runs = [(run, snapshot) for run, snapshot in live if snapshot.round < run.rounds]
        step = advance([r for r, _ in open_runs], [s for _, s in open_runs])
        at = {r.run: r.after for r in step}
        live = [(run, at.get(run.name, snapshot)) for run, snapshot in live]
        over = [(run, snapshot) for run, snapshot in live if snapshot.round >= run.rounds]
        yield step + (finish([r for r, _ in over], [s for _, s in over]) if over else [])
        live = [(run, snapshot) for run, snapshot in live if snapshot.round < run.rounds]
