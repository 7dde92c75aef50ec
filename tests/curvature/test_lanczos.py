"""Top eigenvalues and traces of matrices, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from equipoise.checks import BadInput
from equipoise.curvature import hutchinson, random_start, top_eigenpair, top_eigenvalue

SPECTRA = {
    "spread": np.linspace(-1, 4, 60),
    "negative in front": np.r_[np.linspace(0, 2, 59), -7.0],
    "all negative": -np.linspace(1, 9, 60),
    "a few, then nothing": np.r_[5.0, 4.0, np.zeros(58)],
}


def matrices(name):
    rng = np.random.default_rng(3)
    turned = [np.linalg.qr(rng.standard_normal((60, 60)))[0] for _ in range(2)]
    return torch.from_numpy(np.stack([q * (SPECTRA[name] * (s + 1)) @ q.T for s, q in enumerate(turned)]))


def times(matrix):
    return lambda v: (matrix @ v.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("by", ["algebraic", "magnitude"])
@pytest.mark.parametrize("name", SPECTRA)
def test_every_way_gives_numpys_eigenvalue(name, by):
    h, start = matrices(name), random_start([(1, 1, 0), (1, 1, 1)], 60).double()
    values = np.linalg.eigvalsh(h.numpy())
    right = [v[np.abs(v).argmax()] if by == "magnitude" else v.max() for v in values]
    assert top_eigenvalue(h.numpy(), by=by) == pytest.approx(right)
    assert top_eigenvalue(h, by=by, exact_below=0).numpy() == pytest.approx(right, rel=1e-3, abs=1e-9)
    pair = top_eigenpair(times(h), start, by=by, tolerance=1e-8)
    assert pair.value.numpy() == pytest.approx(right, rel=1e-8, abs=1e-9)
    assert torch.allclose(times(h)(pair.vector), pair.value[:, None] * pair.vector, atol=1e-6)
    assert pair.vector.norm(dim=1).numpy() == pytest.approx([1, 1])


def test_within_the_error_lies_an_eigenvalue():
    h = matrices("spread")
    for budget in (1, 2, 5, 10):
        pair = top_eigenpair(times(h), torch.ones(2, 60, dtype=torch.float64), budget=budget, tolerance=0)
        gaps = np.abs(np.linalg.eigvalsh(h.numpy()) - pair.value.numpy()[:, None]).min(1)
        assert (gaps <= pair.error.numpy() + 1e-12).all()


def test_budget_is_the_number_of_products_and_a_warm_start_saves_them():
    h, count = matrices("spread"), []

    def product(v):
        count.append(1)
        return times(h)(v)

    start = torch.ones(2, 60, dtype=torch.float64)
    top_eigenpair(product, start, budget=7, tolerance=0)
    assert len(count) == 7
    count.clear()
    cold = top_eigenpair(product, start, tolerance=1e-6)
    needed = len(count)
    count.clear()
    nearly = cold.vector + 1e-4 * torch.ones(2, 60, dtype=torch.float64)
    warm = top_eigenpair(product, nearly, tolerance=1e-6)
    assert len(count) < needed / 2
    assert torch.allclose(warm.value, cold.value, rtol=1e-9)


def test_a_slot_does_not_feel_the_others():
    h, start = matrices("spread"), random_start([(1, 1, 0), (1, 1, 1)], 60).double()
    both = top_eigenpair(times(h), start, tolerance=1e-2)
    for s in range(2):
        own = top_eigenpair(times(h[s : s + 1]), start[s : s + 1], tolerance=1e-2)
        assert torch.allclose(both.value[s], own.value[0], rtol=1e-12)
        assert torch.allclose(both.vector[s], own.vector[0], atol=1e-12)


def test_nothing_is_0_and_nan_is_nan():
    zero = torch.zeros(1, 5, 5)
    lost = torch.full((1, 5, 5), torch.nan)
    pair = top_eigenpair(times(torch.cat([zero, lost, torch.eye(5)[None]])), torch.ones(3, 5))
    assert pair.value[0] == 0 and pair.value[1].isnan() and pair.value[2] == pytest.approx(1)
    assert not top_eigenpair(times(zero), torch.zeros(1, 5)).vector.any()
    assert np.isnan(top_eigenvalue(lost[0].numpy()))


@pytest.mark.parametrize(
    "call",
    [
        lambda: top_eigenvalue(np.zeros((2, 3))),
        lambda: top_eigenvalue(np.zeros(3)),
        lambda: top_eigenvalue(lambda v: v),
        lambda: top_eigenvalue(np.eye(2), by="largest"),
        lambda: hutchinson(lambda v: v, [(1, 1, 1)], torch.zeros(1, 2), budget=1),
    ],
)
def test_what_cannot_be_used_is_refused(call):
    with pytest.raises(BadInput):
        call()


def test_hutchinson_is_as_far_off_as_it_says():
    h = matrices("negative in front")
    keys = [(seed, 1, 0) for seed in range(200)]
    found = hutchinson(times(h[:1].expand(200, 60, 60)), keys, torch.zeros(200, 60, dtype=torch.float64), budget=50)
    off = (found.value.numpy() - np.trace(h[0].numpy())) / found.error.numpy()
    assert 0.8 < off.std() < 1.25  # standard errors, so the deviation is 1
    assert abs(off.mean()) < 0.25


def test_hutchinson_stops_on_negative_and_vanishing_traces_alike():
    count = []

    def product(v):
        count.append(1)
        return v * torch.tensor([[-3.0, -1.0], [2.0, -2.0]])

    found = hutchinson(product, [(1, 1, 0), (1, 1, 1)], torch.zeros(2, 2))
    assert found.value.tolist() == [-4, 0]
    assert len(count) == 10  # as every probe gives the trace of a diagonal


def test_a_slots_probes_come_from_its_key():
    h = matrices("spread")
    like = torch.zeros(2, 60, dtype=torch.float64)
    both = hutchinson(times(h), [(1, 2, 3), (4, 5, 6)], like, budget=20)
    second = hutchinson(times(h[1:]), [(4, 5, 6)], like[1:], budget=20)
    assert torch.allclose(both.value[1], second.value[0])
    assert not torch.allclose(hutchinson(times(h[1:]), [(4, 6, 6)], like[1:], budget=20).value, second.value)
