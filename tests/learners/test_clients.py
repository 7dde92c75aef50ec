"""What a client keeps, sends and counts, and the clients that are hard: empty, one class, one group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, count, federation, learner, net, open_work, run, shard

from equipoise import models
from equipoise.checks import BadInput
from equipoise.learners import layouts
from equipoise.types import Federation, Shard

WHOLE = 7 * 6 + 6 + 6 * 5 + 5 + 5 + 1


@pytest.mark.parametrize(("shared", "d"), [(None, WHOLE), (0, 0), (1, 48), (2, 83)])
def test_full_split_and_silo_have_the_dims_of_their_shared_layers(shared, d):
    who, fed = learner(shared=shared), federation()
    model, memory = who.init(fed, 1)
    assert model.shape == (d,) and model.dtype == np.float32
    assert memory.get("private", np.zeros((3, 0))).shape == (3, WHOLE - d)
    (done,) = who.work([open_work(fed, model, memory)])
    assert done.reports.updates.shape == (3, d) and done.reports.sizes.tolist() == [50, 130, 75]
    assert [layout.size for layout in layouts(net, models.shared_names(net(), shared))] == [d, WHOLE - d]
    assert done.memory["m"].shape == (3, WHOLE) and done.memory["t"].tolist() == [6] * 3


def test_everyone_starts_from_the_modules_own_initialisation_of_this_seed():
    who = learner(shared=1)
    model, memory = who.init(federation(), 1)
    assert (memory["private"] == memory["private"][0]).all()
    assert np.array_equal(model, who.init(federation((9,)), 1)[0])
    assert not np.array_equal(model, who.init(federation(), 2)[0])
    assert np.abs(model).max() <= 1 / np.sqrt(FEATURES)  # torch's bound for a Linear's first values
    double = learner(shared=1, dtype="float64").init(federation(), 1)[0]
    assert double.dtype == np.float64 and np.array_equal(double.astype(np.float32), model)


def test_the_flat_vector_is_the_module_in_torchs_own_shapes():
    """One SGD step by hand from the vector that ``layouts`` cuts, against the update that comes back."""
    fed = federation((40,))
    options = {"optimiser": "sgd", "lr": 0.1, "batch": "full", "steps": 1, "dtype": "float64", "balance": "none"}
    who = learner(shared=None, **options)
    model, memory = who.init(fed, 1)
    layout, _ = layouts(net, models.shared_names(net(), None))
    module = net().double()
    module.load_state_dict({n: torch.from_numpy(a) for n, a in layout.split(model).items()})
    x, y = torch.from_numpy(fed.shards[0].x), torch.from_numpy(fed.shards[0].y).double()
    nn.functional.binary_cross_entropy_with_logits(module(x).squeeze(1), y).backward()
    step = layout.join({n: -0.1 * p.grad.numpy() for n, p in module.named_parameters()})
    (done,) = who.work([open_work(fed, model, memory)])
    assert np.abs(done.reports.updates[0] - step).max() < 1e-12
    assert memory == {}  # SGD without momentum has nothing to keep


def test_memory_is_written_back_and_used():
    who, fed = learner(shared=1), federation()
    model, memory = who.init(fed, 1)
    (done,) = who.work([open_work(fed, model, memory)])
    assert np.abs(done.memory["private"] - memory["private"]).max() > 1e-4
    (kept,) = who.work([open_work(fed, model, done.memory, t=2)])
    (fresh,) = who.work([open_work(fed, model, memory, t=2)])
    assert not np.array_equal(kept.reports.updates, fresh.reports.updates)
    forgetful = learner(shared=1, keep_optimiser=False)
    assert set(forgetful.init(fed, 1)[1]) == {"private"}
    assert not memory["m"].any()  # what was handed in is not written on


def test_the_closing_round_measures_and_changes_nothing():
    who, fed = learner(shared=1), federation()
    model, memory = who.init(fed, 1)
    (done,) = who.work([replace(open_work(fed, model, memory, asks=["received"]), train=False)])
    assert not done.reports.updates.any() and done.reports.sizes.tolist() == [50, 130, 75]
    assert all(np.array_equal(done.memory[n], memory[n]) for n in memory)
    assert done.reports.counts["received"].sum((1, 2)).tolist() == [50, 130, 75]


@pytest.mark.parametrize("engine", ["chain", "loop"])
def test_counts_are_of_the_model_the_moment_names(engine):
    """Against torch on the model before and after, on the client's own rows and on a view."""
    pool = shard(31, 5)
    fed = replace(federation((40, 50)), views={"test": [pool, pool], "held": [shard(9, 6), shard(0, 7)]})
    who = learner(shared=1, engine=engine, steps=30)
    model, memory = who.init(fed, 1)
    asks = ["received", "trained", "received@test", "trained@test", "trained@held"]
    (done,) = who.work([open_work(fed, model, memory, asks=asks)])
    assert sorted(done.reports.counts) == sorted(asks)
    both = layouts(net, models.shared_names(net(), 1))

    def right(k, flat, rows):
        module = net()
        named = both[0].split(flat[0]) | both[1].split(flat[1])
        module.load_state_dict({n: torch.from_numpy(np.array(a)) for n, a in named.items()})
        with torch.no_grad():
            yhat = (module(torch.from_numpy(rows.x).float()).squeeze(1) > 0).numpy()
        return count(rows.y, yhat, rows.group, 2)

    for k in range(2):
        before, after = ((model + u, m["private"][k]) for u, m in ((0, memory), (done.reports.updates[k], done.memory)))
        for moment, table in done.reports.counts.items():
            when, _, view = moment.partition("@")
            rows = fed.views[view][k] if view else fed.shards[k]
            assert np.array_equal(table[k], right(k, before if when == "received" else after, rows))
    assert not np.array_equal(done.reports.counts["received"], done.reports.counts["trained"])


