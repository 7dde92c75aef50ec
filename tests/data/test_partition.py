"""Laws of every partitioner, and the handed case of the Dirichlet split."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.checks import BadInput
from equipoise.data import describe, hold_out, partition

NEEDS_ALPHA = {"dirichlet", "by_quantity"}
DEALT = [n for n in partition.__all__ if n != "natural"]


def split(name, y, a, *, clients=3, seed=0, alpha=0.5, **more):
    if name in NEEDS_ALPHA:
        more["alpha"] = alpha
    return getattr(partition, name)(y, a, clients=clients, seed=seed, **more)


def people(n, seed=0, labels=2, groups=2):
    rng = np.random.default_rng(seed)
    return rng.integers(labels, size=n), rng.integers(groups, size=n)


@pytest.mark.parametrize("name", DEALT)
@given(
    n=st.integers(1, 200),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    exponent=st.floats(-12, 12),
    min_size=st.integers(1, 4),
)
def test_disjoint_complete_big_enough_deterministic(name, n, clients, seed, exponent, min_size):
    y, a = people(n, seed % 7)
    before = np.random.get_state()[1].copy()  # noqa: NPY002  (that it is untouched is what is tested)
    kwargs = {"clients": clients, "seed": seed, "alpha": 10.0**exponent, "min_size": min_size}
    if clients * min_size > n:
        with pytest.raises(BadInput, match=f"= {clients * min_size} > {n} examples"):
            split(name, y, a, **kwargs)
        return
    parts = split(name, y, a, **kwargs)
    assert len(parts) == clients
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert min(len(p) for p in parts) >= min_size
    assert all((np.diff(p) > 0).all() for p in parts)
    assert all((p == q).all() for p, q in zip(parts, split(name, y, a, **kwargs), strict=True))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("name", DEALT)
def test_seeds_differ_and_inputs_are_untouched(name):
    y, a = people(60)
    y0, a0 = y.copy(), a.copy()
    splits = {tuple(map(tuple, split(name, y, a, seed=s))) for s in range(10)}
    assert len(splits) > 5
    assert (y == y0).all() and (a == a0).all()


@pytest.mark.parametrize("over", ["cells", "labels", "groups"])
def test_order_of_rows_does_not_decide_who_gets_how_many(over):
    y, a = people(300)
    at = np.random.default_rng(1).permutation(300)
    one = describe(split("dirichlet", y, a, over=over), y, a).cells
    two = describe(split("dirichlet", y[at], a[at], over=over), y[at], a[at]).cells
    if over == "cells":
        assert (one == two).all()
    axis = {"cells": (), "labels": (2,), "groups": (1,)}[over]
    assert (one.sum(axis) == two.sum(axis)).all()


def test_what_a_cell_is():
    """At a tiny alpha every label (or group) sits with one client, though what is in it is mixed."""
    y, a = people(400)
    labels = describe(split("dirichlet", y, a, over="labels", alpha=1e-9, clients=2, seed=3), y, a).cells.sum(2)
    groups = describe(split("dirichlet", y, a, over="groups", alpha=1e-9, clients=2, seed=3), y, a).cells.sum(1)
    for counts in (labels, groups):
        assert ((counts > 1).sum(0) == 1).all()  # one owner each; a mended client may hold a single row


def test_large_alpha_is_alike_and_small_alpha_is_not():
    y, a = people(4000)
    alike = describe(split("dirichlet", y, a, alpha=1e9), y, a).mean
    unlike = describe(split("dirichlet", y, a, alpha=0.05), y, a).mean
    assert alike < 0.01 < 0.3 < unlike


def test_equal_differs_by_one_row_and_quantity_is_alike_in_kind():
    y, a = people(1001)
    assert sorted(len(p) for p in split("equal", y, a, clients=4)) == [250, 250, 250, 251]
    sizes = [len(p) for p in split("by_quantity", y, a, clients=4, alpha=0.5)]
    assert max(sizes) > 2 * min(sizes)


def test_mending_takes_from_the_largest_and_ends_at_once():
    y, a = people(1000)
    start = time.perf_counter()
    parts = split("dirichlet", y, a, clients=100, alpha=0.01, min_size=9)
    assert time.perf_counter() - start < 2
    assert min(len(p) for p in parts) == 9


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"alpha": float("nan")}, "alpha must be above 0"),
        ({"clients": 0}, "clients must be a whole number"),
        ({"clients": 2.5}, "clients must be a whole number"),
        ({"min_size": 0}, "min_size must be at least 1"),
        ({"clients": 11}, "11 clients x 1 = 11 > 10 examples"),
        ({"over": "cell"}, "did you mean 'cells'"),
    ],
)
def test_refused_at_once(kwargs, says):
    with pytest.raises(BadInput, match=says):
        split("dirichlet", np.zeros(10, int), np.zeros(10, int), **kwargs)


def test_lengths_must_agree():
    with pytest.raises(BadInput, match="lengths differ: label has 3, group has 2"):
        split("equal", np.zeros(3), np.zeros(2))


def test_natural_follows_the_sorted_ids():
    ids = np.array(["b", "a", "b", "c"])
    assert [p.tolist() for p in partition.natural(ids)] == [[1], [0, 2], [3]]
    with pytest.raises(BadInput, match="client a has 1 rows, fewer than min_size = 2"):
        partition.natural(ids, min_size=2)
    with pytest.raises(BadInput, match="no rows"):
        partition.natural(ids[:0])


@given(n=st.integers(2, 300), fraction=st.floats(0, 0.9), seed=st.integers(0, 1000), groups=st.integers(1, 4))
def test_the_test_pool_is_stratified(n, fraction, seed, groups):
    y, a = people(n, seed, groups=groups)
    if round(fraction * n) >= n:
        return
    train, test = hold_out(y, a, fraction, seed)
    assert sorted([*train, *test]) == list(range(n))
    assert len(test) == round(fraction * n)
    for label in (0, 1):
        for g in range(groups):
            cell = (y == label) & (a == g)
            assert abs(cell[test].sum() - cell.sum() * len(test) / n) < 1
    assert (hold_out(y, a, fraction, seed)[1] == test).all()


def test_the_test_pool_refuses_nonsense():
    y = np.zeros(10, int)
    for fraction in (-0.1, 1.5, float("nan")):
        with pytest.raises(BadInput, match="test_fraction"):
            hold_out(y, y, fraction, 0)
    with pytest.raises(BadInput, match="leaves none of the 10 rows"):
        hold_out(y, y, 1.0, 0)


def test_describe_counts_cells_and_keeps_empty_groups():
    y, a = np.array([0, 1, 1, 0]), np.array([0, 1, 1, 0])
    split_ = describe([np.array([0, 3]), np.array([1, 2])], y, a, groups=3)
    assert split_.cells.tolist() == [[[2, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 2, 0]]]
    assert split_.distance.tolist() == [0.5, 0.5]


def test_h22(handed):
    case = handed["h22"]
    labels = np.array(case["input"]["labels"])
    group = np.zeros(len(labels), int)
    good, big, flat = case["input"]["cases"]
    start = time.perf_counter()
    splits = [partition.dirichlet(labels, group, **(good | {"seed": s})) for s in range(10)]
    for parts in splits:
        assert sorted(np.concatenate(parts).tolist()) == list(range(10))
        assert min(map(len, parts)) >= 1
    assert len({tuple(map(tuple, p)) for p in splits}) > 1
    with pytest.raises(BadInput, match=r"3 clients x 4 = 12 > 10 examples"):
        partition.dirichlet(labels, group, **big)
    with pytest.raises(BadInput, match="alpha must be above 0"):
        partition.dirichlet(labels, group, **flat)
    assert time.perf_counter() - start < case["expected"]["time_limit_s"]
