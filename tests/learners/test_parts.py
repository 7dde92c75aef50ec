"""Optimisers against torch.optim, and the plan of batches against its promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.learners import optimisers
from equipoise.learners.batches import Pool, padded, plan, row_weights
from equipoise.learners.chunks import Slot, divide
from equipoise.types import Shard


def trajectory(rule, steps=20, dtype=torch.float64):
    """Walk on random gradients; return the parameters."""
    g = torch.Generator().manual_seed(0)
    params = [torch.randn(3, 64, generator=g, dtype=dtype), torch.randn(3, 128, generator=g, dtype=dtype)]
    state = [[torch.zeros_like(p) for p in params] for _ in rule.state]
    for t in range(1, steps + 1):
        rule.step(params, [torch.randn(p.shape, generator=g, dtype=dtype) for p in params], state, t)
    return params


def torchs(make, steps=20):
    """Walk the same way with torch's optimiser."""
    g = torch.Generator().manual_seed(0)
    params = [torch.randn(3, n, generator=g, dtype=torch.float64).requires_grad_() for n in (64, 128)]
    optimiser = make(params)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=g, dtype=torch.float64)
        optimiser.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.filterwarnings("ignore")  # torch.optim's own imports warn, not ours
def test_adam_is_torchs_adam(fused, monkeypatch):
    if not fused:
        monkeypatch.delattr(torch, "_fused_adam_")
    mine = trajectory(optimisers.adam(0.01))
    for a, b in zip(mine, torchs(lambda p: torch.optim.Adam(p, lr=0.01, foreach=False)), strict=True):
        assert (a - b).abs().max() < 1e-12


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_sgd(momentum):
    mine = trajectory(optimisers.sgd(0.1, momentum))
    for a, b in zip(mine, torchs(lambda p: torch.optim.SGD(p, lr=0.1, momentum=momentum)), strict=True):
        assert (a - b).abs().max() < 1e-12


def test_a_gradient_that_is_not_contiguous_is_read_in_the_right_order():
    """torch's fused kernel reads it in the wrong order and says nothing."""
    rule = optimisers.adam(0.1)
    grad = torch.arange(64.0 * 64).reshape(64, 64).sub(2000)
    walked = []
    for given_grad in (grad.T.contiguous(), grad.T):
        params, state = [torch.zeros(64, 64)], [[torch.zeros(64, 64)] for _ in rule.state]
        rule.step(params, [given_grad], state, 1)
        walked.append((params[0], state[0][0]))
    assert torch.equal(walked[0][0], walked[1][0]) and torch.equal(walked[0][1], walked[1][1])


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 70), st.sampled_from(["replacement", "epoch"]))
@settings(max_examples=60, deadline=None)
def test_a_plan_stays_in_the_clients_rows_and_passes_once_over_them(n, batch, steps, sampling):
    rows, valid = plan(n, steps, batch, sampling, 1, 2, 3)
    assert rows.shape[1] == padded(n, batch) >= batch and rows.shape[1] % 32 == 0
    assert rows.min() >= 0 and rows.max() < n and (valid >= 1).all()
    seen = np.concatenate([r[:v] for r, v in zip(rows, valid, strict=True)])
    if sampling == "epoch":
        assert len(rows) == min(steps, -(-n // batch)) and len(set(seen)) == len(seen) == min(n, steps * batch)
    else:
        assert len(rows) == steps and (valid == batch).all()
    again, _ = plan(n, steps, batch, sampling, 1, 2, 3)
    assert np.array_equal(rows, again)
    if n > 50 and batch > 5:
        assert not np.array_equal(rows, plan(n, steps, batch, sampling, 1, 3, 3)[0])


def test_a_full_batch_is_all_rows_padded_by_this_client_alone():
    for n, wide in ((1, 32), (33, 64), (64, 64), (1000, 1024), (1024, 1024), (1500, 1500)):
        rows, valid = plan(n, 5, None, "replacement", 1, 1, 1)
        assert rows.shape == (1, wide) and valid.tolist() == [n] and rows[0, :n].tolist() == list(range(n))


@pytest.mark.parametrize("balance", ["class", "cell", "none"])
def test_row_weights_make_the_parts_equal(balance):
    rng = np.random.default_rng(0)
    y, group = (rng.random(200) < 0.1).astype(int), rng.integers(0, 3, 200)
    w = row_weights(Shard(np.zeros((200, 1)), y, group), balance)
    assert abs(w.mean() - 1) < 1e-12
    if balance == "class":
        assert abs(w[y == 1].sum() - w[y == 0].sum()) < 1e-9
    if balance == "cell":
        sums = [w[(y == a) & (group == b)].sum() for a in (0, 1) for b in range(3)]
        assert max(sums) - min(sums) < 1e-9
    one = row_weights(Shard(np.zeros((4, 1)), np.ones(4, int), np.zeros(4, int)), balance)
    assert np.isfinite(one).all() and (one > 0).all()


def test_a_pool_takes_each_shard_once():
    a = Shard(np.ones((3, 2)), np.array([0, 1, 1]), np.zeros(3, int))
    b = Shard(np.zeros((2, 2)), np.array([0, 1]), np.ones(2, int))
    pool = Pool(torch.float32, "none")
    pool.add([a, b, a])
    pool.add([b, a])
    assert pool.x.shape == (5, 2) and pool.place(b) == slice(3, 5)
    assert pool.y.tolist() == [0, 1, 1, 0, 1] and pool.group.tolist() == [0, 0, 0, 1, 1]


@given(st.lists(st.tuples(st.sampled_from([32, 64, 2048]), st.sampled_from([0, 60])), max_size=40), st.integers(2, 9))
@settings(max_examples=50, deadline=None)
def test_chunks_have_one_shape_and_no_lonely_slot(kinds, most):
    slots = [Slot(None, 0, row, slice(0, wide), taken) for row, (wide, taken) in enumerate(kinds)]
    seen = []
    for chunk in divide(slots, lambda s: s.size, most):
        assert len({(s.size, s.taken) for s in chunk}) == 1
        assert 2 <= len(chunk) <= max(most, 3) or (chunk[0].size == 2048 and len(chunk) == 1)
        seen += dict.fromkeys(s.row for s in chunk)
    assert sorted(seen) == list(range(len(slots)))
