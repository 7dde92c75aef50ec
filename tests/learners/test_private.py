"""DP-SGD against Opacus, against plain training, and against somebody who guesses who was there."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, TERMS, count, federation, learner, net, open_work, run, shard

from equipoise.accounting import epsilon
from equipoise.checks import BadInput
from equipoise.learners import Private, gradient_norms
from equipoise.learners.batches import plan
from equipoise.learners.private import clipped_sum, generator, gradient, per_record
from equipoise.objectives import cross_entropy, proximal
from equipoise.types import Federation, Local, Shard

PLAIN = Private(math.inf, 0)
OPTIONS = {"balance": "none", "dtype": "float64", "batch": "full", "optimiser": "sgd", "lr": 0.1, "steps": 4}


class Pad(nn.Module):
    """Pad on the left, so that a convolution sees the past only."""

    def forward(self, x):
        return nn.functional.pad(x, (2, 0))


def temporal():
    """Build a small causal convolution over the features, with normalisation that no record shares with another."""
    return nn.Sequential(
        nn.Unflatten(1, (1, FEATURES)), Pad(), nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), Pad(),
        nn.Conv1d(4, 3, 2, dilation=2), nn.ReLU(), nn.Flatten(), nn.Linear(3 * FEATURES, 1),
    )  # fmt: skip


def batch(rows):
    """Lay a client's rows out as one batch."""
    x, y, group = (torch.from_numpy(np.asarray(a))[None] for a in (rows.x, rows.y, rows.group))
    return Local({}, {}, x.double(), y.double(), group, torch.ones(y.shape, dtype=torch.float64), None, {})


def double(build, seed=0):
    """Build in float64 and return the module with its parameters."""
    torch.manual_seed(seed)
    module = build().double()
    return module, {n: p.detach().clone() for n, p in module.named_parameters()}


def summed(module, params, rows, clip):
    """Return the clipped sum of a client's rows as one vector."""
    records = per_record(module, params, {}, batch(rows), cross_entropy)
    return torch.cat([t.flatten() for t in clipped_sum(records, clip, list(params.values()))])


@pytest.mark.parametrize("build", [net, temporal])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_without_clip_and_noise_it_is_plain_training(build, optimiser):
    fed = federation((40, 33), proximal=[0.3, 0])
    options = OPTIONS | {"optimiser": optimiser}
    (plain, memory, _), (model, others, _) = (
        run(learner(build, None, private=p, **options), fed, 3) for p in (None, PLAIN)
    )
    assert np.abs(plain - run(learner(build, None, **options), fed, 1)[0]).max() > 1e-3  # it moves
    assert np.abs(plain - model).max() < 1e-10
    assert all(np.abs(memory[n] - others[n]).max() < 1e-10 for n in memory)


@pytest.mark.filterwarnings("ignore")  # Opacus' own
@pytest.mark.parametrize("build", [net, temporal])
@pytest.mark.parametrize("clip", [0.05, 0.3, 100.0])
def test_opacus_has_the_same_gradient_of_every_record_and_the_same_clipped_sum(build, clip):
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module, params = double(build)
    rows = batch(shard(24, 1))
    ((grads, norms),) = per_record(module, params, {}, rows, cross_entropy)
    theirs = GradSampleModule(module, loss_reduction="sum")
    logits = theirs(rows.x[0]).squeeze(1)
    nn.functional.binary_cross_entropy_with_logits(logits, rows.y[0], reduction="sum").backward()
    for g, p in zip(grads, theirs.parameters(), strict=True):
        assert (g - p.grad_sample).abs().max() < 1e-12
    mine = clipped_sum(iter([(grads, norms)]), clip, list(params.values()))
    optimiser = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=1.0),
        noise_multiplier=0.0, max_grad_norm=clip, expected_batch_size=20, loss_reduction="mean",
    )  # fmt: skip
    optimiser.step()
    for g, before, p in zip(mine, params.values(), theirs.parameters(), strict=True):
        assert torch.allclose(before - g / 20, p.detach(), rtol=0, atol=1e-5 * clip)  # Opacus adds 1e-6 to the norm
    if clip < 1:
        assert (norms > clip).any()


def test_every_record_has_the_gradient_it_has_alone():
    module, params = double(temporal)
    rows = batch(shard(9, 2))
    ((grads, norms),) = per_record(module, params, {}, rows, cross_entropy)
    for i in range(9):
        module.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(module(rows.x[0, i : i + 1])[0], rows.y[0, i : i + 1]).backward()
        own = torch.cat([p.grad.flatten() for p in module.parameters()])
        assert (torch.cat([g[i].flatten() for g in grads]) - own).abs().max() < 1e-12
        assert abs(norms[i] - own.norm()) < 1e-12


