"""DP-SGD against Opacus, against plain training, and against somebody who guesses who was there."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, TERMS, count, federation, learner, net, open_work, run, shard

from equipoise.accounting import epsilon
from equipoise.checks import BadInput
from equipoise.learners import Private, gradient_norms, stacked
from equipoise.learners.batches import plan
from equipoise.learners.private import clipped_sum, generator, gradient, per_record
from equipoise.objectives import cross_entropy
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


def test_it_is_plain_training_with_many_classes_too():
    fed = federation((40, 33))
    fed = replace(fed, shards=[replace(s, y=np.arange(len(s.y)) % 3) for s in fed.shards], classes=3)

    def three():
        return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))

    plain, model = (run(learner(three, None, private=p, **OPTIONS), fed, 2)[0] for p in (None, PLAIN))
    assert np.abs(plain - model).max() < 1e-10
    assert np.abs(run(learner(three, None, private=Private(0.1, 0), **OPTIONS), fed, 2)[0] - plain).max() > 1e-3


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
    for factor in (0, 1e-3, 1, 1e3, 1e30, 1e200, math.inf):
        wild = Shard(factor * rng.standard_normal((1, FEATURES)), np.array([1]), np.zeros(1, int))
        more = Shard(
            *(np.concatenate([a, b]) for a, b in ((rows.x, wild.x), (rows.y, wild.y), (rows.group, wild.group)))
        )
        moved.append(float((summed(module, params, more, clip) - whole).norm()))
    for i in range(30):
        less = Shard(*(np.delete(a, i, 0) for a in (rows.x, rows.y, rows.group)))
        moved.append(float((summed(module, params, less, clip) - whole).norm()))
    assert np.isfinite(moved).all() and max(moved) <= clip * (1 + 1e-9)
    assert max(moved) > 0.99 * clip or build is temporal  # the bound is reached


def one(rows, private=PLAIN, *, expected=10, coefficients=None, terms=TERMS, seed=1, client=0):
    """Return one step's gradient on these rows as a vector."""
    module, params = double(net)
    trained = {n: p.requires_grad_() for n, p in params.items()}
    anchor = {n: torch.zeros_like(p)[None] for n, p in params.items()}
    told = replace(batch(rows), params={n: p[None] for n, p in trained.items()}, anchor=anchor)
    coefficients = {"cross_entropy": torch.ones(1)} if coefficients is None else coefficients
    found = gradient(private, module, terms, expected, generator(seed, 1, client), trained, {}, told, coefficients)
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


def test_a_clients_coefficient_stands_before_the_clip():
    rows, twice = shard(12, 5), {"cross_entropy": torch.tensor([2.0])}
    assert (one(rows, coefficients=twice) - 2 * one(rows)).abs().max() < 1e-12
    assert (one(rows, Private(0.2, 0), coefficients=twice) - 2 * one(rows, Private(0.1, 0))).abs().max() < 1e-12


def test_a_pull_that_reads_no_rows_is_added_after_the_noise():
    """It is neither clipped nor divided by the batch."""
    rows = shard(12, 5)
    both = {"cross_entropy": torch.ones(1), "proximal": torch.tensor([1e3])}
    pulled = one(rows, Private(1e-3, 2), coefficients=both) - one(rows, Private(1e-3, 2))
    _, params = double(net)
    assert (pulled - 1e3 * torch.cat([p.flatten() for p in params.values()])).abs().max() < 1e-9
    alone = one(rows, Private(1e-3, 2), coefficients={"proximal": torch.tensor([1e3])})
    assert torch.equal(alone, 1e3 * torch.cat([p.flatten() for p in params.values()]))


def square(local):
    return local.params["0.weight"].square().sum((1, 2)) * local.x.shape[2]


def seen(local):
    return local.x.square().sum((1, 2)) * local.params["0.weight"].square().sum((1, 2))


def untold(local):
    raise BadInput("the clients were not told rho")


@pytest.mark.parametrize("name", ["disparity", "gaming", "seen"])
@pytest.mark.parametrize("rows", [shard(12, 5), shard(0, 5)], ids=["rows", "none"])
def test_a_term_that_reads_rows_is_refused(name, rows):
    told = {"cross_entropy": torch.ones(1), name: torch.ones(1)}
    with pytest.raises(BadInput, match=f"loss term '{name}' cannot be computed without the client's rows"):
        one(rows, Private(1, 1), coefficients=told, terms=TERMS | {"seen": seen})


def test_a_term_may_know_how_wide_a_row_is_and_says_itself_what_it_lacks():
    told = {"square": torch.ones(1)}
    found = one(shard(12, 5), coefficients=told, terms={"square": square})
    assert (found[: 6 * FEATURES] - 2 * FEATURES * double(net)[1]["0.weight"].flatten()).abs().max() < 1e-12
    with pytest.raises(BadInput, match="were not told rho"):
        one(shard(12, 5), coefficients=told, terms={"square": untold})


