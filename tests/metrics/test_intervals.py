"""Intervals: Wilson against scipy, and the coverage of the bootstrap by simulation, where others fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equipoise.metrics as m
from equipoise.checks import BadInput
from equipoise.metrics import intervals, named
from equipoise.metrics.intervals import bootstrap, resample, wilson


@given(st.integers(0, 500), st.integers(1, 500), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_wilson_is_scipys(x, n, level):
    stats = pytest.importorskip("scipy.stats")
    x = min(x, n)
    expected = stats.binomtest(x, n).proportion_ci(level, method="wilson")
    low, high = wilson(x, n, level)
    assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= x / n <= high <= 1


def test_wilson_of_nothing_is_undefined_and_nonsense_is_refused():
    assert np.isnan(wilson(0, 0)).all()
    assert wilson([[1, 2]], [[3], [4]])[0].shape == (2, 2)
    with pytest.raises(BadInput, match="5 successes in 3 trials"):
        wilson([1, 5], 3)
    with pytest.raises(BadInput, match="level must lie between 0 and 1, got 95"):
        wilson(1, 3, level=95)


def cells(base, tpr, fpr):
    return np.array([base * tpr, (1 - base) * fpr, (1 - base) * (1 - fpr), base * (1 - tpr)])


SCENES = {
    "no gap, 20 rows each": ([20, 20], [(0.5, 0.6, 0.3)] * 2),
    "no gap, 100 and 10 rows": ([100, 10], [(0.4, 0.7, 0.3)] * 2),
    "no gap, few positives": ([300, 60], [(0.1, 0.7, 0.1)] * 2),
    "gap, 50 rows each": ([50, 50], [(0.4, 0.9, 0.3), (0.4, 0.6, 0.1)]),
    "no gap, four unequal groups": ([200, 80, 30, 15], [(0.4, 0.8, 0.3)] * 4),
    "gap, four unequal groups": (
        [200, 80, 30, 15],
        [(0.4, 0.9, 0.3), (0.4, 0.7, 0.3), (0.4, 0.8, 0.2), (0.4, 0.8, 0.3)],
    ),
    "no gap, thirty groups": ([40] * 30, [(0.5, 0.8, 0.3)] * 30),
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_bootstrap_covers_the_truth(scene):
    """95 % intervals hold the true figure in at least 91 % of 150 samples (95 % less three standard errors: 0.897)."""
    sizes, people = SCENES[scene]
    truth = np.array([cells(*p) for p in people])
    rng = np.random.default_rng(11)
    metrics = [m.statistical_parity_difference, m.four_fifths_ratio, m.equal_opportunity_difference]
    metrics += [m.equalized_odds_difference, m.worst_group_accuracy]
    held = dict.fromkeys(metrics, 0)
    given_up = dict.fromkeys(metrics, 0)
    for seed in range(150 if len(sizes) < 10 else 40):
        table = rng.multinomial(sizes, truth)
        drawn = resample(table, 200, seed)
        for metric in metrics:
            low, high, _, _ = intervals.limits(metric, table, drawn)
            if low is None or high is None:
                given_up[metric] += 1
            else:
                held[metric] += low - 1e-9 <= float(metric(truth)) <= high + 1e-9
    for metric in metrics:
        runs = (150 if len(sizes) < 10 else 40) - given_up[metric]
        assert runs > 30
        assert held[metric] / runs >= 0.91, f"{metric.__name__}: {held[metric]} of {runs}"


def test_the_plain_percentile_would_not_have_covered_no_gap():
    """The fault that the method avoids: the percentile interval of an unsigned gap leaves out 0 nearly always."""
    table = np.array([[12, 0, 8, 0]] * 6)
    drawn = resample(table, 500, 0)
    assert np.quantile(m.statistical_parity_difference(drawn), 0.025) > 0.05
    assert bootstrap(m.statistical_parity_difference, table).low == 0.0


@pytest.mark.parametrize("name", [n for n in named.__all__ if n != "accuracy"])
@given(table=st.lists(st.lists(st.integers(0, 12), min_size=4, max_size=4), min_size=2, max_size=4))
def test_an_interval_holds_its_figure_or_says_why_there_is_none(name, table):
    metric = getattr(named, name)
    out = bootstrap(metric, table, replicates=100)
    value = float(metric(table))
    if out.low is None:
        assert out.reason
        assert np.isnan(value) or out.undefined > intervals.MAX_UNDEFINED
    else:
        assert 0 <= out.low <= value <= out.high <= 1
        assert out.low < out.high, "no figure of a handful of rows is certain"


def test_the_seed_and_the_counts_decide_alone():
    table = [[6, 1, 3, 2], [2, 2, 5, 3]]
    first = bootstrap(m.equalized_odds_difference, table, seed=3)
    np.random.seed(0)  # noqa: NPY002  # the global generator must not matter
    assert bootstrap(m.equalized_odds_difference, table, seed=3) == first
    assert bootstrap(m.equalized_odds_difference, table, seed=4) != first


def test_more_rows_and_a_lower_level_make_it_narrower():
    def width(table, level=0.95):
        low, high, _, _ = bootstrap(m.statistical_parity_difference, table, level=level)
        return high - low

    table = np.array([[60, 0, 40, 0], [30, 0, 70, 0]])
    assert width(table * 10) < width(table) / 2
    assert width(table, 0.8) < width(table)


def test_one_tiny_group_does_not_hide_a_gap_between_large_ones():
    large = np.array([[900, 0, 100, 0], [500, 0, 500, 0]])
    low = bootstrap(m.statistical_parity_difference, np.vstack([large, [[2, 0, 1, 0]]])).low
    assert low > 0.3


def test_too_few_positives_give_no_interval():
    out = bootstrap(m.equal_opportunity_difference, [[30, 10, 30, 10], [1, 0, 19, 0]])
    assert out.low is None
    assert 0.05 < out.undefined < 0.2
    assert "too few rows" in out.reason
    assert bootstrap(m.equal_opportunity_difference, [[3, 0, 0, 0], [0, 0, 3, 0]]).reason == "the figure is undefined"


def test_many_groups_take_the_single_limits_and_still_need_two_groups():
    table = np.tile([[20, 10, 20, 10]], (intervals.MAX_PAIRED + 1, 1))
    pairs = bootstrap(m.statistical_parity_difference, table[:-1])
    singles = bootstrap(m.statistical_parity_difference, table)
    assert singles.low == pairs.low == 0.0
    assert pairs.high < singles.high < 1.6 * pairs.high


def test_a_metric_outside_the_catalogue_gets_a_symmetric_interval():
    def accuracy_of_first(counts):
        return m.rates.accuracy(np.asarray(counts)[..., 0, :])

    out = bootstrap(accuracy_of_first, [[30, 10, 30, 30], [1, 1, 1, 1]])
    assert (out.low + out.high) / 2 == pytest.approx(0.6)
    assert 0.08 < (out.high - out.low) / 2 < 0.12


def test_equalized_odds_of_one_by_one_rate_alone():
    apart = [[20, 0, 0, 0], [0, 0, 0, 20], [10, 5, 5, 10]]
    for halves in (2, intervals.MAX_PAIRED):
        table = apart + [[10, 0, 0, 10]] * halves
        low, high, undefined, _ = bootstrap(m.equalized_odds_difference, table)
        assert undefined < intervals.MAX_UNDEFINED
        assert 0.5 < low < high == 1.0


def test_settings_out_of_range_are_refused():
    table = [[6, 1, 3, 2], [2, 2, 5, 3]]
    with pytest.raises(BadInput, match="replicates must be above 99, got 10"):
        bootstrap(m.accuracy_difference, table, replicates=10)
    with pytest.raises(BadInput, match="level"):
        bootstrap(m.accuracy_difference, table, level=1.0)
    with pytest.raises(BadInput, match="one client at a time"):
        bootstrap(m.accuracy_difference, [table, table])
