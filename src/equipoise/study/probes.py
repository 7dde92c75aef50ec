"""The laboratory's attacks on privacy in a run: who holds a record, and whether it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..attacks import inference
from ..checks import BadInput
from ..metrics import dispersion
from ..rounds import stream
from ..types import Array, Broadcast, Done, Federation, Learner, Shard, Work
from .cells import Cell
from .schema import Inference, Study

PUBLIC = 500
"""Rows of the test pool that stand for public data, on which a server that sees the shared layers trains a head."""


@dataclass(frozen=True)
class Eyes:
    """What it takes to look at trained models: the learner, its model, what of it is shared, and if it is split."""

    learner: Learner
    build: Callable[[], Any]
    shared: Sequence[str]
    split: bool


class Records(NamedTuple):
    """Records of several clients under each other: rows, and whose they are, by place in the federation."""

    x: Array
    y: Array
    group: Array
    owner: Array
    member: Array


def probe(cell: Cell, study: Study, seed: int, eyes: Eyes) -> Callable[[Done, Broadcast], Mapping[str, Any]]:
    """Return what looks at every round of a run, and finds out what the study asks for."""
    section = study.inference or Inference()
    if not eyes.shared and (section.source or section.membership):
        raise BadInput(
            "inference looks at what the server sees, and with nothing shared (silo) it sees nothing; leave that "
            'architecture out, or set inference = "none"'
        )
    if section.membership and eyes.split:
        raise BadInput(
            'inference.membership needs the whole of each client\'s model, and with model.architecture = "splitml" the '
            'server sees a part; use architecture = "full"'
        )
    targets = _targets(cell, section, seed) if section.source else None
    suspects = _suspects(cell, section, seed) if section.membership else None

    def look(done: Done, broadcast: Broadcast) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        t = broadcast.round
        if targets is not None and (t - 1) % section.source == 0 and len(broadcast.clients) > 1:
            found["source"] = _source(cell, targets, done, broadcast, eyes)
        if suspects is not None and t == study.rounds:
            found["membership"] = _membership(cell, suspects, section, done, broadcast, eyes, seed)
        return found

    return look


def _drawn(shard: Shard, most: int, seed: int, purpose: str, client: int) -> Array:
    """Draw at most so many rows of a shard, sorted."""
    n = len(shard.y)
    return np.sort(stream(seed, purpose, 0, client).choice(n, min(most, n), replace=False))


def _stacked(parts: Sequence[tuple[Shard, Array, int, bool]]) -> Records:
    """Lay rows of several shards under each other: (shard, rows, owner, whether they were trained on)."""
    return Records(
        np.concatenate([s.x[rows] for s, rows, _, _ in parts]),
        np.concatenate([s.y[rows] for s, rows, _, _ in parts]),
        np.concatenate([s.group[rows] for s, rows, _, _ in parts]),
        np.concatenate([np.full(len(rows), owner) for _, rows, owner, _ in parts]),
        np.concatenate([np.full(len(rows), member) for _, rows, _, member in parts]),
    )


def _held(cell: Cell, why: str) -> Sequence[Shard]:
    if "held" not in cell.federation.views:
        raise BadInput(f"{why} needs rows that the clients do not train on; set data.held_fraction, such as 0.2")
    return cell.federation.views["held"]


def _targets(cell: Cell, section: Inference, seed: int) -> Records:
    """Choose the records whose owner is to be found: rows trained on, unless the study asks for FinP's choice."""
    shards, held = cell.federation.shards, None
    if section.drawn == "all":
        others = _held(cell, 'inference.drawn = "all"')
        held = [len(s.y) for s in others]
        shards = [_joined(*pair) for pair in zip(shards, others, strict=True)]
    sizes = [len(s.y) for s in cell.federation.shards]
    ids = cell.federation.clients
    rows = inference.targets(sizes, seed=seed, clients=ids, per_client=section.targets, even=section.even, held=held)
    return _stacked([(s, at, k, True) for k, (s, at) in enumerate(zip(shards, rows, strict=True))])


def _suspects(cell: Cell, section: Inference, seed: int) -> Records:
    """Choose rows that each client trained on and rows that it did not."""
    held = _held(cell, "inference.membership")
    parts = []
    for k, (own, other) in enumerate(zip(cell.federation.shards, held, strict=True)):
        parts.append((own, _drawn(own, section.targets, seed, "members", k), k, True))
        parts.append((other, _drawn(other, section.targets, seed, "others", k), k, False))
    return _stacked(parts)


