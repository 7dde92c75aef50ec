"""A learner in thirty lines of NumPy, so that drivers and records are tested without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from equipoise.metrics import counts
from equipoise.rounds import stream
from equipoise.types import Aggregator, Array, Done, Federation, Learner, Memory, Reports, Shard, Work

FEATURES = 3


def federation(seed: int = 0, clients: int = 4, n: int = 40) -> Federation:
    """Clients whose groups differ a little; a pool that all of them are measured on."""
    shards = []
    for k in range(clients + 1):
        r = stream(seed, "toy data", 0, k)
        x, group = r.normal(size=(n, FEATURES)), r.integers(0, 2, n)
        shards.append(Shard(x, (x[:, 0] + 0.5 * group + r.normal(size=n) > 0).astype(int), group))
    return Federation(np.arange(clients), shards[:-1], {}, 2, {"test": [shards[-1]] * clients})


def learner(lr: float = 0.5) -> Learner:
    """One noisy gradient step of logistic regression; memory counts the rounds in which a client has trained."""

    def init(fed: Federation, seed: int) -> tuple[Array, Memory]:
        return np.zeros(FEATURES), {"times": np.zeros(len(fed.clients), np.int64)}

    def measure(w: Array, shard: Shard, groups: int) -> Array:
        return counts(shard.y, (shard.x @ w > 0).astype(int), shard.group, groups)

    def work(works: Sequence[Work]) -> list[Done]:
        out = []
        for work in works:
            fed, model = work.federation, work.broadcast.model
            trained = []
            for k, shard in zip(fed.clients.tolist(), fed.shards, strict=True):
                p = 1 / (1 + np.exp(-shard.x @ model))
                noise = stream(work.seed, "toy", work.broadcast.round, k).normal(0, 0.01, FEATURES)
                trained.append(model - (lr * (shard.x.T @ (p - shard.y)) / len(shard.y) + noise) * work.train)
            figures = {}
            for ask in work.asks:
                moment, _, view = ask.partition("@")
                where = fed.views[view] if view else fed.shards
                models = trained if moment == "trained" else [model] * len(trained)
                figures[ask] = np.stack([measure(w, s, fed.groups) for w, s in zip(models, where, strict=True)])
            sizes = np.array([float(len(s.y)) for s in fed.shards])
            reports = Reports(fed.clients, np.array(trained) - model, sizes, {}, figures)
            out.append(Done(reports, {"times": work.memory["times"] + work.train}))
        return out

    return Learner(init, work)


def mean_rule(*, needs: int = 1) -> Aggregator:
    """Plain mean that remembers how often each client has reported."""
    from equipoise.checks import BadInput

    def check(k: int) -> None:
        if k < needs:
            raise BadInput(f"the rule needs {needs} clients, got {k}")

    def step(r: Reports, state: dict[str, int]) -> tuple[Array, dict[str, Array], dict[str, int]]:
        seen = {str(c): state.get(str(c), 0) + 1 for c in r.clients.tolist()}
        norms = np.linalg.norm(r.updates, axis=1)
        return (
            r.updates.mean(0),
            {"weights": np.full(len(r.clients), 1 / len(r.clients)), "norms": norms},
            {**state, **seen},
        )

    return Aggregator(dict, step, asks=frozenset({"trained"}), check=check)