def moved(private, fed, seed=1, t=1, build=net, **options):
    """Return every client's update after a round."""
    who = learner(build, None, private=private, **(OPTIONS | options))
    (done,) = who.work([open_work(fed, *who.init(fed, 1), t, seed)])
    return done.reports.updates


def test_the_learner_sums_steps_over_the_expected_batch_with_the_clients_own_noise():
    """Poisson batches by hand: the plan's rows, the sum over batch 16 whatever was drawn, the stream of the noise."""
    fed, private = federation((50, 9)), Private(0.3, 0.7)
    options = {"sampling": "poisson", "batch": 16, "steps": 5, "lr": 0.5}
    found = moved(private, fed, **options)
    for k, rows in enumerate(fed.shards):
        who = learner(net, None, private=private, **(OPTIONS | options))
        first = torch.from_numpy(who.init(fed, 1)[0])
        module, params = double(net)
        torch.nn.utils.vector_to_parameters(first, module.parameters())
        random, drawn = generator(1, 1, k), set()
        chosen, valid = plan(len(rows.y), 5, 16, "poisson", 1, 1, k)
        for at, real in zip(chosen, valid, strict=True):
            drawn.add(int(real))
            params = {n: p.detach() for n, p in module.named_parameters()}
            some = Shard(*(a[at[:real]] for a in (rows.x, rows.y, rows.group)))
            total = summed(module, params, some, 0.3)
            noise = [0.21 * torch.randn(p.shape, generator=random, dtype=p.dtype) for p in params.values()]
            step = (total + torch.cat([z.flatten() for z in noise])) / min(16, len(rows.y))
            now = torch.cat([p.flatten() for p in params.values()]) - 0.5 * step
            torch.nn.utils.vector_to_parameters(now, module.parameters())
        assert np.abs(found[k] - (now - first).numpy()).max() < 1e-10
        assert (len(drawn) > 1) == (k == 0)  # nine rows of nine are no sample


def test_a_silo_with_nothing_to_be_pulled_to_trains_as_without_the_pull():
    fed, private = federation((30, 30)), Private(0.5, 1)
    kept = []
    for told in (fed, federation((30, 30), proximal=[1, 1])):
        who = learner(net, 0, private=private, **OPTIONS)
        (done,) = who.work([open_work(told, *who.init(told, 1))])
        kept.append(done.memory["private"])
    assert np.array_equal(*kept) and np.abs(kept[0][0] - kept[0][1]).max() > 1e-3


def test_noise_depends_on_nobody_else():
    """Not on chunk, company, or the engine asked for; it does on seed, round and client."""
    fed, private = federation((50, 130, 75)), Private(0.5, 1)
    whole = moved(private, fed)
    for options in ({"chunk": 2}, {"engine": "loop"}):
        assert np.array_equal(moved(private, fed, **options), whole)
    alone = Federation(fed.clients[1:2], fed.shards[1:2], {"cross_entropy": np.ones(1)}, 2)
    assert np.array_equal(moved(private, alone), whole[1:2])
    same = Federation(np.arange(2), [fed.shards[0]] * 2, {"cross_entropy": np.ones(2)}, 2)
    a, b = moved(private, same)
    assert np.abs(a - b).max() > 1e-3
    assert np.abs(moved(private, same, t=2)[0] - a).max() > 1e-3
    assert np.abs(moved(private, same, seed=2)[0] - a).max() > 1e-3


def test_the_last_row_that_poisson_sampling_leaves_out_sends_noise_all_the_same():
    fed, options = federation((40,)), {"sampling": "poisson", "batch": 1, "steps": 1}
    empty = [t for t in range(1, 60) if plan(40, 1, 1, "poisson", 1, t, 0)[1].tolist() == [0]]
    assert len(empty) > 10  # (1 - 1/40)^40 = 0.36 of the steps
    quiet, noisy = (moved(Private(0.5, s), fed, t=empty[0], **options) for s in (0, 1))
    assert not quiet.any() and abs(noisy.std() / (0.1 * 0.5) - 1) < 0.3