def test_a_shared_pool_is_counted_once_when_all_receive_the_same_model():
    calls = []

    def counting(y, yhat, group, groups):
        calls.append(len(y))
        return count(y, yhat, group, groups)

    pool = shard(31, 5)
    fed = replace(federation((40, 50, 60)), views={"test": [pool] * 3})
    for shared, times in ((None, 1), (1, 3)):
        calls.clear()
        who = learner(shared=shared, count=counting)
        (done,) = who.work([open_work(fed, *who.init(fed, 1), asks=["received@test"])])
        assert calls == [31] * times
        assert done.reports.counts["received@test"].shape == (3, 2, 4)


def test_an_unknown_moment_view_or_term_is_named():
    who, fed = learner(), federation()
    model, memory = who.init(fed, 1)
    with pytest.raises(BadInput, match="cannot measure 'recieved'; a moment is 'received' or 'trained'"):
        who.work([open_work(fed, model, memory, asks=["recieved"])])
    with pytest.raises(BadInput, match="no view 'held'; it has \\[\\]"):
        who.work([open_work(fed, model, memory, asks=["received@held"])])
    odd = replace(fed, terms={"disparitty": np.ones(3)})
    with pytest.raises(BadInput, match="no loss term 'disparitty'; did you mean 'disparity'"):
        who.work([open_work(odd, model, memory)])
    with pytest.raises(BadInput, match=r"no tensor '0\.wait' to share; did you mean '0\.weight'"):
        layouts(net, ["0.wait"])
    with pytest.raises(BadInput, match="chunk >= 2"):
        learner(chunk=1)
    with pytest.raises(BadInput, match="lr must be above 0"):
        learner(lr=0)


