"""Robust rules: laws over the catalogue, preconditions, and oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise import robust
from equipoise.checks import BadInput
from equipoise.robust import (
    coordinate_median,
    geometric_median,
    krum,
    krum_choice,
    krum_scores,
    multi_krum,
    multi_krum_choice,
    trimmed_mean,
)

from .claims import law

CATALOGUE = [getattr(robust, name) for name in robust.__all__]
UPDATES = hnp.arrays(np.float64, st.tuples(st.integers(5, 9), st.integers(1, 5)), elements=st.floats(-100, 100))
CROWD = np.random.default_rng(0).normal(size=(9, 4))


@pytest.mark.parametrize("rule", CATALOGUE)
@law(updates=UPDATES)
def test_within_the_range_of_the_rows(rule: Any, updates: np.ndarray) -> None:
    before = updates.copy()
    updates.setflags(write=False)
    out = rule(updates)
    assert out.shape == updates.shape[1:]
    slack = 1e-9 * (1 + np.abs(updates).max())
    assert ((out >= updates.min(0) - slack) & (out <= updates.max(0) + slack)).all()
    np.testing.assert_array_equal(rule(updates), out)
    np.testing.assert_array_equal(updates, before)


@pytest.mark.parametrize("rule", CATALOGUE)
def test_order_does_not_matter(rule: Any) -> None:
    order = np.random.default_rng(1).permutation(len(CROWD))
    np.testing.assert_allclose(rule(CROWD[order]), rule(CROWD), atol=1e-8)


@pytest.mark.parametrize("rule", CATALOGUE)
@pytest.mark.parametrize("shift", [1.0, -1e3, 1e8])
def test_shift_and_scale_equivariant(rule: Any, shift: float) -> None:
    tolerance = 1e-7 + 1e-12 * abs(shift)
    np.testing.assert_allclose(rule(CROWD + shift) - shift, rule(CROWD), atol=tolerance * 10)
    np.testing.assert_allclose(rule(CROWD * 8), rule(CROWD) * 8, atol=1e-7)


@pytest.mark.parametrize("rule", CATALOGUE)
@pytest.mark.parametrize("far", [1e3, 1e9, 1e200])
def test_one_hostile_row_cannot_drag_it(rule: Any, far: float) -> None:
    hostile = np.vstack([CROWD, np.full(4, far)])
    assert np.abs(rule(hostile)).max() <= np.abs(CROWD).max()


@pytest.mark.parametrize("rule", CATALOGUE)
@pytest.mark.parametrize("k", [5, 8])
def test_equal_rows_are_kept(rule: Any, k: int) -> None:
    np.testing.assert_allclose(rule(np.tile([0.1, -7.0], (k, 1))), [0.1, -7.0], rtol=1e-15)


@pytest.mark.parametrize("rule", CATALOGUE)
def test_type_is_kept_and_a_silo_is_fine(rule: Any) -> None:
    assert rule(CROWD.astype(np.float32)).dtype == np.float32
    assert rule(np.zeros((5, 0))).shape == (0,)


@pytest.mark.parametrize("rule", CATALOGUE)
def test_a_row_that_is_not_finite_is_named(rule: Any) -> None:
    bad = CROWD.copy()
    bad[3, 1] = np.nan
    with pytest.raises(BadInput, match="update at position 3 is not finite"):
        rule(bad)
    with pytest.raises(BadInput, match="at least one client"):
        rule(np.zeros((0, 3)))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: krum(np.zeros((4, 1)), f=1), r"Krum needs n >= 2f \+ 3 = 5 clients, got 4"),
        (lambda: multi_krum(np.zeros((6, 1)), f=2), r"= 7 clients, got 6"),
        (lambda: krum(np.zeros((4, 1)), f=-1), "f must be a number of clients"),
        (lambda: multi_krum(np.zeros((5, 1)), f=1, keep=5), r"keep must lie in 1..n - f = 4, got 5"),
        (lambda: multi_krum(np.zeros((5, 1)), f=1, keep=0), "keep must lie in 1"),
        (lambda: trimmed_mean(np.zeros((2, 1)), trim=0.2), "cutting 1 at each end needs n >= 3 clients, got 2"),
        (lambda: trimmed_mean(np.zeros((4, 1)), f=2), "needs n >= 5 clients, got 4"),
        (lambda: trimmed_mean(np.zeros((5, 1)), trim=0.5), "trim must be below 0.5, got 0.5"),
        (lambda: trimmed_mean(np.zeros((5, 1)), trim=0.0), "trim must be above 0, got 0"),
        (lambda: trimmed_mean(np.zeros((5, 1)), f=0), "plain mean"),
        (lambda: trimmed_mean(np.zeros((5, 1)), trim=0.2, f=1), "both given"),
        (lambda: geometric_median(np.zeros((5, 1)), tolerance=0), "tolerance must lie in"),
    ],
)
def test_preconditions_are_errors(call: Any, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        call()


def test_trimmed_mean_cuts_the_floor_of_its_share() -> None:
    u = np.arange(100.0)[:, None] ** 2
    np.testing.assert_allclose(trimmed_mean(u, trim=0.29), u[29:71].mean(0))  # 0.29 * 100 is 28.999... in float
    np.testing.assert_allclose(trimmed_mean(u[:14], trim=0.2), u[2:12].mean(0))
    np.testing.assert_allclose(trimmed_mean(u[:9]), u[1:8].mean(0))


def test_ties_go_to_the_smaller_id() -> None:
    u = np.array([[0.0], [1.0], [0.0], [1.0], [0.5], [9.0]])
    scores = krum_scores(u, f=1)
    assert scores[0] == scores[2] and scores[1] == scores[3]
    twins = np.array([[1.0], [-1.0], [1.0], [-1.0], [1.0], [-1.0]])
    assert krum_choice(twins, f=1).tolist() == [0]
    many = np.tile([[1.0], [-1.0]], (50, 1))
    assert multi_krum_choice(many, f=1, keep=60).tolist() == list(range(60))


def test_multi_krum_of_one_is_krum_and_names_its_rows() -> None:
    np.testing.assert_array_equal(multi_krum(CROWD, f=2, keep=1), krum(CROWD, f=2))
    chosen = multi_krum_choice(CROWD, f=2)
    assert len(chosen) == 9 - 2 - 2
    np.testing.assert_allclose(multi_krum(CROWD, f=2), CROWD[chosen].mean(0))


def test_krum_by_brute_force() -> None:
    for i in range(len(CROWD)):
        others = sorted(((CROWD[i] - CROWD[j]) ** 2).sum() for j in range(len(CROWD)) if j != i)
        assert krum_scores(CROWD, f=2)[i] == pytest.approx(sum(others[: 9 - 2 - 2]))


# The geometric median against what is known about it


def spread(y: np.ndarray, u: np.ndarray) -> float:
    return float(np.sqrt(((u - y) ** 2).sum(1)).sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [1, 2, 40])
def test_geometric_median_against_scipy(seed: int, d: int) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    r = np.random.default_rng(seed)
    u = r.standard_t(2, size=(7, d)) + 5
    options = {"xtol": 1e-10, "ftol": 1e-14}
    found = optimize.minimize(spread, np.median(u, axis=0), args=(u,), method="Powell", options=options)
    assert spread(geometric_median(u), u) <= found.fun * (1 + 1e-9)


def test_geometric_median_on_a_line_is_the_median() -> None:
    u = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 6.0], [50.0, 100.0], [-7.0, -14.0]])
    np.testing.assert_allclose(geometric_median(u), [1, 2], atol=1e-12)
    np.testing.assert_allclose(geometric_median(np.array([[0.0], [4.0]])), [2])


def test_geometric_median_of_a_square_is_its_middle() -> None:
    np.testing.assert_allclose(geometric_median(np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])), [0.5, 0.5], atol=1e-9)


def test_geometric_median_leaves_a_row_that_is_not_it() -> None:
    u = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 10.0], [0.3, 10.0], [0.0, 10.5]])
    best = geometric_median(u)
    grid = np.stack(np.meshgrid(np.linspace(-2, 2, 81), np.linspace(-1, 11, 241)), -1).reshape(-1, 2)
    assert spread(best, u) <= min(spread(g, u) for g in grid[::3]) + 1e-9


def test_geometric_median_leaves_a_row_that_is_the_mean() -> None:
    u = np.array([[0.0, 0.0], [-4.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.1], [1.0, -0.1]])
    np.testing.assert_array_equal(u.mean(0), u[0])
    np.testing.assert_allclose(geometric_median(u), [1.0, 0.0], atol=1e-6)


def test_a_majority_of_equal_rows_wins_exactly() -> None:
    u = np.vstack([np.tile([1.0, 2.0, 3.0], (4, 1)), CROWD[:3, :3] * 1e6])
    np.testing.assert_array_equal(geometric_median(u), [1.0, 2.0, 3.0])


# flwr, where its behaviour is right (methods in users.md: it trims nothing from three clients, takes n = 3 for Krum)


def flower() -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("flwr.server.strategy.aggregate", reason="flwr is not installed")


@pytest.mark.parametrize("seed", range(3))
def test_against_flower(seed: int) -> None:
    f = flower()
    u = np.random.default_rng(seed).normal(size=(10, 6))
    results = [([row], 1) for row in u]
    np.testing.assert_allclose(coordinate_median(u), f.aggregate_median(results)[0])
    np.testing.assert_allclose(trimmed_mean(u, trim=0.2), f.aggregate_trimmed_avg(results, 0.2)[0])
    np.testing.assert_allclose(krum(u, f=3), f.aggregate_krum(results, 3, 0)[0])
    np.testing.assert_allclose(multi_krum(u, f=3, keep=4), f.aggregate_krum(results, 3, 4)[0])
