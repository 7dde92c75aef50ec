"""Counting: one pass, tables that add, and a refusal of everything that cannot be counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.checks import BadInput
from equipoise.metrics import counts, counts_by

rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3), st.integers(0, 2)), max_size=40)


def columns(data):
    return np.array(data, np.int64).reshape(-1, 4).T


@given(rows)
def test_counts_are_what_a_loop_counts(data):
    expected = np.zeros((3, 4, 4), np.int64)
    for y, yhat, group, client in data:
        expected[client, group, {(1, 1): 0, (0, 1): 1, (0, 0): 2, (1, 0): 3}[y, yhat]] += 1
    y, yhat, group, client = columns(data)
    np.testing.assert_array_equal(counts_by(y, yhat, group, client, groups=4, clients=3), expected)


@given(rows, st.integers(0, 40), st.randoms())
def test_counts_add_and_order_does_not_matter(data, cut, random):
    y, yhat, group, client = columns(data)
    whole = counts(y, yhat, group, 4)
    parts = counts(y[:cut], yhat[:cut], group[:cut], 4) + counts(y[cut:], yhat[cut:], group[cut:], 4)
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole, counts_by(y, yhat, group, client, 4, 3).sum(0))
    at = list(range(len(y)))
    random.shuffle(at)
    np.testing.assert_array_equal(whole, counts(y[at], yhat[at], group[at], 4))
    assert whole.dtype == np.int64
    assert whole.sum() == len(data)


def test_an_absent_group_keeps_its_place():
    table = counts([1, 0], [1, 0], [0, 2], groups=3)
    assert table.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.float32, np.float64])
def test_every_numeric_type_of_label_counts_alike(kind):
    y = np.array([1, 0, 1], kind)
    assert counts(y, y, [0, 0, 0], 1).tolist() == [[2, 0, 1, 0]]


@pytest.mark.parametrize(
    ("y", "yhat", "group", "words"),
    [
        ([1, 2], [1, 0], [0, 0], "y must hold only 0 and 1, got 2 at row 1"),
        ([1, 0], [np.nan, 0], [0, 0], "yhat must hold only 0 and 1, got nan at row 0"),
        ([1, 0], [1, 0.5], [0, 0], "yhat must hold only 0 and 1, got 0.5"),
        (["yes", "no"], [1, 0], [0, 0], "y holds <U3 values"),
        ([1, 0], [1, 0], [0, 2], "group must lie in 0..1, got 2 at row 1"),
        ([1, 0], [1, 0], [0, -1], "group must lie in 0..1, got -1 at row 1"),
        ([1, 0], [1, 0], [0.0, 1.0], "group holds float64"),
        ([1, 0], [1, 0], [0], "lengths differ: y has 2, yhat has 2, group has 1"),
        ([[1, 0]], [[1, 0]], [0], "shape (1, 2)"),
    ],
)
def test_bad_rows_are_refused_by_name(y, yhat, group, words):
    with pytest.raises(BadInput) as e:
        counts(y, yhat, group, 2)
    assert words in str(e.value)
