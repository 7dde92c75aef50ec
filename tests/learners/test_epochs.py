"""Passes over the rows, and batches that every row enters by its own coin."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import distance, federation, learner, open_work, run

from equipoise.checks import BadInput
from equipoise.learners.batches import plan, width


def seen(rows, valid):
    return np.concatenate([r[:v] for r, v in zip(rows, valid, strict=True)])


@given(st.integers(1, 200), st.integers(1, 70), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_every_row_is_seen_once_in_every_epoch(n, batch, epochs):
    rows, valid = plan(n, None, batch, "epoch", 1, 2, 3, epochs)
    each = -(-n // batch)
    assert len(rows) == len(valid) == each * epochs
    for e in range(epochs):
        part = slice(e * each, (e + 1) * each)
        assert sorted(seen(rows[part], valid[part])) == list(range(n))
    if epochs > 1 and n > 50 and batch < n:
        assert not np.array_equal(rows[:each], rows[each : 2 * each])  # freshly shuffled
    capped, short = plan(n, 3, batch, "epoch", 1, 2, 3, epochs)
    assert np.array_equal(capped, rows[:3]) and np.array_equal(short, valid[:3])


def test_the_first_epoch_is_what_one_epoch_has_always_been():
    rows, valid = plan(70, 60, 16, "epoch", 4, 5, 6)
    assert np.array_equal(rows, plan(70, None, 16, "epoch", 4, 5, 6, 3)[0][:5]) and valid.tolist() == [16] * 4 + [6]


@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_poisson_batch_holds_no_row_twice_and_its_width_is_the_clients_own(n, batch, epochs):
    rows, valid = plan(n, None, batch, "poisson", 1, 2, 3, epochs)
    assert len(rows) == len(valid) == epochs * -(-n // batch)
    assert rows.shape[1] == width(n, None, batch, "poisson", 1, 2, 3, epochs) >= valid.max() and rows.shape[1] % 32 == 0
    assert rows.min() >= 0 and rows.max() < n
    assert all(len(set(r[:v])) == v for r, v in zip(rows, valid, strict=True))
    if batch >= n:
        assert (valid == n).all()  # q is 1
    again = plan(n, None, batch, "poisson", 1, 2, 3, epochs)
    assert np.array_equal(rows, again[0]) and np.array_equal(valid, again[1])


def test_poisson_rows_enter_independently_with_probability_q():
    """Against the binomial law: sizes, each row's frequency, and pairs of rows, over many steps."""
    n, batch, steps = 40, 10, 20_000
    rows, valid = plan(n, steps, batch, "poisson", 7, 1, 1)
    inside = np.zeros((steps, n), bool)
    for step, (row, v) in enumerate(zip(rows, valid, strict=True)):
        inside[step, row[:v]] = True
    q = batch / n
    assert abs(valid.mean() - batch) < 5 * np.sqrt(n * q * (1 - q) / steps)
    assert abs(valid.var() - n * q * (1 - q)) < 0.3
    assert np.abs(inside.mean(0) - q).max() < 5 * np.sqrt(q * (1 - q) / steps)
    pairs = (inside[:, :20] & inside[:, 20:]).mean(0)
    assert np.abs(pairs - q * q).max() < 5 * np.sqrt(q * q * (1 - q * q) / steps)
    assert not np.array_equal(valid, plan(n, steps, batch, "poisson", 7, 2, 1)[1])  # another round draws anew


POISSON = {"sampling": "poisson", "batch": 3, "steps": 25}


@pytest.mark.parametrize("recipe", [{}, {"optimiser": "sgd", "lr": 0.05}], ids=str)
@pytest.mark.parametrize("engine", ["chain", "swap", "vmap"])
def test_engines_agree_on_batches_that_may_be_empty(engine, recipe):
    fed = federation((50, 130, 75, 5), proximal=[0, 0, 0.1, 0.1], gaming=[4, 0, 0, 0])
    assert any((plan(n, 25, 3, "poisson", 1, 1, k)[1] == 0).any() for k, n in enumerate((50, 130, 75, 5)))
    runs = [run(learner(dtype="float64", engine=e, **POISSON, **recipe), fed, 3) for e in ("loop", engine)]
    assert np.abs(runs[0][0] - runs[1][0]).max() < 1e-10 and distance(runs[0][1], runs[1][1]) < 1e-10
    assert np.isfinite(runs[0][0]).all()


@pytest.mark.parametrize("engine", ["chain", "loop"])
def test_an_empty_batch_is_a_step_of_zero_under_plain_sgd(engine):
    """One expected row of 40: the model moves at those steps that drew one, and the pull of the start does not."""
    fed = federation((40,), proximal=[0.5])
    options = {"sampling": "poisson", "batch": 1, "optimiser": "sgd", "lr": 0.1, "shared": None, "engine": engine}
    drew = plan(40, 12, 1, "poisson", 1, 1, 0)[1] > 0
    assert 0 < drew.sum() < 12
    models = [np.zeros(95)]
    for steps in range(1, 13):
        who = learner(steps=steps, **options)
        (done,) = who.work([open_work(fed, *who.init(fed, 1))])
        models.append(done.reports.updates[0])
    assert [not np.array_equal(a, b) for a, b in pairwise(models)] == drew.tolist()


def test_epochs_count_steps_by_client_and_bits_keep_their_independence():
    fed, options = federation((50, 130, 75)), {"sampling": "epoch", "epochs": 3, "steps": None}
    whole = run(learner(**options), fed, 2)
    assert whole[2].memory["t"].tolist() == [2 * 3 * -(-n // 16) for n in (50, 130, 75)]
    two = run(learner(chunk=2, **options), fed, 2)
    assert np.array_equal(whole[0], two[0]) and distance(whole[1], two[1]) == 0
    loop, chain = (run(learner(engine=e, dtype="float64", **options), fed, 2)[0] for e in ("loop", "chain"))
    assert np.abs(loop - chain).max() < 1e-10


@pytest.mark.parametrize("sampling", ["epoch", "poisson"])
def test_a_full_batch_is_one_step_an_epoch(sampling):
    fed = federation((50, 130))
    steps = [
        run(learner(batch="full", sampling=sampling, steps=None, epochs=e), fed, 1)[2].memory["t"].tolist()
        for e in (1, 4)
    ]
    assert steps == [[1, 1], [4, 4]]
    plain = run(learner(batch="full", steps=4), fed, 1)[0]
    assert np.array_equal(plain, run(learner(batch="full", sampling=sampling, steps=None, epochs=4), fed, 1)[0])


def test_epochs_with_replacement_and_none_at_all_are_refused():
    with pytest.raises(BadInput, match="no epochs with replacement, got 2; set steps, or use sampling 'epoch'"):
        learner(epochs=2)
    with pytest.raises(BadInput, match="steps, epochs and batch must be >= 1 and chunk >= 2, got None, 0, 16 and 30"):
        learner(epochs=0, steps=None, sampling="epoch")
