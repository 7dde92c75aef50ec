"""An aggregator as a Flower strategy: it opens a round, waits for replies, judges their form, and closes the round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import INFO, getLogger

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ..checks import BadInput
from ..layout import Layout
from ..rounds import close_round, closing, closing_broadcast, collect, drive, open_round, present, stream, take
from ..types import Aggregator, Array, Broadcast, Federation, Round, Run, Snapshot
from .messages import Reply, open_reply, pack_arrays, pack_request, requests, stack

LOG = getLogger("flwr")

POLL = 0.25
"""Seconds between two looks for replies; Flower's own wait is 3 s."""


@dataclass(frozen=True)
class Peers:
    """Who can be reached, and how long to wait.

    Parameters
    ----------
    nodes : client id -> node id; who answers is known by the node, never by what it claims
    federation : a number that belongs to the run folder; clients tell runs apart by it
    quorum : fewest valid replies for the model to move; with fewer it stays, and the round says so
    deadline : seconds that a round waits for replies
    """

    nodes: Mapping[int, int]
    federation: str = ""
    quorum: int = 1
    deadline: float = 3600.0


@dataclass(frozen=True)
class Asked:
    """The messages of one run and round, and who they went to."""

    run: Run
    snapshot: Snapshot
    broadcast: Broadcast
    messages: Sequence[Message]
    train: bool = True


def ask(run: Run, snapshot: Snapshot, layout: Layout, peers: Peers) -> Asked:
    """Open a round: write a message to everyone who is asked."""
    broadcast = open_round(run, snapshot)
    asks = run.aggregator.asks | run.observes(broadcast.round)
    heard = _heard(run, snapshot)
    return Asked(run, snapshot, broadcast, _messages(run, present(run, broadcast), layout, asks, peers, heard))


def ask_closing(run: Run, snapshot: Snapshot, layout: Layout, peers: Peers) -> Asked:
    """Ask everyone to measure the final model where it arrives."""
    broadcast = closing_broadcast(run, snapshot)
    asks = frozenset(m for m in run.observes(broadcast.round) if m.startswith("received"))
    messages = _messages(run, broadcast, layout, asks, peers, _heard(run, snapshot), MessageType.EVALUATE)
    return Asked(run, snapshot, broadcast, messages, train=False)


def close(asked: Asked, replies: Iterable[Message], layout: Layout, peers: Peers) -> Round:
    """Close a round with the replies that came: what does not fit is rejected and named, silence too."""
    run, broadcast, snapshot = asked.run, asked.broadcast, asked.snapshot
    good, rejected = _judge(asked, replies, peers)
    figures, counts = stack(good)
    ids = np.array(sorted(good), np.int64)
    observes = run.observes(broadcast.round)
    measured = {m: c for m, c in counts.items() if m in observes}
    if not asked.train:
        return closing(run, snapshot, measured, ids)
    reports, misfits = collect([(c, good[c].arrays, good[c].size) for c in sorted(good)], layout, snapshot.model)
    fits = np.isin(ids, reports.clients)
    whole = replace(
        reports,
        figures={n: v[fits] for n, v in figures.items()},
        counts={m: c[fits] for m, c in counts.items()},
    )
    late = np.intersect1d(run.late(broadcast.clients, run.seed, broadcast.round), ids)
    in_time = take(whole, ~np.isin(whole.clients, late))
    memory = {"heard": _heard(run, snapshot).copy()}
    memory["heard"][np.isin(run.federation.clients, ids)] = broadcast.round
    closed = close_round(
        _with_quorum(run, peers.quorum),
        snapshot,
        broadcast,
        in_time,
        memory,
        rejected=rejected | misfits,
        measured=measured,
        measured_clients=ids,
    )
    return replace(closed, info={**closed.info, "late": late.tolist()}) if len(late) else closed


