"""The one job that every engine and every peer is timed on. numpy only, so that any environment can import it.

24,129 rows of 100 features spread over K clients by Dirichlet(0.5) over (label x group), an MLP 100-64-32-16-1 with
9,089 parameters, 60 Adam steps of 64 rows a round from a precomputed index plan, class-balanced cross-entropy, 16
rounds, update norms clipped, size-weighted mean, and every round each client counts true and false positives and
negatives of each group on all of its rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ROWS = 24_129
TEST_ROWS = 6_033
FEATURES = 100
WIDTHS = (100, 64, 32, 16, 1)
PARAMETERS = sum(i * o + o for i, o in pairwise(WIDTHS))
GROUPS = 2
CLIENTS = 10
ROUNDS = 16
STEPS = 60
BATCH = 64
LR = 5e-3
BETAS = (0.9, 0.999)
EPS = 1e-8
CLIP = 4.0
DIRICHLET = 0.5
FEWEST = 8
"""No client gets fewer rows than this; they are taken from the largest."""


class Shard(NamedTuple):
    """Rows of one client: ``x`` (n, 100) float32, ``y`` (n,) in {0, 1} int64, ``group`` (n,) in {0, 1} int64."""

    x: Array
    y: Array
    group: Array


def rows(n: int, seed: int) -> Shard:
    """Draw ``n`` rows of the synthetic population: a noisy non-linear label with a third of positives."""
    rng = np.random.default_rng([seed, 1])
    rule = np.random.default_rng(7)  # the same for every seed
    x = rng.standard_normal((n, FEATURES), np.float32)
    group = (rng.random(n) < 0.4).astype(np.int64)
    x[:, 0] += group
    score = x @ rule.standard_normal(FEATURES) / 6 + np.tanh(x[:, 1] * x[:, 2]) + 0.4 * group
    y = (score + 0.7 * rng.standard_normal(n) > 0.9).astype(np.int64)
    return Shard(x, y, group)


def make(clients: int = CLIENTS, seed: int = 42) -> list[Shard]:
    """Return the training rows of each client: disjoint, together all ``ROWS`` (more for very many clients)."""
    everyone = rows(max(ROWS, 24 * clients), seed)
    rng = np.random.default_rng([seed, 2])
    owner = np.empty(len(everyone.y), np.int64)
    for cell in range(2 * GROUPS):
        at = rng.permutation(np.flatnonzero(everyone.y * GROUPS + everyone.group == cell))
        share = rng.dirichlet(np.full(clients, DIRICHLET))
        owner[at] = np.searchsorted(np.cumsum(share)[:-1], (np.arange(len(at)) + 0.5) / len(at))
    sizes = np.bincount(owner, minlength=clients)
    for poor in np.flatnonzero(sizes < FEWEST):
        rich = int(sizes.argmax())
        given = rng.choice(np.flatnonzero(owner == rich), FEWEST - sizes[poor], replace=False)
        owner[given] = poor
        sizes = np.bincount(owner, minlength=clients)
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return [Shard(*(a[at] for a in everyone)) for at in parts]


def test(seed: int = 42) -> Shard:
    """Return rows that no client trains on."""
    return rows(TEST_ROWS, seed + 1_000_000)


test.__test__ = False  # type: ignore[attr-defined]  # data, not a test


def plan(shards: list[Shard], round: int, seed: int = 42) -> list[Array]:
    """Return the batches of one round, client by client: (STEPS, BATCH) row numbers, drawn with replacement."""
    return [
        np.random.default_rng([seed, 3, round, k]).integers(0, len(shard.y), (STEPS, BATCH))
        for k, shard in enumerate(shards)
    ]


def initial(seed: int = 42) -> list[tuple[Array, Array]]:
    """Return the first model, layer by layer: weight (out, in) and bias (out,), float32, uniform in +-1/sqrt(in)."""
    rng = np.random.default_rng([seed, 4])
    layers = []
    for fan_in, fan_out in pairwise(WIDTHS):
        bound = 1 / np.sqrt(fan_in)
        weight = rng.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32)
        layers.append((weight, rng.uniform(-bound, bound, fan_out).astype(np.float32)))
    return layers


def class_weights(y: Array) -> tuple[float, float]:
    """Return the weights of a negative and a positive row that make both classes count one half."""
    pos = float(np.clip(np.mean(y), 1e-6, 1 - 1e-6))
    return 0.5 / (1 - pos), 0.5 / pos


def count(y: Array, predicted: Array, group: Array) -> Array:
    """Return (2, 4) counts, columns tp fp tn fn, one row per group."""
    y, predicted = np.asarray(y, bool), np.asarray(predicted, bool)
    column = np.where(predicted, np.where(y, 0, 1), np.where(y, 3, 2))
    return np.bincount(np.asarray(group) * 4 + column, minlength=4 * GROUPS).reshape(GROUPS, 4)


def gap(counts: Array) -> float:
    """Return the equal opportunity difference |TPR_1 - TPR_0| of (2, 4) counts; NaN when a group has no positives."""
    tp, fn = counts[:, 0], counts[:, 3]
    with np.errstate(invalid="ignore", divide="ignore"):
        tpr = tp / (tp + fn)
    return float(abs(tpr[1] - tpr[0]))
