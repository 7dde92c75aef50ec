"""LiRA against scipy's normal distribution, missing shadows, few shadows, and losses at the ends of a float."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.attacks.inference import auc, lira_offline, lira_online, logit_confidence, shadow_rows
from equipoise.checks import BadInput

norm = pytest.importorskip("scipy.stats").norm
NAN = float("nan")


def shadows(seed, m=9, n=25):
    """Attacked model and shadows with and without each record; each shadow is there in one of the two tables."""
    random = np.random.default_rng(seed)
    phi = random.normal(size=(m, n)) * random.uniform(0.5, 2, n)
    trained = shadow_rows(n, m, seed=seed)
    return random.normal(size=n), np.where(trained, phi + 2, NAN), np.where(trained, NAN, phi)


@given(st.floats(1e-9, 0.999999))
def test_the_logit_of_a_confidence(p):
    assert logit_confidence([-np.log(p)])[0] == pytest.approx(np.log(p) - np.log1p(-p), rel=1e-6, abs=1e-9)


def test_a_confidence_is_finite_and_ordered_to_the_ends():
    losses = np.array([0.0, 1e-12, 1e-3, 1.0, 30.0, 690.0, np.inf])
    phi = logit_confidence(losses)
    assert np.isfinite(phi).all()
    assert (np.diff(phi) < 0).all()
    assert np.isnan(logit_confidence([NAN])[0])


def test_the_ratio_is_that_of_two_normal_densities():
    phi, inside, outside = shadows(1)
    own = [norm(np.nanmean(t, 0), np.nanstd(t, 0, ddof=1)).logpdf(phi) for t in (inside, outside)]
    np.testing.assert_allclose(lira_online(phi, inside, outside, fixed_variance=False), own[0] - own[1])
    pooled = []
    for t in (inside, outside):
        left = t - np.nanmean(t, 0)
        free = (~np.isnan(t)).sum() - t.shape[1]
        pooled.append(norm(np.nanmean(t, 0), np.sqrt(np.nansum(left**2) / free)).logpdf(phi))
    np.testing.assert_allclose(lira_online(phi, inside, outside), pooled[0] - pooled[1])


def test_offline_is_the_order_of_the_normal_tail():
    phi, _, outside = shadows(2)
    p = norm(np.nanmean(outside, 0), np.nanstd(outside, 0, ddof=1)).cdf(phi)
    score = lira_offline(phi, outside, fixed_variance=False)
    np.testing.assert_allclose(norm.cdf(score), p)
    np.testing.assert_array_equal(np.argsort(score), np.argsort(p))
    sure = lira_offline([50.0, 60.0], [[0.0, 0.0], [1.0, 1.0]])
    assert sure[0] < sure[1]  # where the tail of both rounds to 1


def test_order_of_shadows_and_shift_change_nothing():
    phi, inside, outside = shadows(3)
    score = lira_online(phi, inside, outside)
    np.testing.assert_allclose(lira_online(phi, inside[::-1], outside[::-1]), score)
    np.testing.assert_allclose(lira_online(phi + 5, inside + 5, outside + 5), score)
    np.testing.assert_allclose(lira_online(phi, outside, inside), -score)
    np.testing.assert_allclose(lira_online(phi[::-1], inside[:, ::-1], outside[:, ::-1]), score[::-1])
    np.testing.assert_allclose(lira_offline(3 * phi + 5, 3 * outside + 5), lira_offline(phi, outside))


def test_what_no_shadow_shows_is_undefined():
    phi, inside, outside = shadows(4)
    inside[:, 0] = outside[:, 1] = NAN
    score = lira_online(phi, inside, outside)
    assert np.isnan(score[:2]).all()
    assert np.isfinite(score[2:]).all()
    assert np.isnan(lira_offline(phi, outside)).tolist() == [False, True] + [False] * 23
    assert np.isnan(lira_offline([1.0, 2.0], [[0.0, 0.0]])).all()  # one shadow has no variance
    assert np.isnan(lira_online([NAN], [[1.0], [2.0]], [[1.0], [2.0]])).all()


def test_shadows_that_agree_still_rank():
    score = lira_online([4.0, 0.0], [[4.0, 4.0], [4.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]])
    assert np.isfinite(score).all()
    assert score[0] > 0 > score[1]


def test_one_variance_for_all_pays_with_few_shadows():
    random = np.random.default_rng(5)
    n, m, scores = 400, 4, {}
    member, hard = random.integers(0, 2, n), random.normal(0, 3, n)
    inside, outside = (hard + shift + random.normal(size=(m, n)) for shift in (1.0, 0.0))
    phi = hard + member + random.normal(size=n)
    for fixed in (True, False):
        scores[fixed] = auc(lira_online(phi, inside, outside, fixed_variance=fixed), member)
    assert scores[True] > scores[False] > 0.55
    assert scores[True] > auc(phi, member) + 0.05  # a threshold on the loss does not know which records are hard


@given(st.integers(0, 20), st.integers(2, 9), st.integers(0, 5))
def test_every_row_is_in_half_of_the_shadows(rows, m, seed):
    inside = shadow_rows(rows, m, seed=seed)
    assert inside.shape == (m, rows)
    assert (inside.sum(0) == m // 2).all()
    np.testing.assert_array_equal(inside, shadow_rows(rows, m, seed=seed))


def test_shadows_belong_to_seed_and_client():
    one = shadow_rows(30, 6, seed=1, client=2)
    assert (one != shadow_rows(30, 6, seed=2, client=2)).any()
    assert (one != shadow_rows(30, 6, seed=1, client=3)).any()
    assert len({tuple(column) for column in one.T.tolist()}) > 10  # rows are dealt one by one


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: lira_online([1.0], [[1.0, 2.0]], [[1.0]]), r"inside has shape \(1, 2\), expected \(shadows, 1\)"),
        (lambda: lira_offline([1.0], [1.0]), r"outside has shape \(1,\)"),
        (lambda: lira_offline([np.inf], [[1.0]]), "observed holds an infinite value; use logit_confidence"),
        (lambda: lira_offline([1.0], [[-np.inf]]), "outside holds an infinite value"),
        (lambda: shadow_rows(5, 1, seed=0), "1 shadow models cannot be with and without"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(BadInput, match=says):
        call()