def exchange(grid: Grid, messages: Sequence[Message], deadline: float) -> list[Message]:
    """Send messages and collect replies until all are there or the deadline has passed; sorted by node."""
    waiting = set(grid.push_messages(messages))
    until, replies = time.monotonic() + deadline, []
    while waiting:
        got = list(grid.pull_messages(waiting))
        replies += got
        waiting -= {m.metadata.reply_to_message_id for m in got}
        if not waiting or time.monotonic() > until:
            break
        time.sleep(POLL)
    return sorted(replies, key=lambda m: m.metadata.src_node_id)


def federate(
    runs: Sequence[Run], snapshots: Mapping[str, Snapshot], layout: Layout, grid: Grid, peers: Peers
) -> Iterator[list[Round]]:
    """Yield the rounds of runs whose clients are Flower nodes, as ``simulate`` yields those of clients on this machine.

    Messages of all runs go out together; everything between two steps is in the rounds' ``after``.
    """

    def step(
        how: Callable[[Run, Snapshot, Layout, Peers], Asked], some: Sequence[Run], at: Sequence[Snapshot]
    ) -> list[Round]:
        asked = [how(run, snapshot, layout, peers) for run, snapshot in zip(some, at, strict=True)]
        replies = exchange(grid, [m for a in asked for m in a.messages], peers.deadline)
        by_run = {a.run.name: [m for m in replies if m.metadata.group_id == _group(a.run, a.broadcast)] for a in asked}
        return [close(a, by_run[a.run.name], layout, peers) for a in asked]

    yield from drive(runs, snapshots, partial(step, ask), partial(step, ask_closing))


def first_snapshot(run: Run, model: Array) -> Snapshot:
    """Return a run before its first round; what clients remember stays with them."""
    return Snapshot(0, model, run.aggregator.init(), {"heard": np.zeros(len(run.federation.clients), np.int64)})


def _heard(run: Run, snapshot: Snapshot) -> Array:
    """The round (K,) in which the server last heard from each client; 0 if never."""
    return snapshot.memory.get("heard", np.zeros(len(run.federation.clients), np.int64))


def _messages(
    run: Run,
    broadcast: Broadcast,
    layout: Layout,
    asks: frozenset[str],
    peers: Peers,
    heard: Array,
    kind: str = MessageType.TRAIN,
) -> list[Message]:
    last = dict(zip(run.federation.clients.tolist(), heard.tolist(), strict=True))
    return [
        Message(pack_request(r), peers.nodes[r.client], kind, group_id=_group(run, broadcast))
        for r in requests(run.name, broadcast, layout, asks, peers.federation, last)
        if r.client in peers.nodes
    ]


def _group(run: Run, broadcast: Broadcast) -> str:
    return f"{run.name} {broadcast.round}"


def _judge(asked: Asked, replies: Iterable[Message], peers: Peers) -> tuple[dict[int, Reply], dict[int, str]]:
    """Sort replies into those that can be read and those that cannot, by client id; the silent are named too."""
    clients = {node: client for client, node in peers.nodes.items()}
    good: dict[int, Reply] = {}
    rejected: dict[int, str] = {}
    run = asked.run
    for message in replies:
        node = message.metadata.src_node_id
        client = clients.get(node, node)
        if message.has_error():
            rejected[client] = f"no reply: {message.error.reason or f'error {message.error.code}'}"
        else:
            try:
                asks = run.aggregator.asks if asked.train else frozenset()
                good[client] = open_reply(message.content, run.federation.groups, asks, trained=asked.train)
            except BadInput as e:
                rejected[client] = str(e)
    silent = {clients[m.metadata.dst_node_id] for m in asked.messages} - set(good) - set(rejected)
    return good, rejected | dict.fromkeys(sorted(silent), f"no reply within {peers.deadline:g} s")


def _with_quorum(run: Run, quorum: int) -> Run:
    inner = run.aggregator

    def check(clients: int) -> None:
        if clients < quorum:
            raise BadInput(f"{clients} valid replies, and the quorum is {quorum}")
        inner.check(clients)

    return replace(run, aggregator=inner._replace(check=check))


