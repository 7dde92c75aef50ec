"""Rounds of many runs on one machine, as a pure function of their snapshots.

All runs handed in together share one program of the learner; each may be at a round of its own, so resumed runs mix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from .rounds import close_round, closing, closing_broadcast, drive, open_round, part, present, remember, rows, take
from .types import Broadcast, Done, Learner, Reports, Round, Run, Snapshot, Work


def start(run: Run, learner: Learner) -> Snapshot:
    """Return the run before its first round: the initial model, empty server state, fresh client memories."""
    model, memory = learner.init(run.federation, run.seed)
    return Snapshot(0, model, run.aggregator.init(), memory)


def _work_of_the_present(run: Run, snapshot: Snapshot, broadcast: Broadcast) -> Work:
    """Those of the cohort who are not lost this round: a client that drops out has not trained."""
    here = present(run, broadcast)
    ids = here.clients
    memory = rows(snapshot.memory, np.searchsorted(run.federation.clients, ids))
    asks = run.aggregator.asks | run.observes(broadcast.round)
    return Work(part(run.federation, ids), here, memory, run.seed, asks)


def _learn(learner: Learner, works: Sequence[Work]) -> Iterator[Done]:
    """Let the learner work; a run of which nobody is left does not reach it."""
    done = iter(learner.work([w for w in works if len(w.federation.clients)]))
    for w in works:
        if len(w.federation.clients):
            yield next(done)
        else:
            model = w.broadcast.model
            yield Done(Reports(w.broadcast.clients, np.zeros((0, len(model)), model.dtype), np.zeros(0)), w.memory)


def advance(runs: Sequence[Run], snapshots: Sequence[Snapshot], learner: Learner) -> list[Round]:
    """Take every run one round further.

    Lost clients have not trained; late ones have, and their memory moves on, but their reply is dropped. Tampering
    touches what is sent, after honest work. What the laboratory observes is recorded and shown to no aggregator.
    """
    broadcasts = [open_round(run, snapshot) for run, snapshot in zip(runs, snapshots, strict=True)]
    works = [_work_of_the_present(*three) for three in zip(runs, snapshots, broadcasts, strict=True)]
    out = []
    for run, snapshot, broadcast, work, done in zip(
        runs, snapshots, broadcasts, works, _learn(learner, works), strict=True
    ):
        t, ids = broadcast.round, work.federation.clients
        late = np.intersect1d(run.late(broadcast.clients, run.seed, t), ids)
        sent = run.tamper(done.reports, broadcast)
        memory = remember(run, snapshot, ids, done.memory)
        observed = {m: done.reports.counts[m] for m in run.observes(t) if m in done.reports.counts}
        in_time = take(sent, ~np.isin(sent.clients, late))
        closed = close_round(run, snapshot, broadcast, in_time, memory, measured=observed, measured_clients=ids)
        info = {**closed.info, "late": late.tolist()} if len(late) else closed.info
        out.append(replace(closed, info=info, probed=run.probe(done, work.broadcast) if len(ids) else {}))
    return out


def finish(runs: Sequence[Run], snapshots: Sequence[Snapshot], learner: Learner) -> list[Round]:
    """Return the closing line of every run: nobody trains, the final model is measured where it arrives."""
    works = []
    for run, snapshot in zip(runs, snapshots, strict=True):
        asks = frozenset(m for m in run.observes(snapshot.round + 1) if m.startswith("received"))
        works.append(
            Work(run.federation, closing_broadcast(run, snapshot), snapshot.memory, run.seed, asks, train=False)
        )
    return [
        closing(run, snapshot, done.reports.counts)
        for run, snapshot, done in zip(runs, snapshots, learner.work(works), strict=True)
    ]


def simulate(
    runs: Sequence[Run], learner: Learner, snapshots: Mapping[str, Snapshot] | None = None
) -> Iterator[list[Round]]:
    """Yield, step by step, the rounds of all runs that still have some, and at each run's end its closing line.

    Parameters
    ----------
    runs : with distinct names, all fit for the learner's program
    snapshots : run name -> where to go on; a run without one starts at round 0

    Yields
    ------
    The rounds of one step, in the order of ``runs``, closing lines last. Everything between two steps is in the
    rounds' ``after``, so a driver may stop after any step and go on from there with equal bits.
    """
    given = snapshots or {}
    started = {run.name: given[run.name] if run.name in given else start(run, learner) for run in runs}
    yield from drive(runs, started, partial(advance, learner=learner), partial(finish, learner=learner))
