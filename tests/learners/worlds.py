"""Small federations, a learner on them, and a run of some rounds: what the tests of this room share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from equipoise import models, objectives
from equipoise.learners import stacked
from equipoise.types import Array, Broadcast, Done, Federation, Learner, Memory, Shard, Work

FEATURES = 7
TERMS = {
    "cross_entropy": objectives.cross_entropy,
    "disparity": objectives.disparity,
    "gaming": objectives.gaming,
    "proximal": objectives.proximal,
}


def count(y: Array, yhat: Array, group: Array, groups: int) -> Array:
    """Count one row after another: the oracle of every faster way."""
    table = np.zeros((groups, 4), np.int64)
    for truth, said, g in zip(y, yhat, group, strict=True):
        column = (0 if truth else 1) if said else (3 if truth else 2)
        table[g, column] += 1
    return table


def shard(n: int, seed: int, groups: int = 2) -> Shard:
    """Draw n rows whose label depends on the features and a little on the group, which one feature betrays."""
    rng = np.random.default_rng(seed)
    x, group = rng.standard_normal((n, FEATURES)), rng.integers(0, groups, n)
    x[:, 3] = x[:, 3] / 4 + group
    y = (x[:, 0] + 0.5 * x[:, 1] * x[:, 2] + 0.5 * group + 0.3 * rng.standard_normal(n) > 0.3).astype(np.int64)
    return Shard(x, y, group)


def federation(sizes: tuple[int, ...] = (50, 130, 75), seed: int = 0, **terms: list[float]) -> Federation:
    """Build clients of these sizes with cross-entropy and what else is given."""
    ones = np.ones(len(sizes))
    shards = [shard(n, 100 * seed + i) for i, n in enumerate(sizes)]
    told = {name: np.array(c, float) for name, c in terms.items()}
    return Federation(np.arange(len(sizes)), shards, {"cross_entropy": ones} | told, 2)


def net() -> torch.nn.Module:
    """Build a small perceptron."""
    return models.mlp(FEATURES, hidden=(6, 5))


def learner(build=net, shared: int | None = 1, terms=TERMS, **options) -> Learner:
    """Build a learner with few steps."""
    options = {"steps": 6, "batch": 16, "count": count} | options
    return stacked(build, shared=models.shared_names(build(), shared), terms=terms, **options)


def open_work(
    fed: Federation, model: Array, memory: Memory, t: int = 1, seed: int = 1, asks=(), target: float = 0.3
) -> Work:
    """Hand a model to everyone."""
    news = {"F_global": np.full(len(fed.clients), target)}
    return Work(fed, Broadcast(t, fed.clients, model, news), memory, seed, frozenset(asks))


def run(who: Learner, fed: Federation, rounds: int = 3, seed: int = 1, asks=()) -> tuple[Array, Memory, Done]:
    """Average the updates for some rounds."""
    model, memory = who.init(fed, seed)
    for t in range(1, rounds + 1):
        (done,) = who.work([open_work(fed, model, memory, t, seed, asks)])
        model, memory = model + done.reports.updates.mean(0).astype(model.dtype), done.memory
    return model, memory, done


def distance(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    """Return the largest difference between two memories."""
    assert a.keys() == b.keys()
    return max((float(np.abs(a[n] - b[n]).max(initial=0)) for n in a), default=0.0)