class AggregatorStrategy(Strategy):
    """Any aggregator as a strategy for people who keep their own training code.

    Clients answer with their trained ``arrays`` and the numbers the rule asks for: see ``fairness_record`` and
    ``curvature_record``. Nodes are numbered in the order in which they are first seen; state follows that number.

    Parameters
    ----------
    aggregator : such as ``aggregate.weighted(weights.fairis, score, eta=1.1)``
    groups : G of the count tables that clients send
    fraction : share of the nodes that is asked in a round
    quorum : fewest valid replies for the model to move
    seed : of the draw of who is asked
    on_round : called with every closed ``Round``, such as a tracker's

    Attributes
    ----------
    history : the rounds so far, with every client's claims, scores and weight, and who was rejected and why

    Raises
    ------
    BadInput : from ``configure_train``, if no node is connected

    Examples
    --------
    >>> from equipoise import aggregate, weights
    >>> strategy = AggregatorStrategy(aggregate.weighted(weights.uniform), quorum=2)

    Started with Flower's own ``strategy.start(grid, initial_arrays, num_rounds)``.

    Notes
    -----
    Flower's own strategies end the run on one invalid reply and forget what each client sent; this one does neither.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        *,
        groups: int = 2,
        fraction: float = 1.0,
        quorum: int = 1,
        seed: int = 0,
        on_round: Callable[[Round], object] = lambda r: None,
    ) -> None:
        self.aggregator, self.groups, self.fraction = aggregator, groups, fraction
        self.quorum, self.seed, self.on_round = quorum, seed, on_round
        self.history: list[Round] = []
        self._nodes: dict[int, int] = {}
        self._layout = Layout((), ())
        self._asked: Asked | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Open a round: number the nodes, draw the cohort, and write everyone a message."""
        seen = set(self._nodes.values())
        here = sorted(grid.get_node_ids())
        for node in here:
            if node not in seen:
                self._nodes[len(self._nodes)] = node
        if not here:
            raise BadInput("no node is connected; start one, or wait before start()")
        named = {n: a.numpy() for n, a in arrays.items()}
        weights = {n: a for n, a in named.items() if a.dtype.kind == "f"}
        self._layout = Layout(tuple(weights), tuple(a.shape for a in weights.values()))
        model = self._layout.join(weights, np.result_type(*weights.values()))
        state = self.history[-1].after.state if self.history else self.aggregator.init()
        present_ids = np.array([c for c, node in self._nodes.items() if node in here], np.int64)

        def cohort(clients: Array, seed: int, t: int) -> Array:
            n = max(1, round(self.fraction * len(present_ids)))
            return np.sort(stream(seed, "cohort", t).choice(present_ids, n, replace=False))

        everyone = Federation(np.arange(len(self._nodes)), [], {}, self.groups)
        run = Run("flower", everyone, self.aggregator, self.seed, server_round, cohort=cohort)
        counters = {n: a for n, a in named.items() if n not in weights}
        snapshot = Snapshot(server_round - 1, model, state, {}, counters)
        self._asked = ask(run, snapshot, self._layout, self._peers())
        for message in self._asked.messages:
            for key, value in config.items():
                message.content.config_records["config"].setdefault(key, value)
            message.content.array_records["arrays"].update({n: a for n, a in arrays.items() if n in counters})
        return self._asked.messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the round; what every client sent, and what became of it, goes to ``history``."""
        if self._asked is None:
            raise BadInput("aggregate_train was called before configure_train; use start()")
        closed = close(self._asked, replies, self._layout, self._peers())
        self.history.append(closed)
        self.on_round(closed)
        arrays = pack_arrays(self._layout.split(closed.after.model) | dict(closed.after.counters))
        valid, rejected = len(closed.reports.clients), len(closed.info["rejected"])
        return arrays, MetricRecord({"valid-replies": valid, "rejected": rejected})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: counts of the received model come with the training reply, at half the time of a round."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, as nobody was asked."""
        return None

    def summary(self) -> None:
        """Log what the rule asks of clients."""
        asks = ", ".join(sorted(self.aggregator.asks)) or "nothing"
        LOG.log(INFO, "\t--> clients send, beside their model: %s", asks)

    def _peers(self) -> Peers:
        return Peers(self._nodes, quorum=self.quorum)