class Weight(nn.Module):
    """One weight, 0 at first: a row with x = 100 has a gradient far above any clip, one with x = 0 has none."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, 1))

    def forward(self, x):
        return x @ self.w


def guesses(noise, *, sampling="replacement", batch="full", clients=900):
    """Return one step's update, as seen by somebody who knows all other rows, without and with the record in question.

    Both data sets have 4 rows: a record without a gradient stands for an absent one.
    """
    seen = []
    for x in (0.0, 100.0):
        rows = Shard(np.array([[x], [0.0], [0.0], [0.0]]), np.ones(4, int), np.zeros(4, int))
        fed = Federation(np.arange(clients), [rows] * clients, {"cross_entropy": np.ones(clients)}, 1)
        who = stacked(
            Weight, shared=["w"], terms={"cross_entropy": cross_entropy}, count=count, private=Private(0.5, noise),
            **(OPTIONS | {"steps": 1, "lr": 1.0, "batch": batch, "sampling": sampling}),
        )  # fmt: skip
        (done,) = who.work([open_work(fed, *who.init(fed, 1), seed=int(x))])
        seen.append(done.reports.updates[:, 0] * (4 if batch == "full" else batch) / 0.5)  # in clips
    return seen


def advantage(without, with_it, spent):
    """Return the best attack's TPR - exp(epsilon) FPR over all thresholds, and three standard errors of it."""
    found = []
    for cut in np.linspace(-1, 3, 41):
        hit, false = (with_it > cut).mean(), (without > cut).mean()
        error = math.sqrt((hit * (1 - hit) + math.exp(2 * spent) * false * (1 - false)) / len(without))
        found.append((hit - math.exp(spent) * false, 3 * error))
    return max(found)


def test_nobody_guesses_better_than_epsilon_allows_and_the_best_guess_comes_close():
    """An audit of one step: the bound is neither broken nor idle, and half the noise breaks it."""
    delta, noise = 0.1, 1.0
    spent = epsilon(noise, 1, 1, delta).epsilon
    lost, error = advantage(*guesses(noise), spent)
    assert delta - error < lost < delta + error
    lost, error = advantage(*guesses(noise / 2, clients=400), spent)
    assert lost > delta + error


def test_nobody_guesses_better_under_poisson_sampling():
    delta, noise = 0.1, 0.5
    spent, without = (epsilon(noise, q, 1, delta).epsilon for q in (0.5, 1))
    assert spent < without - 0.5
    seen = guesses(noise, sampling="poisson", batch=2)
    lost, error = advantage(*seen, spent)
    assert delta - error < lost < delta + error


class Normed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(FEATURES, 4), layer, nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


class Remembering(nn.Linear):
    def __init__(self):
        super().__init__(FEATURES, 1)
        self.register_buffer("mean", torch.zeros(FEATURES))


@pytest.mark.parametrize(
    ("private", "options", "says"),
    [
        (Private(1, -1), {}, "noise must lie in 0..inf, got -1"),
        (Private(1, math.nan), {}, "noise must lie in 0..inf, got nan"),
        (Private(0, 0), {}, "clip must be above 0, got 0"),
        (Private(math.nan, 0), {}, "clip must be above 0, got nan"),
        (Private(math.inf, 1), {}, r"clip must be above 0, got inf .*inf without noise only"),
        (Private(1, 1), {"balance": "class"}, "balance 'class' makes every row's weight from the labels of all rows"),
        (Private(1, 1), {"batch": 16}, "sampling 'poisson' or batch 'full'"),
        (Private(1, 1), {"batch": 16, "sampling": "epoch"}, "sampling 'poisson' or batch 'full'"),
        (Private(1, 1), {"engine": "chain"}, "engine 'chain' keeps no gradient of each record"),
        (
            Private(1, 1),
            {"build": lambda: Normed(nn.BatchNorm1d(4))},
            r"layer 'norm' \(BatchNorm1d\) mixes the records",
        ),
        (Private(1, 1), {"build": Remembering}, "buffer 'mean' would be sent without noise"),
    ],
)
def test_what_would_break_the_promise_is_refused_by_name(private, options, says):
    with pytest.raises(BadInput, match=says):
        moved(private, federation((20, 20)), **options)


def test_a_layer_that_normalises_each_record_alone_is_taken():
    assert moved(Private(1, 1), federation((20, 20)), build=lambda: Normed(nn.LayerNorm(4))).any()


def test_lengths_of_a_pilot_are_those_of_each_rows_own_gradient():
    rows = shard(15, 8)
    found = gradient_norms(temporal, rows, cross_entropy, seed=3)
    who = learner(temporal, None, dtype="float64")
    module, _ = double(temporal)
    first = torch.from_numpy(who.init(federation((15,)), 3)[0])
    torch.nn.utils.vector_to_parameters(first, module.parameters())
    x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y).double()
    for i in range(15):
        module.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(module(x[i : i + 1])[0], y[i : i + 1]).backward()
        assert abs(torch.cat([p.grad.flatten() for p in module.parameters()]).norm() - found[i]) < 1e-12
    assert gradient_norms(net, shard(0, 1), cross_entropy).shape == (0,)
