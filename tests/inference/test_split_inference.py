"""Source inference where the server sees shared layers only: a trained probe head and the nearest feature."""

from __future__ import annotations

import numpy as np
import pytest

from equipoise.attacks.inference import nearest_feature_losses, probe_head_losses, source_inference
from equipoise.checks import BadInput

BOTH = pytest.mark.parametrize("attack", [probe_head_losses, nearest_feature_losses])


def world(seed=0, k=4, m=120, per=30, h=6, classes=3, planted=0.0):
    """Features of public rows and targets; ``planted`` is how much less the layers of the others tell of a target."""
    random = np.random.default_rng(seed)
    centre = 4 * random.normal(size=(k, classes, h))
    public_y, y = np.arange(m) % classes, random.integers(0, classes, k * per)
    owner = np.repeat(np.arange(k), per)
    public = centre[:, public_y] + random.normal(size=(k, m, h))
    middle = public.mean(1, keepdims=True)
    tells = np.where(np.arange(k)[:, None] == owner, 1, 1 - planted)[:, :, None]
    records = middle + tells * (centre[:, y] - middle) + random.normal(size=(k, len(y), h))
    return public, public_y, records, y, owner


def test_the_probe_is_the_penalised_softmax_regression_of_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    public, public_y, records, y, _ = world()
    got = probe_head_losses(public, public_y, records, y, penalty=0.05, steps=600)
    for k in range(len(public)):
        middle, scale = public[k].mean(0), public[k].std(0)
        oracle = linear.LogisticRegression(C=1 / (0.05 * len(public_y)), tol=1e-10, max_iter=5000)
        # There the intercept is free of the penalty; a column of ones with the same penalty is what we have.
        oracle.set_params(fit_intercept=False)
        x, z = (np.column_stack([(v - middle) / scale, np.ones(len(v))]) for v in (public[k], records[k]))
        expected = -oracle.fit(x, public_y).predict_log_proba(z)[np.arange(len(y)), y]
        np.testing.assert_allclose(got[:, k], expected, atol=1e-5)


def test_nearest_feature_is_an_angle_at_the_public_mean():
    public, public_y, records, y, _ = world(1)
    got = nearest_feature_losses(public, public_y, records, y)
    for k, j in [(0, 0), (2, 5), (3, 100)]:
        middle = public[k].mean(0)
        mine, towards = records[k, j] - middle, public[k, public_y == y[j]].mean(0) - middle
        angle = np.arctan2(
            np.linalg.norm(mine * (u := towards @ towards) - (mine @ towards) * towards), (mine @ towards) * np.sqrt(u)
        )
        assert got[j, k] == pytest.approx(1 - np.cos(angle))
    beyond = records + 2 * (records - public.mean(1, keepdims=True))
    np.testing.assert_allclose(nearest_feature_losses(public, public_y, beyond, y), got)


@BOTH
def test_a_planted_source_is_found_and_without_one_chance_remains(attack):
    *planted, owner = world(2, per=60, planted=0.9)
    *chance, _ = world(2, per=60, planted=0.0)
    found, blind = source_inference(attack(*planted), owner), source_inference(attack(*chance), owner)
    assert found.min() > 0.85
    assert blind.mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 240))


@BOTH
def test_clients_and_records_keep_their_places_and_scale_has_no_say(attack):
    public, public_y, records, y, _ = world(3)
    losses = attack(public, public_y, records, y)
    clients, rows = np.array([2, 0, 3, 1]), np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(attack(public[clients], public_y, records[clients], y), losses[:, clients], rtol=1e-6)
    np.testing.assert_allclose(attack(public, public_y, records[:, rows], y[rows]), losses[rows], rtol=1e-6)
    stretch = np.array([1.0, 10.0, 0.1, 1e4])[:, None, None]
    np.testing.assert_allclose(attack(stretch * public + 3, public_y, stretch * records + 3, y), losses, rtol=1e-6)


def test_a_class_the_public_does_not_hold_says_nothing_or_little():
    public, public_y, records, y, owner = world(4)
    y = y.copy()
    y[:5] = 7
    nearest = nearest_feature_losses(public, public_y, records, y)
    assert np.isnan(nearest[:5]).all()
    assert np.isfinite(nearest[5:]).all()
    assert np.isfinite(probe_head_losses(public, public_y, records, y)).all()
    assert np.isnan(nearest_feature_losses(public, 0 * public_y, records, 0 * y)).all()
    assert source_inference(nearest_feature_losses(public, 0 * public_y, records, 0 * y), owner)[0] == 0.25


def test_a_feature_that_never_changes_says_nothing():
    public, public_y, records, y, _ = world(5)
    losses = probe_head_losses(public, public_y, records, y)
    dead = [np.concatenate([v, np.full((*v.shape[:2], 1), 3.0)], 2) for v in (public, records)]
    np.testing.assert_allclose(probe_head_losses(dead[0], public_y, dead[1], y), losses, atol=1e-9)
    flat = np.zeros((2, 4, 1))
    assert np.isnan(nearest_feature_losses(flat, [0, 1, 0, 1], flat[:, :1], [0])).all()


@BOTH
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({0: np.zeros((2, 4, 5))}, "features have shapes"),
        ({2: np.zeros((3, 5))}, "features have shapes"),
        ({0: np.zeros((2, 0, 3)), 1: []}, "there are no public rows"),
        ({1: [0, 1]}, "lengths differ: public_y has 2, public_features has 4"),
        ({3: [0, 1]}, "lengths differ: y has 2, features has 1"),
        ({3: [-1]}, "y must hold class numbers"),
        ({1: [0.5, 1, 0, 1]}, "public_y must hold class numbers"),
        ({2: np.full((2, 1, 3), np.nan)}, "features has 6 of 6 values that are not finite"),
    ],
)
def test_what_does_not_fit_is_refused(attack, change, says):
    given = [np.zeros((2, 4, 3)), [0, 1, 0, 1], np.zeros((2, 1, 3)), [0]]
    with pytest.raises(BadInput, match=says):
        attack(*[change.get(i, v) for i, v in enumerate(given)])


def test_the_penalty_is_above_zero():
    with pytest.raises(BadInput, match="penalty must be above 0"):
        probe_head_losses(np.zeros((1, 2, 1)), [0, 1], np.zeros((1, 1, 1)), [0], penalty=0)
