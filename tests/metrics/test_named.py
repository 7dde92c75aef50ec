"""Rates and named metrics: laws over the catalogue, fairlearn as an oracle, and the cases that others get wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import equipoise.metrics as m
from equipoise.checks import BadInput
from equipoise.metrics import named, rates
from equipoise.metrics.rates import FRACTIONS

METRICS = [getattr(named, name) for name in named.__all__]
tables = hnp.arrays(np.int64, st.tuples(st.integers(1, 5), st.just(4)), elements=st.integers(0, 30))
full = hnp.arrays(np.int64, st.tuples(st.integers(2, 5), st.just(4)), elements=st.integers(1, 30))


def test_the_catalogue_is_what_is_there():
    assert sorted(named.__all__) == named.__all__
    assert set(named.ANATOMY) | {named.accuracy} == set(METRICS)
    assert all(getattr(m, name) is getattr(named, name) for name in named.__all__)
    assert set(m.__all__) <= set(dir(m))
    assert {f.__name__ for f in FRACTIONS} == set(rates.__all__)


@pytest.mark.parametrize("metric", METRICS)
@given(table=tables, data=st.data())
def test_laws_of_every_metric(metric, table, data):
    before = table.copy()
    value = metric(table)
    np.testing.assert_array_equal(table, before)
    assert np.shape(value) == ()
    assert np.isnan(value) or 0 <= value <= 1
    order = data.draw(st.permutations(range(len(table))))
    np.testing.assert_allclose(metric(table[order]), value, rtol=1e-12)  # the names of groups do not matter
    np.testing.assert_allclose(metric(np.vstack([table, [[0, 0, 0, 0]]])), value, rtol=1e-12)  # nor an empty group
    np.testing.assert_allclose(metric(table * 3), value, rtol=1e-12)  # nor the unit of counting
    np.testing.assert_array_equal(metric(np.stack([table, table])), [value, value])  # leading axes are kept


@pytest.mark.parametrize("metric", METRICS)
@given(row=hnp.arrays(np.int64, 4, elements=st.integers(1, 30)))
def test_equal_groups_have_no_gap(metric, row):
    value = metric(np.stack([row, row * 2]))
    if metric in (named.accuracy, named.worst_group_accuracy):
        np.testing.assert_allclose(value, rates.accuracy(row))
    else:
        np.testing.assert_allclose(value, 1.0 if "ratio" in metric.__name__ else 0.0, atol=1e-12)


@given(tables)
def test_rates_are_nan_exactly_where_nothing_is_counted(table):
    for rate, fraction in FRACTIONS.items():
        np.testing.assert_array_equal(np.isnan(rate(table)), fraction.trials(table) == 0)
    np.testing.assert_allclose(
        m.true_positive_rate(table) + m.false_negative_rate(table), np.where(table[:, [0, 3]].sum(1), 1, np.nan)
    )
    np.testing.assert_allclose(
        m.false_positive_rate(table) + m.true_negative_rate(table), np.where(table[:, [1, 2]].sum(1), 1, np.nan)
    )


def spread_out(table):
    """Rows that make a table."""
    y, yhat, group = [], [], []
    for g, row in enumerate(table.tolist()):
        for (a, b), n in zip([(1, 1), (0, 1), (0, 0), (1, 0)], row, strict=True):
            y += [a] * n
            yhat += [b] * n
            group += [g] * n
    return y, yhat, group


def test_fairlearn_agrees_where_every_denominator_is_positive():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fairlearn = pytest.importorskip("fairlearn.metrics")
    rng = np.random.default_rng(7)
    for _ in range(8):
        table = rng.integers(1, 12, (rng.integers(2, 5), 4))
        y, yhat, group = spread_out(table)
        np.testing.assert_array_equal(m.counts(y, yhat, group, len(table)), table)
        for ours, theirs, options in [
            (m.statistical_parity_difference, "demographic_parity_difference", {}),
            (m.four_fifths_ratio, "demographic_parity_ratio", {}),
            (m.equalized_odds_difference, "equalized_odds_difference", {}),
            (m.equalized_odds_mean, "equalized_odds_difference", {"agg": "mean"}),
            (m.equal_opportunity_difference, "equal_opportunity_difference", {}),
            (m.equal_opportunity_ratio, "equal_opportunity_ratio", {}),
        ]:
            expected = getattr(fairlearn, theirs)(y, yhat, sensitive_features=group, **options)
            assert float(ours(table)) == pytest.approx(expected, abs=1e-12), ours.__name__
        frame = fairlearn.MetricFrame(
            metrics={"ppv": lambda a, b: (np.array(a)[np.array(b) == 1] == 1).mean()},
            y_true=np.array(y),
            y_pred=np.array(yhat),
            sensitive_features=np.array(group),
        )
        assert float(m.predictive_parity_difference(table)) == pytest.approx(frame.difference()["ppv"])


def test_local_gaps_of_zero_hide_a_pooled_gap_of_49_50():
    """methods.md 2.1: everyone is treated alike at each client, and yet the population is not."""
    clients = np.array([[[99, 0, 0, 0], [1, 0, 0, 0]], [[0, 0, 0, 1], [0, 0, 0, 99]]])
    assert m.equal_opportunity_difference(clients).tolist() == [0, 0]
    assert float(m.equal_opportunity_difference(clients.sum(0))) == 49 / 50


def test_equalized_odds_with_one_part_undefined():
    no_fpr = np.array([[2, 0, 0, 0], [1, 1, 1, 1]])
    assert float(m.equal_opportunity_difference(no_fpr)) == 0.5
    assert np.isnan(m.equalized_odds_difference(no_fpr))
    assert np.isnan(m.equalized_odds_mean(no_fpr))
    already_one = np.array([[2, 0, 0, 0], [0, 1, 1, 2]])
    assert float(m.equalized_odds_difference(already_one)) == 1.0
    assert np.isnan(m.equalized_odds_mean(already_one))


def test_gaps_are_absolute_so_that_they_do_not_cancel():
    table = np.array([[8, 2, 8, 2], [5, 5, 5, 5]])  # TPR .8, .5; FPR .2, .5
    assert float(m.equalized_odds_mean(table)) == pytest.approx(0.3)


@pytest.mark.parametrize("bad", [[1, 2, 3], np.zeros((2, 5)), 3])
def test_a_table_has_four_columns(bad):
    with pytest.raises(BadInput, match="4 columns"):
        m.true_positive_rate(bad)


@given(full)
def test_an_explanation_says_what_the_metric_says(table):
    names = [f"g{i}" for i in range(len(table))]
    for metric in METRICS:
        figure = m.explain(metric, table, names)
        assert figure.number == float(metric(table))
        assert figure.left_out == ()
        if figure.worst is not None and figure.best is not None:
            assert figure.worst in figure.sentence
            assert figure.best in figure.sentence or metric is m.worst_group_accuracy


def test_an_explanation_of_nothing_names_group_count_and_reason():
    figure = m.explain(m.equal_opportunity_difference, [[2, 1, 1, 0], [0, 1, 3, 0]], ["a", "b"])
    assert figure.number is None
    assert figure.to_json()["value"] is None
    assert figure.to_json()["groups_left_out"] == [
        {"undefined": "no positives", "group": "b", "counts": {"tp": 0, "fn": 0, "n": 4}}
    ]
    assert figure.sentence == (
        "equal opportunity difference is undefined: fewer than two groups have a true positive rate "
        "(b: no positives, 0 of 4 rows)"
    )
    nobody = m.explain(m.four_fifths_ratio, [[0, 0, 1, 1], [0, 0, 1, 1]], ["a", "b"])
    assert "0 in every group, and 0/0 is no ratio" in nobody.sentence
    empty = m.explain(m.accuracy, np.zeros((2, 4), int), ["a", "b"])
    assert empty.to_json()["reason"] == "no rows"
    with pytest.raises(BadInput, match="for 1 groups"):
        m.explain(m.accuracy, np.zeros((2, 4), int), ["a"])


def test_a_metric_of_the_users_own_is_explained_by_its_docstring():
    def selected(counts):
        """Share selected at all."""
        return rates.selection_rate(np.asarray(counts).sum(-2))

    figure = m.explain(selected, [[1, 0, 1, 0]], ["a"])
    assert figure.definition == "Share selected at all."
    assert figure.sentence == "selected is 0.500 over 2 rows"