def test_a_batch_is_clipped_in_parts_where_it_is_too_large(monkeypatch):
    module, params = double(net)
    rows = shard(23, 3)
    whole = summed(module, params, rows, 0.2)
    monkeypatch.setattr("equipoise.learners.private.NUMBERS", 5 * sum(p.numel() for p in params.values()))
    assert len(list(per_record(module, params, {}, batch(rows), cross_entropy))) == 5
    assert (summed(module, params, rows, 0.2) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("build", [net, temporal])
def test_no_record_moves_the_sum_by_more_than_the_clip(build):
    """The sensitivity that the noise is made for: one record added or removed, whatever record it is."""
    module, params = double(build)
    rows, rng, clip = shard(30, 4), np.random.default_rng(0), 0.7
    whole, moved = summed(module, params, rows, clip), []
    for factor in (0, 1e-3, 1, 1e3, 1e30, 1e200):
        wild = Shard(factor * rng.standard_normal((1, FEATURES)), np.array([1]), np.zeros(1, int))
        more = Shard(
            *(np.concatenate([a, b]) for a, b in ((rows.x, wild.x), (rows.y, wild.y), (rows.group, wild.group)))
        )
        moved.append(float((summed(module, params, more, clip) - whole).norm()))
    for i in range(30):
        less = Shard(*(np.delete(a, i, 0) for a in (rows.x, rows.y, rows.group)))
        moved.append(float((summed(module, params, less, clip) - whole).norm()))
    assert max(moved) <= clip * (1 + 1e-9)
    assert max(moved) > 0.99 * clip or build is temporal  # the bound is reached


def one(rows, private=PLAIN, *, expected=10, coefficients=None, seed=1, client=0):
    """Return one step's gradient on these rows as a vector."""
    module, params = double(net)
    trained = {n: p.requires_grad_() for n, p in params.items()}
    anchor = {n: torch.zeros_like(p)[None] for n, p in params.items()}
    told = replace(batch(rows), params={n: p[None] for n, p in trained.items()}, anchor=anchor)
    coefficients = {"cross_entropy": torch.ones(1)} if coefficients is None else coefficients
    found = gradient(private, module, TERMS, expected, generator(seed, 1, client), trained, {}, told, coefficients)
    return torch.cat([g.flatten() for g in found]).detach()


def test_noise_is_gaussian_of_the_stated_width_and_each_clients_own():
    rows, private = shard(12, 5), Private(0.4, 1.5)
    exact = one(rows, Private(0.4, 0))
    noise = torch.stack([one(rows, private, client=k) - exact for k in range(300)]) * 10 / (0.4 * 1.5)
    n = noise.numel()
    assert n > 20_000
    assert abs(noise.mean()) < 5 / math.sqrt(n) and abs(noise.std() - 1) < 5 / math.sqrt(2 * n)
    assert abs((noise**4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert abs((noise[1:] * noise[:-1]).mean()) < 5 / math.sqrt(n)
    assert torch.equal(one(rows, private, client=3), one(rows, private, client=3))


def test_a_step_without_rows_still_sends_noise():
    empty = Shard(np.zeros((0, FEATURES)), np.zeros(0, int), np.zeros(0, int))
    found = one(empty, Private(1, 1))
    assert abs(found.std() * 10 - 1) < 0.4 and found.all()
    assert not one(empty, Private(1, 0)).any()


def test_a_pull_that_reads_no_rows_is_added_after_the_noise():
    """It is neither clipped nor divided by the batch."""
    rows = shard(12, 5)
    both = {"cross_entropy": torch.ones(1), "proximal": torch.tensor([1e3])}
    pulled = one(rows, Private(1e-3, 2), coefficients=both) - one(rows, Private(1e-3, 2))
    _, params = double(net)
    assert (pulled - 1e3 * torch.cat([p.flatten() for p in params.values()])).abs().max() < 1e-9
    alone = one(rows, Private(1e-3, 2), coefficients={"proximal": torch.tensor([1e3])})
    assert torch.equal(alone, 1e3 * torch.cat([p.flatten() for p in params.values()]))


@pytest.mark.parametrize("name", ["disparity", "gaming"])
def test_a_term_that_compares_records_is_refused(name):
    with pytest.raises(BadInput, match=f"loss term '{name}' cannot be computed without the client's rows"):
        one(shard(12, 5), Private(1, 1), coefficients={"cross_entropy": torch.ones(1), name: torch.ones(1)})
