"""Level and spread of a risk over clients: FinP's figures, and why the one is nothing without the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.checks import BadInput
from equipoise.metrics import dispersion

risks = hnp.arrays(np.float64, st.integers(2, 8), elements=st.floats(0, 1).map(lambda x: round(x, 3)))


@given(risks)
def test_the_figures_are_those_of_the_definitions(a):
    d, k = dispersion(a), len(a)
    apart = np.abs(a[:, None] - a).sum()
    assert (d.mean, d.worst, d.eod) == pytest.approx((a.mean(), a.max(), a.max() - a.min()), abs=1e-12)
    assert d.mad == pytest.approx(apart / k**2, abs=1e-12)
    if a.sum() > 0:
        assert d.fi == pytest.approx(a.sum() ** 2 / (k * (a**2).sum()))
        assert (d.cov, d.gini) == pytest.approx((np.std(a) / a.mean(), apart / (2 * k * k * a.mean())), abs=1e-12)
    if (left := 1 - a).sum() > 0:
        assert d.sen_welfare == pytest.approx(left.mean() * (1 - apart / (2 * k * k * left.mean())), abs=1e-12)


def test_dispersion_agrees_with_the_handed_cases(handed):
    for v, expected in zip(handed["h18"]["input"]["cases"], handed["h18"]["expected"]["cases"], strict=True):
        d = dispersion(v)
        for got, want in [(d.cov, expected["cov"]), (d.fi, expected["jain"])]:
            assert np.isnan(got) if want is None else got == pytest.approx(want, abs=1e-9)


def test_nobody_at_risk_has_a_level_and_no_relative_spread():
    d = dispersion([0.0, 0.0, 0.0])
    assert (d.mean, d.worst, d.eod, d.mad, d.sen_welfare) == (0, 0, 0, 0, 1)
    assert np.isnan([d.cov, d.fi, d.gini]).all()


def test_everybody_exposed_leaves_no_welfare_to_speak_of():
    assert np.isnan(dispersion([1.0, 1.0]).sen_welfare)


def test_undefined_clients_are_left_out_and_counted():
    assert dispersion([0.2, np.nan, 0.4]) == dispersion([0.2, 0.4])
    assert dispersion([0.2, np.nan, 0.4]).clients == 2
    assert np.isnan(dispersion([np.nan, 0.4]).cov)


def test_raising_low_risks_looks_fairer_and_protects_nobody():
    before, after = dispersion([0.1, 0.5, 0.9]), dispersion([0.8, 0.85, 0.9])
    assert after.fi > before.fi
    assert (after.cov, after.eod, after.gini, after.mad) < (before.cov, before.eod, before.gini, before.mad)
    assert after.mean > before.mean
    assert after.worst == before.worst
    assert after.sen_welfare < before.sen_welfare  # the one spread that holds the level, too


def test_a_mean_of_indices_is_not_the_index_of_a_mean():
    rounds = [dispersion([0.1, 0.9]), dispersion([0.5, 0.5])]
    mean_fi, mean_cov = np.mean([d.fi for d in rounds]), np.mean([d.cov for d in rounds])
    assert mean_fi == pytest.approx((1 / 1.64 + 1) / 2)
    assert 1 / (1 + mean_cov**2) == pytest.approx(1 / 1.16)


@pytest.mark.parametrize(
    ("risk", "says"), [([30.0, 10.0], r"risk must lie in 0\.\.1, got 30 at position 0"), ([[0.1]], r"shape \(1, 1\)")]
)
def test_what_is_no_risk_is_refused(risk, says):
    with pytest.raises(BadInput, match=says):
        dispersion(risk)
