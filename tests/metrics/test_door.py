"""The door: handed cases through the public interface, every container alike, one sentence for each bad input."""

from __future__ import annotations

import numpy as np
import pytest

import equipoise.metrics as m
from equipoise.checks import BadInput
from equipoise.metrics.door import levels

RATES = {
    "selection_rate": m.selection_rate,
    "tpr": m.true_positive_rate,
    "fpr": m.false_positive_rate,
    "accuracy": m.rates.accuracy,
}


def check(actual, expected):
    if expected is None:
        assert np.isnan(actual)
    else:
        assert float(actual) == pytest.approx(expected, abs=1e-9)


def check_groups(rows, expected):
    table = rows.counts
    for name, cell in expected.items():
        row = table[rows.groups.index(name)]
        assert row.sum() == cell["n"]
        assert row[[0, 3]].sum() == cell["positives"]
        assert row[[1, 2]].sum() == cell["negatives"]
        for rate, function in RATES.items():
            check(function(row), cell[rate])


def encoded(case):
    given = case["input"]
    return m.encode(given["y_true"], given["y_pred"], given["sensitive"], given.get("pos_label"))


@pytest.mark.parametrize("case", ["h01", "h02", "h03", "h05"])
def test_handed_groups(handed, case):
    expected = handed[case]["expected"]
    rows = encoded(handed[case])
    table = rows.counts
    check_groups(rows, expected["by_group"])
    names = {
        "statistical_parity_difference": m.statistical_parity_difference,
        "statistical_parity_ratio": m.four_fifths_ratio,
        "equal_opportunity_difference": m.equal_opportunity_difference,
        "false_positive_rate_difference": m.false_positive_rate_difference,
        "equalized_odds_difference": m.equalized_odds_difference,
        "worst_group_accuracy": m.worst_group_accuracy,
    }
    told = [name for name in names if name in expected]
    assert len(told) >= 4
    for name in told:
        check(names[name](table), expected[name])
    opportunity = m.explain(m.equal_opportunity_difference, table, rows.groups)
    undefined = [u.group for u in opportunity.left_out]
    for key in ("true_positive_rate_groups_undefined", "equal_opportunity_groups_undefined"):
        assert undefined == expected.get(key, undefined)
    assert list(opportunity.used) == expected.get("equal_opportunity_groups_used", list(opportunity.used))
    if "worst_group" in expected:
        assert m.explain(m.worst_group_accuracy, table, rows.groups).worst == expected["worst_group"]


def test_handed_labels(handed):
    case = handed["h04"]
    given = case["input"]
    good, none, wrong = (call["pos_label"] for call in given["calls"])
    rows = m.encode(given["y_true"], given["y_pred"], given["sensitive"], good)
    expected = case["expected"]["calls"][0]
    for key, rate in [
        ("selection_rate", m.selection_rate),
        ("tpr", m.true_positive_rate),
        ("fpr", m.false_positive_rate),
    ]:
        assert dict(zip(rows.groups, rate(rows.counts).tolist(), strict=True)) == expected[key]
    for key in ("statistical_parity_difference", "equal_opportunity_difference", "equalized_odds_difference"):
        check(getattr(m, key)(rows.counts), expected[key])
    with pytest.raises(ValueError, match="labels are 'no', 'yes'; say which one is positive"):
        m.encode(given["y_true"], given["y_pred"], given["sensitive"], none)
    with pytest.raises(ValueError, match="'YES' is not among the labels 'no', 'yes'"):
        m.encode(given["y_true"], given["y_pred"], given["sensitive"], wrong)


