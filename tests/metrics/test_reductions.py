"""Reductions over groups or clients: identities, NaN left out, and undefined where there is nothing to compare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.checks import BadInput
from equipoise.metrics import reductions as r

REDUCTIONS = [getattr(r, name) for name in r.__all__ if name != "signed_gap"]
COMPARING = {getattr(r, name) for name in r.__all__} - {r.worst, r.highest, r.mean}
shares = st.floats(0, 1).map(lambda x: round(x, 6))
values = hnp.arrays(np.float64, st.integers(1, 7), elements=shares | st.just(float("nan")))
whole = hnp.arrays(np.float64, st.integers(2, 7), elements=shares)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@given(v=values, data=st.data())
def test_laws_of_every_reduction(reduce, v, data):
    out = reduce(v)
    order = data.draw(st.permutations(range(len(v))))
    np.testing.assert_allclose(reduce(v[order]), out, atol=1e-12)
    np.testing.assert_allclose(reduce(np.append(v, np.nan)), out, atol=1e-12)
    np.testing.assert_allclose(reduce(np.stack([v, v[order]])), [out, out], atol=1e-12)
    if (~np.isnan(v)).sum() < (2 if reduce in COMPARING else 1):
        assert np.isnan(out)


@given(whole)
def test_jain_is_one_over_one_plus_squared_variation(v):
    jain, cov = r.jain(v), r.coefficient_of_variation(v)
    assert np.isnan(jain) == np.isnan(cov) == (v.sum() == 0)
    if v.sum() > 0:
        assert float(jain) == pytest.approx(1 / (1 + float(cov) ** 2))
        assert 1 / len(v) - 1e-12 <= jain <= 1 + 1e-12
        assert float(cov) == pytest.approx(np.std(v) / np.mean(v), abs=1e-12)


@given(whole)
def test_gini_is_its_double_sum(v):
    if v.sum() > 0:
        expected = np.abs(v[:, None] - v).sum() / (2 * len(v) ** 2 * v.mean())
        assert float(r.gini(v)) == pytest.approx(expected, abs=1e-12)
    else:
        assert np.isnan(r.gini(v))


@given(whole)
def test_mean_absolute_difference_and_welfare_are_their_double_sums(v):
    apart = np.abs(v[:, None] - v).sum() / len(v) ** 2
    assert float(r.mean_absolute_difference(v)) == pytest.approx(apart, abs=1e-12)
    if v.sum() > 0:
        assert float(r.sen_welfare(v)) == pytest.approx(v.mean() - apart / 2, abs=1e-12)
    else:
        assert np.isnan(r.sen_welfare(v))


@given(whole, st.data())
def test_a_signed_gap_turns_round_with_its_reference(v, data):
    two = v[:2]
    assert r.signed_gap(two, 0) == -r.signed_gap(two, 1)
    assert abs(r.signed_gap(two, 0)) == r.gap(two)
    reference = data.draw(st.integers(0, len(v) - 1))
    others = np.delete(v, reference) - v[reference]
    assert abs(float(r.signed_gap(v, reference))) == pytest.approx(np.abs(others).max())


def test_of_two_equally_far_groups_the_lower_one_counts():
    assert float(r.signed_gap([0.25, 0.5, 0.75], 1)) == -0.25


def test_ratio_of_zeros_is_undefined_and_of_one_zero_is_zero():
    assert np.isnan(r.ratio([0.0, 0.0]))
    assert float(r.ratio([0.0, 0.3])) == 0.0


def test_dispersion_cases(handed):
    case = handed["h18"]
    for v, expected in zip(case["input"]["cases"], case["expected"]["cases"], strict=True):
        for name, reduce in [("cov", r.coefficient_of_variation), ("jain", r.jain)]:
            if expected[name] is None:
                assert np.isnan(reduce(v))
            else:
                assert float(reduce(v)) == pytest.approx(expected[name], abs=1e-9)


def test_a_single_number_and_a_wrong_reference_are_refused():
    with pytest.raises(BadInput, match="one number cannot be reduced"):
        r.gap(0.5)
    with pytest.raises(BadInput, match=r"reference must lie in 0\.\.1, got 2"):
        r.signed_gap([0.1, 0.2], 2)
