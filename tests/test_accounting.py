"""The accountant against closed forms, Opacus and the mechanism itself."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.stats import norm

from equipoise.accounting import NOT_COVERED, epsilon, noise_for, per_client
from equipoise.checks import BadInput


def gaussian(mu, delta):
    """Return epsilon of N(mu, 1) against N(0, 1): Balle and Wang (ICML 2018), Theorem 5."""

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return optimize.brentq(excess, 0, 200)


@pytest.mark.parametrize(("noise", "steps", "delta"), [(1, 1, 1e-5), (0.7, 1, 1e-3), (4, 30, 1e-6), (20, 400, 0.01)])
def test_without_sampling_it_is_one_gaussian_with_noise_smaller_by_the_root_of_the_steps(noise, steps, delta):
    found = epsilon(noise, 1, steps, delta)
    assert 0 <= found.epsilon - gaussian(math.sqrt(steps) / noise, delta) < 2e-3 * found.epsilon
    assert found.sampling.startswith("none") and "no sampling" in found.statement


def test_opacus_agrees_on_the_setting_that_everybody_quotes():
    """q = 0.01, noise 1, 1,000 steps, delta 1e-5: PRV 1.83, RDP 2.10."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        from opacus.accountants import PRVAccountant, RDPAccountant
    theirs = []
    for make in (PRVAccountant, RDPAccountant):
        accountant = make()
        accountant.history = [(1.0, 0.01, 1000)]
        theirs.append(accountant.get_epsilon(1e-5))
    found = epsilon(1, 0.01, 1000, 1e-5)
    assert abs(found.epsilon - 1.83) < 0.005
    assert abs(found.epsilon - theirs[0]) < 0.02 and found.epsilon < theirs[1] < found.epsilon + 0.35


def test_one_sampled_step_by_hand():
    """Both directions of the mixture (1 - q) N(0, 1) + q N(1, 1) against N(0, 1), integrated on a fine grid."""
    q, noise, found = 0.3, 0.8, epsilon(0.8, 0.3, 1, 1e-4).epsilon
    at = np.linspace(-20, 20, 2_000_001)
    without = norm.pdf(at, 0, noise)
    taken = (1 - q) * without + q * norm.pdf(at, 1, noise)
    step = at[1] - at[0]
    lost = max(np.maximum(p - math.exp(found) * r, 0).sum() * step for p, r in ((taken, without), (without, taken)))
    assert 0.99e-4 < lost <= 1e-4


@given(st.floats(0.3, 20), st.floats(0.001, 1), st.integers(1, 500), st.floats(1e-8, 1e-2), st.floats(1.05, 4))
@settings(max_examples=10, deadline=None)
def test_more_steps_more_sampling_and_less_noise_spend_more(noise, rate, steps, delta, more):
    spent = epsilon(noise, rate, steps, delta).epsilon
    slack = 1 + 1e-3
    assert spent >= 0
    assert epsilon(noise, rate, math.ceil(steps * more), delta).epsilon * slack >= spent
    assert epsilon(noise, min(1, rate * more), steps, delta).epsilon * slack >= spent
    assert epsilon(noise * more, rate, steps, delta).epsilon <= spent * slack
    assert epsilon(noise, rate, steps, delta * more).epsilon <= spent * slack


def test_it_adds_up_over_rounds_as_a_new_accountant_in_each_does_not():
    one, ten = (epsilon(1, 0.05, 50 * rounds, 1e-5).epsilon for rounds in (1, 10))
    assert one < ten < 10 * one
    assert ten > 2 * one


def test_what_promises_nothing_is_infinite_and_says_why():
    assert epsilon(0, 0.1, 10, 1e-5).epsilon == math.inf and "there is no noise" in epsilon(0, 0.1, 10, 1e-5).statement
    for noise in (1e-300, 1e-3, 0.005):
        found = epsilon(noise, 0.5, 1000, 1e-5)
        assert found.epsilon == math.inf and "the noise is too little" in found.statement
    assert epsilon(0, 0.1, 0, 1e-5).epsilon == 0  # who never trained has said nothing
    assert epsilon(1, 0, 10, 1e-5).epsilon == 0


def test_the_statement_holds_the_assumptions_and_the_limits():
    found = epsilon(1.1, 0.05, 300, 1e-5)
    for word in ("add or remove one record", "300 steps", "Poisson sampling at rate 0.05", "1.1 times the clip", "PLD"):
        assert word in found.statement
    assert found.statement.startswith(f"The client's updates are ({found.epsilon:.3g}, 1e-05)-differentially private")
    for word in ("number", "counts", "curvature", "Aggregation weights do not change it", "the run's seed"):
        assert word in NOT_COVERED
    assert found.statement.endswith(NOT_COVERED)
    assert (found.adjacency, found.sampling, found.steps, found.rate) == (
        "add or remove one record of the client",
        "Poisson",
        300,
        0.05,
    )


def test_the_client_with_fewest_rows_spends_most():
    spent = per_client(1, [0, 30, 100, 400], 50, [0, 20, 40, 160], 1e-5)
    assert [s.rate for s in spent] == [0, 1, 0.5, 0.125]
    assert spent[0].epsilon == 0 and spent[1].epsilon > spent[2].epsilon > spent[3].epsilon
    assert spent[2] == epsilon(1, 0.5, 40, 1e-5)


@pytest.mark.parametrize(("target", "rate", "steps"), [(1, 0.05, 100), (8, 0.064, 1600), (50, 0.5, 20), (2, 1, 1)])
def test_calibrated_noise_keeps_the_promise_and_a_little_less_breaks_it(target, rate, steps):
    noise = noise_for(target, rate, steps, 1e-5)
    assert epsilon(noise, rate, steps, 1e-5).epsilon <= target
    assert epsilon(noise * 0.997, rate, steps, 1e-5).epsilon > target
    if rate == 1:
        assert abs(gaussian(1 / noise, 1e-5) - target) < 0.01


@pytest.mark.parametrize(
    ("given_in", "says"),
    [
        ((-1, 0.1, 10, 1e-5), "noise must lie in 0..inf, got -1"),
        ((math.nan, 0.1, 10, 1e-5), "noise must lie in 0..inf, got nan"),
        ((1, 1.5, 10, 1e-5), r"sampling rate must lie in 0..1, got 1.5"),
        ((1, 0.1, -1, 1e-5), "steps must be a whole number >= 0, got -1"),
        ((1, 0.1, 2.5, 1e-5), "steps must be a whole number >= 0, got 2.5"),
        ((1, 0.1, 10, 0), "delta must lie between 0 and 1, got 0; take less than 1 over the client's rows"),
    ],
)
def test_hostile_settings_are_named(given_in, says):
    with pytest.raises(BadInput, match=says):
        epsilon(*given_in)


def test_hostile_calibrations_are_named():
    with pytest.raises(BadInput, match="epsilon must be above 0, got 0"):
        noise_for(0, 0.1, 10, 1e-5)
    with pytest.raises(BadInput, match="no noise gives an epsilon of 1e-09 at delta 1e-12; raise one of them"):
        noise_for(1e-9, 1, 10**6, 1e-12)
    with pytest.raises(BadInput, match="lengths differ: sizes has 2, steps has 1"):
        per_client(1, [10, 20], 5, [3], 1e-5)


def test_noise_beyond_every_float_is_bounded_and_not_a_crash() -> None:
    spent = epsilon(1e300, 0.1, 10, 1e-5)
    assert spent.epsilon == epsilon(1e6, 0.1, 10, 1e-5).epsilon