@pytest.mark.parametrize("lost", [None, float("nan")])
@pytest.mark.parametrize("container", ["list", "array", "strings", "series"])
def test_handed_missing_value_is_treated_alike_everywhere(handed, lost, container):
    given = handed["h06"]["input"]
    sensitive = [lost if v is None else v for v in given["sensitive"]]
    if container == "array":
        sensitive = np.array(sensitive, object)
    if container == "strings":
        sensitive = np.array(["" if v is None else v for v in sensitive])  # a NaN becomes 'nan' here
    if container == "series":
        pandas = pytest.importorskip("pandas")
        sensitive = pandas.Series(sensitive, name="sex")
    name = "sex" if container == "series" else "sensitive"
    with pytest.raises(BadInput, match=f"'{name}' has 1 missing row of 4"):
        m.encode(given["y_true"], given["y_pred"], sensitive)
    rows = m.encode(given["y_true"], given["y_pred"], sensitive, missing="group")
    assert rows.groups == ("a", "b", "missing")
    assert rows.counts.sum(1).tolist() == [2, 1, 1]


def test_handed_intersection_with_an_empty_cell(handed):
    case = handed["h07"]
    expected, given = case["expected"], case["input"]
    rows = encoded(case)
    table = rows.counts
    check_groups(rows, expected["by_intersection"])
    assert rows.groups == ("F&B", "F&W", "M&B", "M&W")
    assert [g for g, row in zip(rows.groups, table, strict=True) if not row.sum()] == expected["empty_cells"]
    check(m.statistical_parity_difference(table), expected["statistical_parity_difference"])
    check(m.equal_opportunity_difference(table), expected["equal_opportunity_difference"])
    figure = m.explain(m.worst_group_accuracy, table, rows.groups)
    assert (figure.worst, figure.value) == (expected["worst_intersection"], expected["worst_intersection_accuracy"])
    assert [(u.group, u.reason) for u in figure.left_out] == [("M&B", "no rows")]
    for attribute, axis in [("sex", 1), ("race", 0)]:
        alone = m.encode(given["y_true"], given["y_pred"], {attribute: given["sensitive"][attribute]})
        check_groups(alone, expected[f"by_{attribute}"])
        check(m.statistical_parity_difference(alone.counts), expected[f"spd_{attribute}"])
        np.testing.assert_array_equal(table.reshape(2, 2, 4).sum(axis), alone.counts)


def test_handed_federation_has_three_different_figures(handed):
    case = handed["h08"]
    expected = case["expected"]
    tables = {}
    for name, given in case["input"]["clients"].items():
        rows = m.encode(given["y_true"], given["y_pred"], given["sensitive"])
        assert list(rows.groups) == case["input"]["reference_order"]
        tables[name] = rows.counts
        check(m.equal_opportunity_difference(rows.counts), expected["local_equal_opportunity_difference"][name])
        check(m.signed_gap(m.true_positive_rate(rows.counts), 1), expected["local_signed_a_minus_b"][name])
    stack = np.stack(list(tables.values()))
    pooled = stack.sum(0)
    assert m.true_positive_rate(pooled).tolist() == list(expected["pooled_tpr"].values())
    check(m.equal_opportunity_difference(pooled), expected["pooled_equal_opportunity_difference"])
    sizes = stack.sum((1, 2))
    check(np.average(m.equal_opportunity_difference(stack), weights=sizes), expected["weighted_mean_of_local"])
    signed = m.signed_gap(m.true_positive_rate(stack), 1)
    check(np.average(signed, weights=sizes), expected["weighted_mean_of_signed_local"])


@pytest.mark.parametrize(
    "groups",
    [[0, 1, 1, 0], [0.0, 1.0, 1.0, 0.0], ["0", "1", "1", "0"], ["0.0", "1.0", "1", "0"], [" 0", "1 ", 1, 0.0]],
)
@pytest.mark.parametrize("make", [list, np.array, lambda v: np.array(v, object), tuple])
def test_codes_are_levels_however_they_are_typed(groups, make):
    rows = m.encode([1, 0, 1, 0], ["1", "0", "0", "0"], make(groups))
    assert rows.groups == ("0", "1")
    assert rows.counts.tolist() == [[1, 0, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("y", [[True, False], ["True", "false"], ["1", "0"], [1.0, 0.0], np.array([1, 0], np.int8)])
@pytest.mark.parametrize("positive", [None, 1, True, "1", "True"])
def test_zero_one_and_bool_need_no_positive_label(y, positive):
    rows = m.encode(y, [1, 0], ["a", "b"], positive)
    assert rows.counts.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


def test_pandas_frames_categories_and_missing_types():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"y": [1, 0, 1], "sex": pandas.Categorical(["m", "f", None])})
    with pytest.raises(BadInput, match="'sex' has 1 missing row of 3"):
        m.encode(frame.y, frame.y, frame.sex)
    codes = pandas.Series([1, 2, None], dtype="Int64")
    assert levels("x", codes, "group")[1] == ("1", "2", "missing")
    dates = pandas.Series(pandas.to_datetime(["2020-01-01", None]))
    assert levels("x", dates, "group")[1][1] == "missing"


