"""A model that has memorised its rows: every attack reaches near 1 on it, and chance where nothing was learnt.

Logistic regression with more features than rows, by hand: it fits any labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from equipoise.attacks.inference import (
    cosine_attack,
    cosine_features,
    decisions,
    lira_offline,
    lira_online,
    logit_confidence,
    loss_matrix,
    loss_scores,
    membership,
    nearest_feature_losses,
    probe_head_losses,
    shadow_rows,
    source_inference,
)

D, CLIENTS, OWN = 300, 4, 25


class World(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    owner: np.ndarray


def trained(x, y, steps=400):
    """Weights (D,) after gradient descent from 0 on the mean cross-entropy; none without steps."""
    w = np.zeros(D)
    for _ in range(steps):
        w -= 0.2 * x.T @ (1 / (1 + np.exp(-x @ w)) - y) / len(x)
    return w


def losses(w, x, y):
    return np.logaddexp(0, np.where(y == 1, -1, 1) * (x @ w))


@pytest.fixture(scope="module")
def world():
    random = np.random.default_rng(0)
    n = (CLIENTS + 1) * OWN  # the last ones belong to nobody
    return World(random.normal(size=(n, D)), random.integers(0, 2, n), np.repeat(np.arange(CLIENTS + 1), OWN))


@pytest.fixture(scope="module")
def models(world):
    return [trained(world.x[world.owner == k], world.y[world.owner == k]) for k in range(CLIENTS)]


def test_the_source_of_each_record_is_found(world, models):
    at = world.owner < CLIENTS
    table = np.stack([losses(w, world.x[at], world.y[at]) for w in models], 1)
    assert source_inference(table, world.owner[at]).min() > 0.85
    matrix = loss_matrix(table, world.owner[at])
    assert (np.diag(matrix) < 0.2 * (matrix + 9 * np.eye(CLIENTS)).min(1)).all()
    nobody = np.stack([losses(trained(world.x, world.y, 0), world.x[at], world.y[at])] * CLIENTS, 1)
    assert source_inference(nobody, world.owner[at]).tolist() == [1 / CLIENTS] * CLIENTS


def test_members_are_known_by_their_loss(world, models):
    at = (world.owner == 0) | (world.owner == CLIENTS)
    member = (world.owner[at] == 0).astype(int)
    loss = losses(models[0], world.x[at], world.y[at])
    found = membership(loss_scores(loss), member).overall
    assert found.auc > 0.95
    assert found.tpr_at_1 > 0.5
    assert decisions(loss_scores(loss), member, -loss[member == 1].max()).tpr == 1.0
    assert decisions(loss_scores(loss), member, -loss[member == 1].mean()).advantage > 0.4


def test_members_are_known_to_shadow_models(world):
    x, y = world.x[: 2 * OWN], world.y[: 2 * OWN]
    inside = shadow_rows(len(x), 17, seed=3)
    phi = np.array([logit_confidence(losses(trained(x[rows], y[rows]), x, y)) for rows in inside])
    member, observed, inside, phi = inside[0].astype(int), phi[0], inside[1:], phi[1:]
    ins, outs = np.where(inside, phi, np.nan), np.where(inside, np.nan, phi)
    assert membership(lira_online(observed, ins, outs), member).overall.auc > 0.95
    assert membership(lira_offline(observed, outs), member).overall.auc > 0.95


def test_members_are_known_by_their_gradients(world):
    random = np.random.default_rng(1)

    def attacked(own, other):
        """Features of records of both kinds, in a training of ``own`` from zero."""
        rows = np.concatenate([own, other])
        gradients = (0.5 - world.y[rows])[:, None] * world.x[rows]
        return cosine_features(gradients, trained(world.x[own], world.y[own]), [D // 2, D // 2])

    rows = np.arange(4 * OWN)
    mocks = [random.permutation(rows)[: 2 * OWN] for _ in range(6)]
    kind = np.repeat([1, 0], OWN)
    known = np.concatenate([attacked(mock[:OWN], mock[OWN:]) for mock in mocks])
    victim = attacked(np.flatnonzero(world.owner == 3), np.flatnonzero(world.owner == 4))
    score = cosine_attack(known, np.tile(kind, 6), victim, seed=1, trees=50)
    assert membership(score, kind).overall.auc > 0.95
    assert decisions(score, kind, 0.5).accuracy > 0.9


# The nearest feature looks at a direction only, and not how far the record went.
@pytest.mark.parametrize(("attack", "least"), [(probe_head_losses, 0.95), (nearest_feature_losses, 0.75)])
def test_the_source_is_found_without_the_head(attack, least):
    """Softmax regression whose scores are what the server sees; public rows follow the same teacher."""
    random = np.random.default_rng(2)
    teacher = random.normal(size=(D, 6))
    x, public = random.normal(size=(CLIENTS * OWN, D)), random.normal(size=(600, D))
    y, public_y = (x @ teacher).argmax(1), (public @ teacher).argmax(1)
    owner, layers = np.repeat(np.arange(CLIENTS), OWN), np.zeros((CLIENTS, D, 6))
    for k in range(CLIENTS):
        at = owner == k
        for _ in range(300):
            p = np.exp(x[at] @ layers[k])
            layers[k] -= 0.3 * x[at].T @ (p / p.sum(1, keepdims=True) - np.eye(6)[y[at]]) / OWN
    success = source_inference(attack(public @ layers, public_y, x @ layers, y), owner)
    assert success.mean() > least