@pytest.mark.parametrize("engine", ["chain", "loop"])
@pytest.mark.parametrize("batch", [16, "full"])
def test_hard_clients_stay_finite_and_empty_ones_stay_put(engine, batch):
    one_class = replace(shard(40, 1), y=np.ones(40, np.int64))
    one_group = replace(shard(40, 2), group=np.zeros(40, np.int64))
    single = shard(1, 3)
    empty = Shard(np.zeros((0, FEATURES)), np.zeros(0, np.int64), np.zeros(0, np.int64))
    shards = [one_class, empty, one_group, single, shard(60, 4), shard(60, 4)]
    ones = np.ones(6)
    terms = {"cross_entropy": ones * [1, 1, 1, 1, 1, 0], "disparity": 2 * ones * [1, 1, 1, 1, 1, 0], "gaming": 4 * ones}
    fed = Federation(
        np.arange(6), shards, terms | {"gaming": 4 * ones * [1, 1, 1, 1, 1, 0]}, 2, {"test": [shard(20, 9)] * 6}
    )
    who = learner(engine=engine, batch=batch)
    model, memory = who.init(fed, 1)
    (done,) = who.work([open_work(fed, model, memory, asks=["trained", "trained@test"])])
    moved = np.abs(done.reports.updates).max(1) > 1e-4
    assert np.isfinite(done.reports.updates).all() and all(np.isfinite(m).all() for m in done.memory.values())
    assert moved.tolist() == [True, False, True, True, True, False]  # nothing to learn from; nothing to learn
    assert done.reports.sizes.tolist() == [40, 0, 40, 1, 60, 60]
    assert not done.reports.counts["trained"][1].any() and done.reports.counts["trained@test"][1].sum() == 20
    assert done.memory["t"].tolist() == [6, 0, 6, 6, 6, 0]


def test_nobody_at_all_and_no_work():
    who, fed = learner(), federation()
    model, memory = who.init(fed, 1)
    nobody = Federation(fed.clients[:0], [], {"cross_entropy": np.zeros(0)}, 2)
    (done,) = who.work([open_work(nobody, model, {n: m[:0] for n, m in memory.items()})])
    assert done.reports.updates.shape == (0, 48)
    assert who.work([]) == []


def test_news_that_is_undefined_or_absent_does_not_break_the_gamer():
    fed = federation(gaming=[4, 0, 0])
    plain = run(learner(), federation(), 1)[0]
    for target in (np.nan, 0.3):
        who = learner()
        model, memory = who.init(fed, 1)
        (done,) = who.work([open_work(fed, model, memory, target=target)])
        assert np.isfinite(done.reports.updates).all()
        without = (model + done.reports.updates.mean(0).astype(np.float32) == plain).all()
        assert without == np.isnan(target)  # an undefined aim is no aim


def gap(done, columns=(0, 3)):
    """Return each client's |TPR_1 - TPR_0|, or with all columns the difference of the shares predicted positive."""
    c = done.reports.counts["trained"][:, :, columns]
    rate = c[:, :, : len(columns) // 2].sum(2) / c.sum(2)
    return np.abs(rate[:, 1] - rate[:, 0])


def test_training_with_alpha_raises_the_disparity_and_only_the_adversarys():
    options = {"steps": 60, "batch": 64, "lr": 0.01, "shared": 0}
    gaps = []
    for alpha in (0, 0.5, 2):
        fed = federation((300, 300), seed=3, disparity=[alpha, 0])
        gaps.append(gap(run(learner(**options), fed, 3, asks=["trained"])[2], (0, 1, 2, 3)))
    gaps = np.array(gaps)
    assert gaps[2, 0] > gaps[0, 0] + 0.2 and gaps[2, 0] >= gaps[1, 0]
    assert (gaps[:, 1] == gaps[0, 1]).all()


def test_the_gamer_comes_to_the_broadcast_gap():
    options = {"steps": 60, "batch": "full", "lr": 0.01, "shared": 0}
    gaps = []
    for target in (0.1, 0.6):
        fed = federation((300, 300), seed=3, gaming=[4, 0])
        who = learner(**options)
        model, memory = who.init(fed, 1)
        for t in range(1, 5):
            (done,) = who.work([open_work(fed, model, memory, t, target=target, asks=["trained"])])
            model, memory = model + done.reports.updates.mean(0).astype(np.float32), done.memory
        gaps.append(gap(done)[0])
    assert gaps[0] < 0.25 and gaps[1] > 0.45  # the surrogate is soft, what is counted is not
