"""More than two classes: every engine against the loop, and what a class number means to weights and counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, count, distance, learner, open_work, run

from equipoise import objectives
from equipoise.checks import BadInput
from equipoise.learners.batches import row_weights
from equipoise.types import Federation, Local, Shard


def shard(n, seed, classes):
    """Draw rows whose class is the largest of some linear scores."""
    rng, rule = np.random.default_rng(seed), np.random.default_rng(99)
    x = rng.standard_normal((n, FEATURES))
    y = (x @ rule.standard_normal((FEATURES, classes))).argmax(1)
    return Shard(x, y, rng.integers(0, 2, n))


def federation(classes, sizes=(50, 130, 75)):
    ones = np.ones(len(sizes))
    terms = {"cross_entropy": ones, "proximal": ones * 0.1}
    return Federation(np.arange(len(sizes)), [shard(n, i, classes) for i, n in enumerate(sizes)], terms, 2, {}, classes)


def net(classes):
    return lambda: nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, classes))


def hits(y, yhat, group, groups):
    """Count the right as tp and the wrong as fn."""
    table = np.zeros((groups, 4), np.int64)
    np.add.at(table, (group, np.where(y == yhat, 0, 3)), 1)
    return table


@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("recipe", [{}, {"sampling": "epoch", "epochs": 2}, {"batch": "full"}], ids=str)
@pytest.mark.parametrize("engine", ["chain", "swap", "vmap"])
def test_every_engine_gives_the_loops_result_over_a_whole_run(engine, recipe, classes):
    options = {"dtype": "float64", "count": hits} | recipe
    fed, asks = federation(classes), ["trained"]
    runs = [run(learner(net(classes), engine=e, **options), fed, 4, asks=asks) for e in ("loop", engine)]
    (model, memory, done), (other, others, theirs) = runs
    assert np.abs(model - other).max() < 1e-10 and distance(memory, others) < 1e-10
    assert np.array_equal(done.reports.counts["trained"], theirs.reports.counts["trained"])


@pytest.mark.parametrize("engine", ["chain", "swap"])
def test_bits_depend_neither_on_company_nor_on_chunks(engine):
    fed, other = federation(3), federation(3, (33, 64, 50, 70))
    alone = run(learner(net(3), count=hits, engine=engine), fed, 1)[2]
    for chunk in (2, 30):
        who = learner(net(3), count=hits, engine=engine, chunk=chunk)
        _, done = who.work([open_work(other, *who.init(other, 2), seed=2), open_work(fed, *who.init(fed, 1))])
        assert np.array_equal(done.reports.updates, alone.reports.updates)


@pytest.mark.parametrize("engine", ["auto", "loop"])
def test_what_is_learned_is_the_class(engine):
    who = learner(net(3), None, count=hits, engine=engine, steps=150, batch=32, lr=0.01)
    fed = replace(federation(3), terms={"cross_entropy": np.ones(3)})
    (done,) = who.work([open_work(fed, *who.init(fed, 1), asks=["received", "trained"])])
    right = {m: c[:, :, 0].sum(1) / c.sum((1, 2)) for m, c in done.reports.counts.items()}
    assert (right["received"] < 0.5).all() and (right["trained"] > 0.95).all()


def signal_net():
    """Build a small temporal convolution: two channels of 12 samples that lie flat, three classes."""
    return nn.Sequential(
        nn.Unflatten(1, (2, 12)), nn.Conv1d(2, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(20, 3)
    )


def test_a_convolution_finds_a_planted_pattern():
    def planted(n, seed):
        rng = np.random.default_rng(seed)
        x, y = 0.3 * rng.standard_normal((n, 2, 12)), rng.integers(0, 3, n)
        at = rng.integers(0, 8, n)  # anywhere: what a convolution is for
        for row, (label, place) in enumerate(zip(y, at, strict=True)):
            x[row, :, place : place + 4] += [[0] * 4, [1, -1, 1, -1], [1, 1, 1, 1]][label]
        return Shard(x.reshape(n, 24), y, np.zeros(n, int))

    fed = Federation(
        np.arange(2), [planted(200, i) for i in range(2)], {"cross_entropy": np.ones(2)}, 1,
        {"test": [planted(300, 9)] * 2}, 3,
    )  # fmt: skip
    options = {"sampling": "epoch", "epochs": 3, "batch": 32, "optimiser": "sgd", "lr": 0.1, "momentum": 0.9}
    _, _, done = run(learner(signal_net, None, count=hits, **options), fed, 5, asks=["trained@test"])
    table = done.reports.counts["trained@test"]
    assert (table[:, 0, 0] / table.sum((1, 2)) > 0.95).all()


def test_cross_entropy_and_its_slope_are_torchs():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 20, 5, generator=g, dtype=torch.float64).requires_grad_()
    y, weight = torch.randint(0, 5, (3, 20), generator=g), torch.rand(3, 20, generator=g, dtype=torch.float64)
    weight[1, 7:] = 0
    local = Local({}, {}, None, y.double(), y, weight, logits, {})
    value = objectives.cross_entropy(local)
    right = [
        (w * nn.functional.cross_entropy(z, t, reduction="none")).sum() / w.sum()
        for z, t, w in zip(logits, y, weight, strict=True)
    ]
    assert (value - torch.stack(right)).abs().max() < 1e-12
    (slope,) = torch.autograd.grad(value.sum(), logits)
    closed = objectives.cross_entropy.slope(replace(local, logits=logits.detach()))
    assert (slope - closed).abs().max() < 1e-12 and not closed[1, 7:].any()


def test_classes_weigh_the_same_where_the_client_has_them():
    y = np.array([0] * 6 + [2] * 3 + [4])
    w = row_weights(Shard(np.zeros((10, 1)), y, np.zeros(10, int)), "class")
    assert w[[0, 6, 9]].tolist() == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    cells = row_weights(Shard(np.zeros((10, 1)), y, np.arange(10) % 2), "cell")
    sums = [cells[(y == a) & (np.arange(10) % 2 == b)].sum() for a in (0, 2) for b in (0, 1)]
    assert sums == pytest.approx([2.0] * 4)  # ten rows over five cells


def test_a_model_whose_output_is_no_number_hits_nothing():
    who, fed = learner(net(3), None, count=hits), federation(3)
    model, memory = who.init(fed, 1)
    (done,) = who.work([open_work(fed, np.full_like(model, np.nan), memory, asks=["received"])])
    assert not done.reports.counts["received"].any()


@pytest.mark.parametrize(
    ("outputs", "classes", "message"),
    [(1, 3, "gives 1 logits a row, and labels of 3 classes need 3; change its last layer"),
     (3, 2, "gives 3 logits a row, and labels of 2 classes need 1"),
     (10, 6, "gives 10 logits a row, and labels of 6 classes need 6")],
)  # fmt: skip
def test_a_model_of_other_classes_is_refused(outputs, classes, message):
    fed = replace(federation(2), classes=classes)
    with pytest.raises(BadInput, match=message):
        run(learner(net(outputs), count=count), fed, 1)


def test_labels_outside_the_classes_are_refused():
    fed = federation(3)
    odd = replace(fed.shards[1], y=fed.shards[1].y + 1)
    with pytest.raises(BadInput, match=r"client 1 has labels outside 0\.\.2; number the 3 classes from 0"):
        run(learner(net(3), count=hits), replace(fed, shards=[fed.shards[0], odd, fed.shards[2]]), 1)


def test_a_gap_between_groups_is_no_aim_with_three_classes():
    fed = federation(3)
    with pytest.raises(BadInput, match="needs labels 0 and 1"):
        run(learner(net(3), count=hits), replace(fed, terms=fed.terms | {"disparity": np.ones(3)}), 1)