def _joined(a: Shard, b: Shard) -> Shard:
    return Shard(*(np.concatenate(pair) for pair in ((a.x, b.x), (a.y, b.y), (a.group, b.group))))


def _of(records: Records, keep: Array) -> Records:
    return Records(*(column[keep] for column in records))


def _source(cell: Cell, targets: Records, done: Done, broadcast: Broadcast, eyes: Eyes) -> dict[str, Any]:
    """Accuse, for every target of those who take part, the client whose model betrays it most."""
    from .. import learners

    here = _of(targets, np.isin(cell.federation.clients[targets.owner], broadcast.clients))
    owner = cell.federation.clients[here.owner]
    models = _models(done)
    losses = {"loss": learners.losses(eyes.build, eyes.shared, models, here.x, here.y)}
    if eyes.split:
        pool = cell.federation.views["test"][0]
        public = _rows(pool, _drawn(pool, PUBLIC, cell.seed, "public", 0))  # the pool may lie in the order of clients
        seen = learners.features(eyes.build, eyes.shared, models, here.x)
        known = learners.features(eyes.build, eyes.shared, models, public.x)
        attacks = {"probe_head": inference.probe_head_losses, "nearest": inference.nearest_feature_losses}
        losses = {n: _where_finite(attack, known, public.y, seen, here.y) for n, attack in attacks.items()} | {
            "oracle": losses["loss"]
        }
    groups = cell.federation.groups
    return {name: _traced(table, owner, here.group, groups, broadcast) for name, table in losses.items()}


def _where_finite(attack: Callable[..., Array], known: Array, of_known: Array, seen: Array, y: Array) -> Array:
    """Attack the clients whose features are numbers; the others' column of (n, K) is NaN, and accuses nobody."""
    whole = np.isfinite(known).all((1, 2)) & np.isfinite(seen).all((1, 2))
    out = np.full((seen.shape[1], len(seen)), np.nan)
    if whole.any():
        out[:, whole] = attack(known[whole], of_known, seen[whole], y)
    return out


def _traced(losses: Array, owner: Array, group: Array, groups: int, broadcast: Broadcast) -> dict[str, Any]:
    """What one attack found: shares per client with level and dispersion, and the loss matrix with its own."""
    ids = broadcast.clients
    found = inference.exposure(losses, owner, ids, group, groups)
    matrix = inference.loss_matrix(losses, owner, ids)
    spread, apart = dispersion(found.success), inference.loss_dispersion(matrix)
    return {
        "clients": ids,
        "targets": found.targets.sum(1),
        "success": found.success,
        "overall": found.overall,
        "chance": found.chance,
        **({"groups": found.by_group} if groups > 1 else {}),
        **{name: value for name, value in spread._asdict().items() if name != "clients"},
        "loss_matrix": matrix,
        **{f"loss_{name}": value for name, value in apart._asdict().items() if name != "clients"},
    }


def _models(done: Done) -> Array:
    if done.models is None:
        raise BadInput("this learner does not show trained models, and an attack on privacy needs them")
    return done.models


def _membership(
    cell: Cell, suspects: Records, section: Inference, done: Done, broadcast: Broadcast, eyes: Eyes, seed: int
) -> dict[str, Any]:
    """Tell trained-on rows of every client that takes part from held-out ones, by each attack asked for."""
    from .. import learners

    models = _models(done)
    places = [int(np.searchsorted(cell.federation.clients, c)) for c in broadcast.clients]
    own = [_of(suspects, suspects.owner == k) for k in places]
    losses = [learners.losses(eyes.build, eyes.shared, models[i : i + 1], r.x, r.y)[:, 0] for i, r in enumerate(own)]
    scores: dict[str, list[Array]] = {}
    if "loss" in section.membership:
        scores["loss"] = [inference.loss_scores(v) for v in losses]
    if {"lira_offline", "lira_online"} & set(section.membership):
        online, offline = _lira(cell, own, places, losses, section, broadcast, eyes, seed)
        scores |= {n: s for n, s in (("lira_offline", offline), ("lira_online", online)) if n in section.membership}
    if "cosine" in section.membership:
        scores["cosine"] = _cosine(cell, own, places, section, done, broadcast, eyes, seed)
    return {name: _told(each, own, broadcast.clients, cell.federation.groups) for name, each in scores.items()}


