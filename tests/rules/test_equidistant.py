"""FinP's aggregation by distances: both forms against each other and against the centre of a sphere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from equipoise.aggregate import equidistant, norms
from equipoise.types import Array, Reports

from .claims import law

pytest.importorskip("scipy")


def updates_of(k: int, d: int = 40, seed: int = 0, longest: float = 1.2) -> Array:
    """Updates with much in common, of unlike lengths."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(k, d)) * rng.uniform(0.8, longest, (k, 1)) + rng.normal(size=d))


def step(updates: Array, **options: Any) -> tuple[Array, Any]:
    k = len(updates)
    delta, info, _ = equidistant(**options).step(Reports(np.arange(k), updates, np.arange(1.0, k + 1)), {})
    return delta, info


def spread(updates: Array, weights: Array) -> float:
    """What is minimised, from distances in the space itself."""
    d = np.array([np.linalg.norm(u - weights @ updates) for u in updates])
    return float(np.square(d - d.mean()).sum())


def centre(updates: Array) -> Array:
    """Weights of the point equally far from all: a linear system for the centre of the sphere through them."""
    k, square = len(updates), (updates**2).sum(1)
    system = np.block([[2 * updates @ updates.T, np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
    return np.asarray(np.linalg.solve(system, np.append(square, 1))[:k])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [2, 3, 10])
def test_the_centre_of_the_sphere_where_it_has_weights(k: int, seed: int) -> None:
    updates = updates_of(k, 2_000, seed, 0.85)
    right = centre(updates)
    assert right.min() > 0
    delta, info = step(updates)
    np.testing.assert_allclose(info["weights"], right, atol=1e-4)
    np.testing.assert_allclose(info["distances"], info["distances"].mean(), rtol=1e-5)
    np.testing.assert_allclose(norms(updates - delta), info["distances"], rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("longest", [1.2, 4.0])
@pytest.mark.parametrize("k", [2, 3, 5, 10])
def test_the_published_search_finds_the_same_weights(k: int, longest: float, seed: int) -> None:
    """With and without a point equally far from all; the published one stops earlier."""
    pytest.importorskip("sklearn")
    updates = updates_of(k, 40, seed, longest)
    ours, published = step(updates)[1], step(updates, published=True)[1]
    assert "note" not in ours and "note" not in published
    np.testing.assert_allclose(published["weights"], ours["weights"], atol=2e-3)
    least = spread(updates, ours["weights"])
    assert least <= spread(updates, published["weights"]) + 1e-9
    assert spread(updates, published["weights"]) == pytest.approx(least, abs=1e-4)


@pytest.mark.parametrize("d", [3, 40])
def test_a_pca_of_as_many_components_keeps_every_distance(d: int) -> None:
    """The reason why none is needed; also where the model has fewer parameters than there are clients."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    updates = updates_of(6, d)
    points = np.vstack([np.full(6, 1 / 6) @ updates, updates])
    turned = decomposition.PCA(min(6, d)).fit_transform(points)
    np.testing.assert_allclose(norms(turned[1:] - turned[0]), norms(points[1:] - points[0]), atol=1e-12)
    assert "note" not in step(updates, published=True)[1]


@law(st.integers(2, 7), st.integers(0, 10_000), st.floats(0.9, 5))
def test_no_other_weights_nearby_are_better(k: int, seed: int, longest: float) -> None:
    updates = updates_of(k, 12, seed, longest)
    weights = step(updates)[1]["weights"]
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    least, rng = spread(updates, weights), np.random.default_rng(seed)
    for _ in range(20):
        other = 0.98 * weights + 0.02 * rng.dirichlet(np.full(k, 0.3))
        assert spread(updates, other) >= least - 1e-8


def test_whoever_moves_them_all_and_stretches_them_changes_nothing() -> None:
    updates = updates_of(5, 20, 3, 3.0)
    np.testing.assert_allclose(step(1e-6 * (updates + 50))[1]["weights"], step(updates)[1]["weights"], atol=1e-6)


@pytest.mark.parametrize("published", [False, True])
def test_where_it_degenerates(published: bool) -> None:
    one = updates_of(1)
    delta, info = step(one, published=published)
    assert info["weights"].tolist() == [1] and info["distances"].tolist() == [0]
    np.testing.assert_array_equal(delta, one[0])
    same = np.repeat(one, 3, 0)
    _, info = step(same, published=published)
    np.testing.assert_array_equal(info["weights"], 1 / 3)
    np.testing.assert_allclose(info["distances"], 0, atol=1e-12)
    _, info = step(np.zeros((3, 4)), published=published)
    np.testing.assert_array_equal(info["weights"], 1 / 3)
    _, info = step(np.zeros((3, 0)), published=published)  # nothing is shared
    np.testing.assert_array_equal(info["weights"], 1 / 3)
    _, info = step(np.array([[0.0, 0], [1, 0], [2, 0]]), published=published)  # on a line no point will do
    assert "note" not in info and info["weights"].sum() == pytest.approx(1)
    twins = np.array([[0.0, 0], [0, 0], [2, 0]])
    _, info = step(twins, published=published)
    np.testing.assert_allclose(info["weights"] @ twins, [1, 0], atol=1e-3)


def test_what_cannot_be_measured_is_weighted_equally_and_said() -> None:
    _, info = step(np.array([[1e150, 0.0], [0, 1]]))
    np.testing.assert_array_equal(info["weights"], 0.5)
    assert info["note"] == "an update is longer than 1e+100: weighted equally" and np.isnan(info["distances"]).all()
    _, info = step(np.array([[1e150, 0.0], [0, 1]]), clip=1.0)
    assert "note" not in info and info["distances"] == pytest.approx([0.5**0.5] * 2)


def test_a_search_that_does_not_converge_is_weighted_equally_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from equipoise.aggregate import _equidistant

    lost = type("Lost", (), {"success": False, "x": np.full(3, np.nan), "message": "Iteration limit reached"})
    monkeypatch.setattr(_equidistant, "_search", lambda gram: lost)
    _, info = step(updates_of(3))
    np.testing.assert_array_equal(info["weights"], 1 / 3)
    assert info["note"] == "no weights found (Iteration limit reached): weighted equally"


def test_it_favours_outliers() -> None:
    """A long update pulls the point towards itself: more weight than the others, and the clip limits it."""
    updates = np.eye(4) * np.array([[1.0], [1], [1], [1.2]])
    assert step(updates)[1]["weights"].argmax() == 3
    np.testing.assert_allclose(step(updates, clip=1.0)[1]["weights"], 1 / 4, atol=1e-6)