def test_two_series_in_another_order_are_refused():
    pandas = pytest.importorskip("pandas")
    y = pandas.Series([1, 0, 1])
    with pytest.raises(BadInput, match="'y_true' and 'y_pred' have different indices"):
        m.encode(y, y.sort_index(ascending=False), ["a", "b", "a"])
    assert m.encode(y, y.to_numpy()[::-1], ["a", "b", "a"]).counts.sum() == 3


def test_numeric_levels_are_sorted_as_numbers():
    assert levels("age", [10, 9, 100, 9])[1] == ("9", "10", "100")
    assert set(levels("code", ["007", "7", "7.0"])[1]) == {"007", "7"}


def test_scores_count_as_positive_from_the_threshold_on():
    rows = m.encode([1, 0, 1], [0.8, 0.79, 0.1], ["a", "a", "a"], score=True, threshold=0.8)
    assert rows.counts.tolist() == [[1, 0, 1, 1]]


@pytest.mark.parametrize(
    ("y", "yhat", "sensitive", "options", "words"),
    [
        ([], [], [], {}, "there are no rows"),
        ([1, 0], [1], ["a", "b"], {}, "lengths differ: y_true has 2, y_pred has 1, sensitive has 2"),
        ([1, 0], [1, 0], {}, {}, "no sensitive attribute"),
        ([1, 2, 3], [1, 2, 3], ["a", "b", "a"], {"positive": 1}, "labels are '1', '2', '3': 3 classes"),
        ([1, 2], [1, 2], ["a", "b"], {}, "labels are '1', '2'; say which one is positive"),
        ([1, None], [1, 0], ["a", "b"], {}, "'y_true' has 1 missing row of 2 (first: row 1)"),
        ([1, 0], [1, float("nan")], ["a", "b"], {"missing": "group"}, "'y_pred' has 1 missing row of 2"),
        ([1, 0], [1, 0], [(1, 2), (1, 2)], {}, "'sensitive' holds a tuple ((1, 2))"),
        ([1, 0], [1, 0], [[1], [2]], {}, "'sensitive' holds a list ([1])"),
        ([1, 0], [1, 0], np.zeros((2, 2)), {}, "'sensitive' has shape (2, 2)"),
        ([1, 0], [0.5, float("nan")], ["a", "b"], {"score": True}, "1 of 2 scores are not finite (first: row 1, nan)"),
        ([1, 0], ["high", "low"], ["a", "b"], {"score": True}, "scores must be numbers"),
        (
            [1, 0],
            [0.1, 0.2],
            ["a", "b"],
            {"score": True, "threshold": float("nan")},
            "threshold must be a finite number",
        ),
        ([1, 0], [1, 0], ["missing", None], {"missing": "group"}, "a level called 'missing'; rename the level"),
        (
            [1] * 200,
            [1] * 200,
            {"a": list(range(200)), "b": list(range(200))},
            {},
            "make 40000 groups, more than 10000",
        ),
    ],
)
def test_bad_columns_are_refused_in_one_sentence(y, yhat, sensitive, options, words):
    with pytest.raises(BadInput) as e:
        m.encode(y, yhat, sensitive, **options)
    assert words in str(e.value)
    assert "\n" not in str(e.value)
