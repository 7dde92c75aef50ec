"""The laboratory's eyes against the module itself, record by record."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, federation, learner, open_work

from equipoise import models
from equipoise.checks import BadInput
from equipoise.learners import cosines, features, layouts, losses


def mlp(classes=1):
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, classes))


class Signal(nn.Module):
    """Convolution, BatchNorm and a head of three classes."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.Linear(15, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x.unsqueeze(1)))).flatten(1))


BUILDS = [mlp, partial(mlp, 3), Signal]


def world(build, shared, clients=3, n=11, dtype="float64"):
    """Draw models, updates and records; return them with each client's own module."""
    names = models.shared_names(build(), shared)
    both = layouts(build, names)
    d, size = both[0].size, both[0].size + both[1].size
    rng = np.random.default_rng(0)
    flat = np.abs(rng.standard_normal((clients, size))).astype(dtype)  # variances of BatchNorm are not negative
    flat[:, ::2] *= -1 if build is not Signal else 1
    x, y = rng.standard_normal((n, FEATURES)), rng.integers(0, 2 if build is mlp else 3, n)
    return names, flat, x, y, [loaded(build, both, row, d) for row in flat], both


def loaded(build, both, row, d):
    module = build().to(torch.float64 if row.dtype == np.float64 else torch.float32).eval()
    named = both[0].split(row[:d]) | both[1].split(row[d:])
    module.load_state_dict({n: torch.from_numpy(np.array(a)) for n, a in named.items()}, strict=False)
    return module


def loss(module, x, y):
    z = module(torch.from_numpy(x))
    if z.shape[1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(
            z.squeeze(1), torch.from_numpy(y).double(), reduction="none"
        )
    return nn.functional.cross_entropy(z, torch.from_numpy(y), reduction="none")


@pytest.mark.parametrize("build", BUILDS)
def test_losses_are_each_modules_own_on_each_row(build, monkeypatch):
    monkeypatch.setattr("equipoise.learners.measuring.BLOCK", 4)
    monkeypatch.setattr("equipoise.learners.measuring.CONVOLVED", 3)
    names, flat, x, y, modules, _ = world(build, 1)
    found = losses(build, names, flat, x, y)
    assert found.shape == (11, 3)
    for k, module in enumerate(modules):
        assert np.abs(found[:, k] - loss(module, x, y).detach().numpy()).max() < 1e-12


def test_a_very_small_loss_is_still_told_from_another():
    flat = np.zeros((2, 2), np.float32)
    flat[:, 1] = 40, 60  # biases; a float32 logarithm gives 0 for both
    found = losses(lambda: nn.Linear(1, 1), (), flat, np.zeros((1, 1)), np.array([1]))
    assert found[0] == pytest.approx(np.exp([-40.0, -60.0]), rel=1e-6)


def test_a_model_that_is_no_number_has_no_loss():
    names, flat, x, y, _, _ = world(mlp, 1)
    flat[1] = np.nan
    assert np.isnan(losses(mlp, names, flat, x, y)).any(0).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("build", BUILDS)
def test_features_are_what_the_last_shared_layer_gives(build, shared, dtype):
    names, flat, x, _, modules, _ = world(build, shared, dtype=dtype)
    found = features(build, names, flat, x)
    assert found.dtype == dtype
    for k, module in enumerate(modules):
        rows = torch.from_numpy(x.astype(dtype))
        if build is Signal:
            right = module.conv(rows.unsqueeze(1))
            right = module.norm(right) if shared == 2 else right
        else:
            right = module[: 2 * shared - 1](rows)
        assert np.abs(found[k] - right.flatten(1).detach().numpy()).max() < (1e-12 if dtype == "float64" else 1e-4)
    assert np.array_equal(found, features(build, names, flat, x))  # nothing of the first look is left behind


def test_without_a_shared_layer_there_is_nothing_to_see():
    names, flat, x, _, _, _ = world(mlp, 0)
    with pytest.raises(BadInput, match="no layer is shared"):
        features(mlp, names, flat, x)


@pytest.mark.parametrize(("build", "shared", "layers"), [(mlp, None, 3), (BUILDS[1], 2, 2), (Signal, None, 3)])
def test_cosines_are_of_each_records_own_gradient(build, shared, layers, monkeypatch):
    monkeypatch.setattr("equipoise.learners.looking.NUMBERS", 300)  # a few records at a time
    names, flat, x, y, modules, both = world(build, shared)
    updates = np.random.default_rng(1).standard_normal((4, both[0].size))
    found = cosines(build, names, flat[0], updates, x, y)
    assert found.shape == (11, 4, layers)
    sent = both[0].split(updates)
    parameters = dict(modules[0].named_parameters())
    for i in range(11):
        modules[0].zero_grad()
        loss(modules[0], x[i : i + 1], y[i : i + 1]).sum().backward()
        own = list(dict.fromkeys(n.rpartition(".")[0] for n in names if n in parameters))
        for j, layer in enumerate(own):
            mine = [n for n in names if n in parameters and n.rpartition(".")[0] == layer]
            g = np.concatenate([parameters[n].grad.numpy().ravel() for n in mine])
            u = np.concatenate([sent[n].reshape(4, -1) for n in mine], 1)
            assert np.abs(found[i, :, j] - u @ g / np.linalg.norm(u, axis=1) / np.linalg.norm(g)).max() < 1e-10


def test_a_member_pulls_its_own_way():
    """After one step on one record, that record's gradient points straight against the update in every layer."""
    fed = federation((1, 40))
    options = {"optimiser": "sgd", "lr": 0.1, "batch": "full", "steps": 1, "dtype": "float64", "balance": "none"}
    who = learner(mlp, None, **options)
    model, memory = who.init(fed, 1)
    (done,) = who.work([open_work(fed, model, memory)])
    x, y = fed.shards[0].x, fed.shards[0].y
    found = cosines(mlp, models.shared_names(mlp(), None), model, done.reports.updates, x, y)[0]
    assert np.abs(found[0] + 1).max() < 1e-9 and (found[1] > -0.99).any()


def test_a_client_that_did_not_move_has_no_direction():
    names, flat, x, y, _, both = world(mlp, None)
    updates = np.ones((2, both[0].size))
    updates[1] = 0
    found = cosines(mlp, names, flat[0], updates, x, y)
    assert np.isnan(found[:, 1]).all() and np.isfinite(found[:, 0, 2]).all()


def test_a_part_of_a_model_has_no_gradient():
    names, flat, x, y, _, both = world(mlp, 1)
    with pytest.raises(BadInput, match=r"needs a whole model of 69 numbers, got 40; append the private layers"):
        cosines(mlp, names, flat[0, : both[0].size], np.ones((1, 40)), x, y)


def test_looking_leaves_torchs_generator_alone_and_reads_what_may_not_be_written():
    names, flat, x, y, _, both = world(mlp, None)
    for array in (flat, x, y):
        array.setflags(write=False)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    losses(partial(mlp, 1), names, flat, x, y)
    features(partial(mlp, 1), list(names), flat, x)
    cosines(partial(mlp, 1), names, flat[0], np.ones((1, both[0].size)), x, y)
    assert torch.equal(torch.get_rng_state(), before)
