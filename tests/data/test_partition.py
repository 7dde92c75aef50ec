"""Laws of every partitioner, and the handed case of the Dirichlet split."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from equipoise.checks import BadInput
from equipoise.data import describe, hold_out, left_out, partition

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
    dealt = partition.natural(ids)
    assert [p.tolist() for p in dealt.parts] == [[1], [0, 2], [3]]
    assert dealt.names == ("a", "b", "c") and dealt.log == ()
    with pytest.raises(BadInput, match="client a has 1 rows, fewer than min_size = 2"):
        partition.natural(ids, min_size=2)
    with pytest.raises(BadInput, match="no rows"):
        partition.natural(ids[:0])


@given(
    n=st.integers(40, 200),
    seed=st.integers(0, 2**32),
    choose=st.none() | st.integers(1, 8),
    thin=st.booleans(),
    split=st.integers(1, 2),
)
def test_natural_gives_a_row_once_to_a_part_of_its_own_client_and_counts_the_rest(n, seed, choose, thin, split):
    rng = np.random.default_rng(seed)
    ids = np.array([f"subject {i:02d}" for i in np.arange(n) % 8])[rng.permutation(n)]
    y = rng.integers(2, size=n)
    split = 1 if thin else split  # a client may be thinned to a single row
    dealt = partition.natural(ids, y, seed=seed, choose=choose, thin=thin, split=split)
    given_out = np.concatenate(dealt.parts)
    assert len(set(given_out.tolist())) == len(given_out)
    owners = [set(ids[p].tolist()) for p in dealt.parts]
    assert all(len(o) == 1 for o in owners) and len(dealt.parts) == (choose or 8) * split
    assert [name.split(",")[0] for name in dealt.names] == [o.pop() for o in owners]
    assert len(set(dealt.names)) == len(dealt.names) and list(dealt.names) == sorted(dealt.names)
    chosen = np.isin(ids, [name.split(",")[0] for name in dealt.names])
    said = sum(int(line.split("; ")[-1].split(": ")[-1].split(" ")[0]) for line in dealt.log)
    assert said == n - len(given_out)
    if thin:
        cells = {(c, label) for c, label in zip(ids[chosen], y[chosen], strict=True)}
        assert {(c, label) for c, label in zip(ids[given_out], y[given_out], strict=True)} == cells
    else:
        assert len(given_out) == chosen.sum()
    again = partition.natural(ids, y, seed=seed, choose=choose, thin=thin, split=split)
    assert all((p == q).all() for p, q in zip(dealt.parts, again.parts, strict=True))


def test_a_part_of_a_person_is_never_called_a_person():
    ids = np.repeat(["subject 01", "subject 02"], [11, 5])
    dealt = partition.natural(ids, split=5, seed=3)
    assert dealt.names[:2] == ("subject 01, part 1 of 5", "subject 01, part 2 of 5")
    assert not set(dealt.names) & set(ids)
    assert sorted(len(p) for p in dealt.parts[:5]) == [2, 2, 2, 2, 3] and [len(p) for p in dealt.parts[5:]] == [1] * 5
    with pytest.raises(BadInput, match="client subject 02 has 5 rows, fewer than min_size = 1 for each of 6 parts"):
        partition.natural(ids, split=6, seed=3)


def test_thinning_keeps_every_number_from_one_to_all_alike():
    ids, y = np.repeat(np.arange(600), 4), np.zeros(2400, int)
    kept = [len(p) for p in partition.natural(ids, y, thin=True, seed=0).parts]
    counts = np.bincount(kept, minlength=5)
    assert counts[0] == 0 and len(counts) == 5
    assert ((counts[1:] - 150) ** 2 / 150).sum() < 16.3  # chi squared, 3 degrees of freedom, p = 0.001


def test_choosing_changes_nothing_at_those_who_are_chosen():
    ids, y = np.repeat([f"s{i}" for i in range(6)], 20), np.tile([0, 1, 2, 3], 30)
    kinds = {"thin": True, "seed": 5}
    everyone = partition.natural(ids, y, **kinds)
    some = partition.natural(ids, y, choose=3, **kinds)
    whole = dict(zip(everyone.names, everyone.parts, strict=True))
    assert all((whole[name] == part).all() for name, part in zip(some.names, some.parts, strict=True))
    chosen = {partition.natural(ids, choose=3, seed=s).names for s in range(30)}
    assert len(chosen) > 10 and {name for names in chosen for name in names} == set(ids)
    assert some.log[0].startswith("3 of 6 clients chosen; 60 rows of the others are left out")


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"choose": 3}, r"choose must lie in 1\.\.2, .* got 3"),
        ({"choose": 0}, r"choose must lie in 1\.\.2, .* got 0"),
        ({"split": 0}, "split must be a whole number of at least 1, got 0"),
        ({"thin": True}, "thin needs the labels"),
        ({"thin": True, "seed": None}, "need a seed"),
        ({"choose": 1, "seed": None}, "need a seed"),
        ({"split": 2, "seed": None}, "need a seed"),
    ],
)
def test_natural_refuses(kwargs, says):
    with pytest.raises(BadInput, match=says):
        partition.natural(np.array([1, 1, 2, 2]), **({"seed": 1} | kwargs))


@given(seed=st.integers(0, 2**32), alpha=st.floats(0.05, 10), cap=st.integers(5, 60), labels=st.integers(2, 10))
def test_a_cap_leaves_rows_out_and_changes_nothing_else(seed, alpha, cap, labels):
    y, a = people(500, seed % 5, labels)
    kinds = {"clients": 4, "seed": seed, "alpha": alpha, "over": "labels"}
    free = describe(split("dirichlet", y, a, **kinds), y, a).cells.sum(2)
    assume(free.sum(1).min() > 1)  # a client of one row may have been mended
    parts = split("dirichlet", y, a, cap=cap, **kinds)
    rows = np.concatenate(parts)
    assert len(set(rows.tolist())) == len(rows)
    assert (np.stack([np.bincount(y[p], minlength=labels) for p in parts]) == np.minimum(free, cap)).all()
    said = left_out(parts, y, [f"label {i}" for i in range(labels)])
    unused = np.maximum(free - cap, 0).sum(0)
    each = ", ".join(f"label {i} {k}" for i, k in enumerate(unused) if k)
    assert said == (f"{unused.sum()} of 500 rows are given to no client: {each}" if unused.any() else "")


def test_a_cap_that_leaves_too_little_is_refused():
    y = np.zeros(100, int)
    with pytest.raises(BadInput, match="cap must be a whole number of at least min_size = 5, got 4"):
        split("dirichlet", y, y, cap=4, min_size=5)
    with pytest.raises(BadInput, match=r"3 clients x 9 = 27 > \d+ examples"):
        split("dirichlet", y, y, cap=9, min_size=9, alpha=1e-9)


def test_the_cap_of_finp_on_as_many_rows_as_cifar10():
    y = np.repeat(np.arange(10), 5000)
    parts = split("dirichlet", y, np.zeros_like(y), clients=10, alpha=0.5, over="labels", cap=500, seed=0)
    counts = np.stack([np.bincount(y[p], minlength=10) for p in parts])
    free = split("dirichlet", y, np.zeros_like(y), clients=10, alpha=0.5, over="labels", seed=0)
    uncapped = np.stack([np.bincount(y[p], minlength=10) for p in free])
    assert (counts == np.minimum(uncapped, 500)).all() and (uncapped.sum(0) == 5000).all()


@pytest.mark.parametrize("name", DEALT)
def test_many_classes(name):
    y, a = people(600, 3, labels=62, groups=1)
    parts = split(name, y, a, clients=5)
    cells = describe(parts, y, a).cells
    assert cells.shape == (5, 62, 1) and (cells.sum((0, 2)) == np.bincount(y, minlength=62)).all()


@given(
    n=st.integers(2, 300),
    fraction=st.floats(0, 0.9),
    seed=st.integers(0, 1000),
    groups=st.integers(1, 4),
    labels=st.integers(1, 10),
)
def test_the_test_pool_is_stratified(n, fraction, seed, groups, labels):
    y, a = people(n, seed, labels, groups)
    if round(fraction * n) >= n:
        return
    train, test = hold_out(y, a, fraction, seed)
    assert sorted([*train, *test]) == list(range(n))
    assert len(test) == round(fraction * n)
    for label in range(labels):
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
