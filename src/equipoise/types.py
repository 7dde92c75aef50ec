"""The nouns of the house, and no logic.

Index letters, used in every shape of the package: K clients, d shared parameters, n examples, f features,
G groups, S slots (a slot is one client of one run).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
News = Mapping[str, Array]
"""What the server tells each client beside the model: name -> (K,)."""
Memory = Mapping[str, Array]
"""What clients keep between rounds: name -> (K, ...), rows in the order of the client ids."""
Info = Mapping[str, Any]
"""What an aggregator says about a step; see ``Aggregator``."""

NO_ARRAYS: Mapping[str, Array] = {}


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of one client: features ``x`` (n, f) float, labels ``y`` (n,), ``group`` (n,) in 0..G-1.

    ``y`` lies in {0, 1}, or in 0..C-1 where there are C > 2 classes. Images and signals lie flat in ``x``; the model
    gives them their shape again.
    """

    x: Array
    y: Array
    group: Array


@dataclass(frozen=True, slots=True)
class Federation:
    """Those who train: ids, their rows, and the coefficient each of them gives every term of the local loss.

    ``clients`` (K,) int64, strictly increasing. ``shards``: K training shards. ``terms``: name of a loss term ->
    (K,) coefficient; 0 means that this client does not have it. ``groups``: G. ``views``: other rows on which a
    client's model can be measured, name -> K shards ("held": the client's held-out rows; "test": the global pool).
    ``classes``: C of the labels; 2 means one logit a row, more mean C logits.
    """

    clients: Array
    shards: Sequence[Shard]
    terms: Mapping[str, Array]
    groups: int
    views: Mapping[str, Sequence[Shard]] = field(default_factory=dict)
    classes: int = 2


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Server -> clients in one round: who is asked (K,), the shared model (d,), and what else each is told."""

    round: int
    clients: Array
    model: Array
    news: News


@dataclass(frozen=True, slots=True)
class Reports:
    """Clients -> server in one round; every row is a *claim* of the client in the same place of ``clients``.

    ``clients`` (K,) int64 sorted; ``updates`` (K, d) in the run's dtype: trained minus received, shared part only;
    ``sizes`` (K,) float, training rows; ``figures``: name -> (K,) raw numbers, NaN = undefined; ``counts``:
    moment -> (K, G, 4) integer tables, columns tp fp tn fn; ``counters``: integer buffers, name -> (K, ...).

    A *moment* is "received" (the model as it came, with the client's own head) or "trained" (after local training),
    on the client's training rows; "received@test" or "trained@held" name another view of the federation.
    """

    clients: Array
    updates: Array
    sizes: Array
    figures: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, Array] = field(default_factory=dict)
    counters: Mapping[str, Array] = field(default_factory=dict)


def _nothing_told(state: Any, clients: Array) -> News:
    return {}


def _any_number(clients: int) -> None:
    return None


class Aggregator(NamedTuple):
    """A server's rule as a value: pure functions, state by client id, nothing logged.

    ``init()`` -> State, a JSON-able dict (client ids as strings); no client is known before it has reported.
    ``step(reports, state)`` -> (delta (d,), info, state). Keys of info, each where it applies, (K,) in the order of
    ``reports.clients``: ``weights``, ``scores`` (as used), ``raw_scores`` (NaN = undefined), ``norms`` (before
    clipping), ``clipped`` (bool), ``bounds`` (|w_k| C), ``fallbacks`` {client id: reason}, ``note`` (one sentence
    about the round), ``chosen`` (ids, for rules that choose), ``noise_sd`` and ``kept`` (see ``central_dp``).
    ``tell(state, clients)`` -> news for these ids. ``asks``: the moments and figures that clients must send.
    ``check(K)`` raises ``BadInput`` when K clients are too few for the rule.
    """

    init: Callable[[], Any]
    step: Callable[[Reports, Any], tuple[Array, Info, Any]]
    tell: Callable[[Any, Array], News] = _nothing_told
    asks: frozenset[str] = frozenset()
    check: Callable[[int], None] = _any_number


@dataclass(frozen=True, slots=True)
class Work:
    """What a learner is handed: one run's participants in one round. A list of these shares one stacked program.

    ``train=False`` is the closing round: the model is measured where it arrives, nobody trains.
    """

    federation: Federation
    broadcast: Broadcast
    memory: Memory
    seed: int
    asks: frozenset[str]
    train: bool = True


class Done(NamedTuple):
    """What a learner gives back for one ``Work``: the honest reports and the clients' new memories.

    ``models`` (K, P): every client's whole trained model, shared part first, private layers after it. It is for the
    laboratory's eye only (probes); a learner that does not show it gives None.
    """

    reports: Reports
    memory: Memory
    models: Array | None = None


class Problem(NamedTuple):
    """What a measure sees of S clients: their trained models in eval mode and all their training rows, as tensors.

    ``logits(params, x)``: (name -> (S, *shape), (S, B, f)) -> (S, B) or (S, B, C), differentiable twice; ``params``:
    the trained ones, detached; ``x`` (S, B, f), ``y`` (S, B), ``weight`` (S, B): 1 on real rows, 0 on padding;
    ``keys``: (seed, round, client id) of each.
    """

    logits: Callable[[Mapping[str, Any], Any], Any]
    params: Mapping[str, Any]
    x: Any
    y: Any
    weight: Any
    keys: Sequence[tuple[int, int, int]]


class Measure(NamedTuple):
    """Figures that a client computes on its own model and rows, and sends when asked for any of them.

    ``names`` of the figures; ``measure(problem, kept)`` -> (name -> (S,), kept); ``keeps``: names of vectors (S, Q)
    over the Q learned numbers that a client remembers from round to round, 0 at first, such as the last eigenvector.
    ``alone``: it is faster for one client after another, since what it holds of several leaves the processor's cache.
    """

    names: tuple[str, ...]
    measure: Callable[[Problem, Mapping[str, Any]], tuple[Mapping[str, Any], Mapping[str, Any]]]
    keeps: tuple[str, ...] = ()
    alone: bool = False


class Learner(NamedTuple):
    """``init(federation, seed)`` -> (model (d,), memory); ``work([Work])`` -> [Done], in the same order."""

    init: Callable[[Federation, int], tuple[Array, Memory]]
    work: Callable[[Sequence[Work]], list[Done]]


@dataclass(slots=True)
class Local:
    """What a term of the local loss sees: torch tensors with the slot axis first.

    ``params``: current parameters, name -> (S, *shape); ``anchor``: those received, shared ones only; ``x`` (S, B, f);
    ``y``, ``group``, ``weight`` (S, B), weight 0 marks padding and carries the class balance; ``logits`` (S, B), or
    (S, B, C) where there are more than two classes; ``news``: name -> (S,).
    """

    params: Mapping[str, Any]
    anchor: Mapping[str, Any]
    x: Any
    y: Any
    group: Any
    weight: Any
    logits: Any
    news: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a run is between two rounds: arrays and JSON, keyed by client id."""

    round: int
    model: Array
    state: Any
    memory: Memory
    counters: Mapping[str, Array] = field(default_factory=dict)


def _everyone(clients: Array, seed: int, t: int) -> Array:
    return clients


def _nobody(clients: Array, seed: int, t: int) -> Array:
    return clients[:0]


def _honest(reports: Reports, broadcast: Broadcast) -> Reports:
    return reports


def _nothing_observed(t: int) -> frozenset[str]:
    return frozenset()


def _nothing_probed(done: Done, broadcast: Broadcast) -> Mapping[str, Any]:
    return {}


Choice = Callable[[Array, int, int], Array]
"""(client ids, seed, round) -> some of them."""


@dataclass(frozen=True, slots=True)
class Run:
    """All of a run that does not change.

    ``cohort``: who is asked. ``lost``: who never trains this round. ``late``: who trains, but whose reply comes too
    late. ``tamper``: reports -> hostile reports, on its members' rows only. ``observes``: round -> moments that the
    laboratory measures and records, and that no aggregator sees. ``probe``: (Done, Broadcast) -> what an attack on
    privacy finds out in this round, JSON-able; written to the record, shown to no aggregator.
    """

    name: str
    federation: Federation
    aggregator: Aggregator
    seed: int
    rounds: int
    cohort: Choice = _everyone
    lost: Choice = _nobody
    late: Choice = _nobody
    tamper: Callable[[Reports, Broadcast], Reports] = _honest
    observes: Callable[[int], frozenset[str]] = _nothing_observed
    probe: Callable[[Done, Broadcast], Mapping[str, Any]] = _nothing_probed


@dataclass(frozen=True, slots=True)
class Round:
    """One line of the record: what was sent, what came back, what the server made of it, and the run after it.

    ``measured``: what the laboratory observed, moment -> (K, G, 4) over ``measured_clients``; ``probed``: what its
    attacks on privacy found. ``closing`` marks the last line, in which nobody trains.
    """

    run: str
    broadcast: Broadcast
    reports: Reports
    info: Info
    after: Snapshot
    measured: Mapping[str, Array] = field(default_factory=dict)
    measured_clients: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    closing: bool = False
    probed: Mapping[str, Any] = field(default_factory=dict)