def _told(scores: Sequence[Array], own: Sequence[Records], clients: Array, groups: int) -> dict[str, Any]:
    """Figures of one attack per client, as columns, and its AUC per group over all clients."""
    of = np.concatenate([np.full(len(r.member), c) for c, r in zip(clients, own, strict=True)])
    group = np.concatenate([r.group for r in own])
    found = inference.membership(np.concatenate(scores), np.concatenate([r.member for r in own]), of, group)
    nobody = inference.membership(np.zeros(0), np.zeros(0)).overall
    each = [found.clients.get(int(c), nobody) for c in clients]
    out = {"clients": clients} | {name: [getattr(one, name) for one in each] for name in each[0]._fields}
    if groups > 1:
        known = found.groups
        out["auc_of_groups"] = [known[g].auc if g in known else np.nan for g in range(groups)]
    return out


def _mock(
    shards: Sequence[Shard], like: Federation, broadcast: Broadcast, eyes: Eyes, seed: int, purpose: str
) -> Array:
    """Train a mock client on each shard from the model that was broadcast, on the plain loss: (M, P) models."""
    ids = np.arange(len(shards), dtype=np.int64)
    mock = Federation(ids, shards, {"cross_entropy": np.ones(len(ids))}, like.groups, classes=like.classes)
    own = int(stream(seed, purpose, broadcast.round).integers(2**53))
    memory = eyes.learner.init(mock, own)[1]
    sent = Broadcast(broadcast.round, ids, broadcast.model, {})
    return _models(eyes.learner.work([Work(mock, sent, memory, own, frozenset())])[0])


def _lira(
    cell: Cell,
    own: Sequence[Records],
    places: Sequence[int],
    losses: Sequence[Array],
    section: Inference,
    broadcast: Broadcast,
    eyes: Eyes,
    seed: int,
) -> tuple[list[Array], list[Array]]:
    """Shadow models of every client, each on a random half of its suspects; (online, offline) scores per client."""
    from .. import learners

    online, offline = [], []
    for k, records, observed in zip(places, own, losses, strict=True):
        inside = inference.shadow_rows(len(records.y), section.shadows, seed=seed, client=k)
        shards = [Shard(records.x[m], records.y[m], records.group[m]) for m in inside]
        models = _mock(shards, cell.federation, broadcast, eyes, seed, f"shadows {k}")
        found = learners.losses(eyes.build, eyes.shared, models, records.x, records.y).T
        phi, shadows = inference.logit_confidence(observed), inference.logit_confidence(found)
        without = np.where(inside, np.nan, shadows)
        online.append(inference.lira_online(phi, np.where(inside, shadows, np.nan), without))
        offline.append(inference.lira_offline(phi, without))
    return online, offline


def _cosine(
    cell: Cell,
    own: Sequence[Records],
    places: Sequence[int],
    section: Inference,
    done: Done,
    broadcast: Broadcast,
    eyes: Eyes,
    seed: int,
) -> list[Array]:
    """Train the attack on mock trainings of the first client, whose rows the attacker knows, and try it on the others.

    The first client's own scores are undefined: it is no victim.
    """
    from .. import learners

    known, first = own[0], cell.federation.shards[places[0]]
    n, kept = len(first.y), max(1, round(0.8 * len(first.y)))
    draws = [np.sort(stream(seed, "mock", m, places[0]).permutation(n)[:kept]) for m in range(section.shadows)]
    models = _mock([_rows(first, d) for d in draws], cell.federation, broadcast, eyes, seed, "mock")
    moved = models[:, : len(broadcast.model)] - broadcast.model
    at = _drawn(first, section.targets, seed, "members", places[0])  # places in the shard of the known members
    inside = np.array([[*np.isin(at, d), *np.zeros(len(known.y) - len(at), bool)] for d in draws])

    def features(records: Records, updates: Array) -> Array:
        return learners.cosines(eyes.build, eyes.shared, broadcast.model, updates, records.x, records.y)

    seen = features(known, moved)  # (n, M, L)
    train = np.concatenate([seen[:, m] for m in range(len(draws))])
    victims = [features(r, done.reports.updates[i : i + 1])[:, 0] for i, r in enumerate(own)]
    scores = inference.cosine_attack(train, inside.ravel(), np.concatenate(victims), seed=seed)
    each = np.split(scores, np.cumsum([len(v) for v in victims])[:-1])
    return [np.full(len(each[0]), np.nan), *each[1:]]


def _rows(shard: Shard, at: Array) -> Shard:
    return Shard(shard.x[at], shard.y[at], shard.group[at])
