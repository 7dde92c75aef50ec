"""The white-box attack by cosines: one by one, its direction, missing cosines, and the same bytes twice."""

from __future__ import annotations

import numpy as np
import pytest

from equipoise.attacks.inference import auc, cosine_attack, cosine_features
from equipoise.checks import BadInput

pytest.importorskip("sklearn.ensemble")


def test_each_cosine_is_that_of_its_layer():
    random = np.random.default_rng(0)
    g, delta, layers = random.normal(size=(7, 9)), random.normal(size=9), [4, 2, 3]
    got = cosine_features(g, delta, layers)
    for i, at in enumerate((slice(0, 4), slice(4, 6), slice(6, 9))):
        expected = [v[at] @ delta[at] / np.linalg.norm(v[at]) / np.linalg.norm(delta[at]) for v in g]
        np.testing.assert_allclose(got[:, i], expected)
    np.testing.assert_allclose(cosine_features(1e-9 * g, -1e6 * delta, layers), -got)


def test_a_layer_that_did_not_move_has_no_cosine():
    got = cosine_features([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], [1.0, 1.0, 0.0], [2, 1])
    np.testing.assert_array_equal(np.isnan(got), [[False, True], [True, True]])


def features(random, n, apart):
    member = np.arange(n) % 2
    out = random.normal(size=(n, 3))
    out[:, 1] -= apart * member
    out[random.random((n, 3)) < 0.1] = np.nan
    return out, member


def test_planted_members_are_found_and_noise_is_not():
    random = np.random.default_rng(1)
    (known, member), (records, truth) = features(random, 300, 20.0), features(random, 100, 20.0)
    records[:, 1] = np.where(np.isnan(records[:, 1]), -20.0 * truth, records[:, 1])
    assert auc(cosine_attack(known, member, records, seed=1, trees=30), truth) == 1.0
    (known, member), (records, truth) = features(random, 300, 0.0), features(random, 400, 0.0)
    assert auc(cosine_attack(known, member, records, seed=1, trees=30), truth) == pytest.approx(0.5, abs=0.12)


def test_the_forest_is_that_of_its_seed():
    random = np.random.default_rng(2)
    (known, member), (records, _) = features(random, 60, 1.0), features(random, 30, 1.0)
    one = cosine_attack(known, member, records, seed=1, trees=20)
    np.testing.assert_array_equal(one, cosine_attack(known, member, records, seed=1, trees=20))
    assert (one != cosine_attack(known, member, records, seed=2, trees=20)).any()
    assert cosine_attack(known, member, records[:0], seed=1, trees=2).shape == (0,)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cosine_features([[1.0, 2.0]], [1.0, 2.0], [1]), "layers of 1 parameters do not fit"),
        (lambda: cosine_features([[1.0, 2.0]], [1.0, 2.0], [2, 0]), "do not fit"),
        (lambda: cosine_features([[1.0, 2.0]], [1.0], [2]), r"gradients \(1, 2\), update \(1,\)"),
        (lambda: cosine_attack([[1.0]], [1], [[1.0, 2.0]], seed=0), "the same L in both"),
        (lambda: cosine_attack([[1.0]], [1, 0], [[1.0]], seed=0), "lengths differ"),
        (lambda: cosine_attack([[1.0]], [1], [[1.0]], seed=0), "must hold 1 and 0, some of each"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(BadInput, match=says):
        call()
