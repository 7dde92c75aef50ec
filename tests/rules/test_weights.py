"""Weight rules: golden figures of the papers, and the laws that every rule of the catalogue keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from equipoise import weights
from equipoise.checks import BadInput
from equipoise.weights import (
    ala,
    eta_for_cap,
    fairis,
    fairis_n,
    fedavg,
    joint,
    largest_default_eta,
    marginal,
    uniform,
    worst_share,
)

from .claims import law

CATALOGUE = [getattr(weights, name) for name in weights.__all__]
SCORED = [ala, fairis, fairis_n, joint]
ETAS = st.floats(1.001, 5.0)
SCORES = st.floats(0.0, 1.0)


@st.composite
def cases(draw: st.DrawFn, least: int = 1) -> tuple[np.ndarray, np.ndarray, float]:
    k = draw(st.integers(least, 8))
    scores = np.array(draw(st.lists(SCORES, min_size=k, max_size=k)))
    sizes = np.array(draw(st.lists(st.integers(1, 100_000), min_size=k, max_size=k)), float)
    return scores, sizes, draw(ETAS)


def parameters(rule: Any, eta: float) -> dict[str, float]:
    return {"eta": eta} if rule in (fairis, fairis_n, joint) else {}


# Golden figures


def test_worked_example() -> None:
    w = fairis([0.85, 0.22, 0.18], [1, 1, 1], eta=1.01)
    np.testing.assert_allclose(w, [0.090, 0.444, 0.466], atol=5e-4)
    np.testing.assert_allclose(w, np.array([0.16, 0.79, 0.83]) / 1.78)


@pytest.mark.parametrize(("clients", "share"), [(3, 0.111), (5, 0.04), (10, 0.01)])
def test_largest_default_eta_leaves_one_over_k_squared(clients: int, share: float) -> None:
    scores = [1.0, *[0.0] * (clients - 1)]
    w = fairis(scores, np.ones(clients), eta=largest_default_eta(clients))
    assert w[0] == pytest.approx(1 / clients**2) == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize(("clients", "share"), [(3, 0.0049), (5, 0.0025), (10, 0.0011)])
def test_strict_eta_worst_case(clients: int, share: float) -> None:
    assert worst_share(1.01, clients) == pytest.approx(share, abs=5.1e-5)


@law(st.integers(2, 50), st.floats(0.01, 0.99), st.floats(0.0, 0.95))
def test_eta_for_cap_caps(clients: int, part: float, honest: float) -> None:
    share = part / clients
    eta = eta_for_cap(share, clients, honest)
    assert eta > 1
    assert worst_share(eta, clients, honest) == pytest.approx(share, rel=1e-6)
    fairer = fairis([1.0, *[honest / 2] * (clients - 1)], np.ones(clients), eta=eta)
    assert fairer[0] <= share * (1 + 1e-9)


def test_eta_for_cap_golden() -> None:
    assert eta_for_cap(1 / 9, 3) == pytest.approx(4 / 3)
    assert eta_for_cap(0.05, 3) == pytest.approx(0.95 / 0.85)


@pytest.mark.parametrize(
    ("share", "clients", "honest", "match"),
    [
        (1 / 3, 3, 0.0, "share must be below 1/K = 0.333333, got 0.333333"),
        (0.0, 3, 0.0, "share must be above 0"),
        (0.1, 1, 0.0, "number of clients must be above 1"),
        (0.1, 3, 1.0, "honest must be below 1"),
        (0.1, 3, 1.5, "honest must lie in 0..1"),
    ],
)
def test_impossible_caps_are_refused(share: float, clients: int, honest: float, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        eta_for_cap(share, clients, honest)


@law(cases())
def test_equation_3(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    k = len(s)
    np.testing.assert_allclose(fairis(s, n, eta=eta), 1 / k + (s.mean() - s) / (k * eta - s.sum()), atol=1e-9)


@law(cases())
def test_large_eta_bound(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    k = len(s)
    assert (np.abs(fairis(s, n, eta=eta) - 1 / k) <= 1 / (k * (eta - 1)) + 1e-12).all()


def test_coalition_bound_golden() -> None:
    w = fairis([0.9, 0.9, 0.2, 0.2, 0.2], np.ones(5), eta=1.01)
    assert w[:2].sum() == pytest.approx(0.083, abs=5e-4)


@law(cases(least=3), st.data())
def test_coalition_bound(case: tuple[np.ndarray, np.ndarray, float], data: st.DataObject) -> None:
    """Corollary 2: members that all score f or more hold no more together than if each scored just f."""
    s, n, eta = case
    members = data.draw(st.integers(1, len(s) - 1))
    f = s[:members].min()
    honest = (eta - s[members:]).sum()
    bound = members * (eta - f) / (members * (eta - f) + honest)
    assert fairis(s, n, eta=eta)[:members].sum() <= bound + 1e-12


# Laws over the catalogue


@pytest.mark.parametrize("rule", CATALOGUE)
@law(cases())
def test_on_the_simplex(rule: Any, case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    assume(rule is not ala or (s < 1).any())
    w = rule(s, n, **parameters(rule, eta))
    assert w.shape == s.shape
    assert (w >= 0).all()
    assert w.sum() == pytest.approx(1)
    if rule is not ala:
        assert (w > 0).all()  # demographic participation: nobody is excluded


@pytest.mark.parametrize("rule", CATALOGUE)
@law(cases(), st.randoms(use_true_random=False))
def test_permutation_equivariant(rule: Any, case: tuple[np.ndarray, np.ndarray, float], random: Any) -> None:
    s, n, eta = case
    order = list(range(len(s)))
    random.shuffle(order)
    p = parameters(rule, eta)
    np.testing.assert_allclose(rule(s[order], n[order], **p), rule(s, n, **p)[order], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("rule", CATALOGUE)
@law(cases())
def test_input_untouched_and_bits_repeat(rule: Any, case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    before = s.copy(), n.copy()
    s.setflags(write=False)
    n.setflags(write=False)
    first = rule(s, n, **parameters(rule, eta))
    np.testing.assert_array_equal(first, rule(s, n, **parameters(rule, eta)))
    np.testing.assert_array_equal((s, n), before)
    assert not np.shares_memory(first, n) and not np.shares_memory(first, s)


@pytest.mark.parametrize("rule", CATALOGUE)
@law(SCORES, st.integers(1, 1000), st.integers(1, 8), ETAS)
def test_equal_clients_equal_weight(rule: Any, score: float, size: int, clients: int, eta: float) -> None:
    assume(rule is not ala or score < 1)
    w = rule(np.full(clients, score), np.full(clients, size), **parameters(rule, eta))
    np.testing.assert_array_equal(w, w[0])


@pytest.mark.parametrize("rule", CATALOGUE)
@law(cases(least=2), SCORES)
def test_more_bias_never_pays(rule: Any, case: tuple[np.ndarray, np.ndarray, float], worse: float) -> None:
    """Monotone weight reduction: strictly for the family, not at all for rules without scores."""
    s, n, eta = case
    assume(worse > s[0] + 1e-6 and s[1] < 1)
    p = parameters(rule, eta)
    before = rule(s, n, **p)
    after = rule(np.array([worse, *s[1:]]), n, **p)
    if rule in SCORED:
        assert after[0] < before[0]
        assert (after[1:] >= before[1:]).all()
    else:
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("rule", [fedavg, fairis_n])
@law(cases(least=2))
def test_more_rows_more_weight(rule: Any, case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    more = np.array([n[0] * 2, *n[1:]])
    assert rule(s, more, **parameters(rule, eta))[0] > rule(s, n, **parameters(rule, eta))[0]


# What a rule reduces to


@law(cases())
def test_fairis_with_a_huge_eta_is_uniform(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, _ = case
    np.testing.assert_allclose(fairis(s, n, eta=1e12), uniform(s, n), atol=1e-11)
    np.testing.assert_allclose(fairis_n(s, n, eta=1e12), fedavg(s, n), atol=1e-11)


@law(cases())
def test_joint_of_one_score_is_fairis(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    np.testing.assert_array_equal(joint(s, n, eta=eta), fairis(s, n, eta=eta))
    np.testing.assert_array_equal(joint(s[None], n, eta=[eta], power=1), fairis_n(s, n, eta=eta))


@law(cases(), ETAS)
def test_joint_with_a_score_that_is_the_same_for_all_is_fairis(
    case: tuple[np.ndarray, np.ndarray, float], other: float
) -> None:
    s, n, eta = case
    both = np.stack([s, np.full(len(s), 0.3)])
    np.testing.assert_allclose(joint(both, n, eta=[eta, other]), fairis(s, n, eta=eta), rtol=1e-9)


@law(cases())
def test_ala_is_fairis_formula_at_one(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, _ = case
    assume((s < 0.99).any())
    np.testing.assert_allclose(ala(s, n), fairis(s, n, eta=1 + 1e-12), atol=1e-9)
    np.testing.assert_allclose(ala(s, n), (1 - s) / (1 - s).sum())


@law(cases())
def test_fairis_n_of_equal_sizes_is_fairis(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    np.testing.assert_allclose(fairis_n(s, np.full(len(s), 7), eta=eta), fairis(s, n, eta=eta), rtol=1e-12)


# Marginals


@pytest.mark.parametrize("rule", CATALOGUE)
@law(cases(least=2))
def test_marginal_is_the_slope(rule: Any, case: tuple[np.ndarray, np.ndarray, float]) -> None:
    s, n, eta = case
    s = 0.05 + 0.9 * s  # room for a two-sided difference
    eta = max(eta, 1.05)
    p = parameters(rule, eta)
    slopes = marginal(rule, s, n, **p)
    for k in range(len(s)):
        h = np.zeros(len(s))
        h[k] = 1e-5
        rise = rule(s + h, n, **p)[k] - rule(s - h, n, **p)[k]
        assert slopes[k] == pytest.approx(rise / 2e-5, rel=1e-4, abs=1e-6)


def test_marginal_of_fairis_by_hand() -> None:
    s, eta = np.array([0.85, 0.22, 0.18]), 1.01
    total = 1.78
    np.testing.assert_allclose(marginal(fairis, s, np.ones(3), eta=eta), -(total - (eta - s)) / total**2)
    n = np.array([100.0, 300, 200])
    mass = n * (eta - s)
    expected = -n * (mass.sum() - mass) / mass.sum() ** 2
    np.testing.assert_allclose(marginal(fairis_n, s, n, eta=eta), expected)


def test_marginal_of_joint_has_a_row_per_score() -> None:
    s = np.array([[0.2, 0.7, 0.5], [0.9, 0.1, 0.4]])
    slopes = marginal(joint, s, np.ones(3), eta=[1.2, 1.5])
    for m, k in np.ndindex(2, 3):
        h = np.zeros((2, 3))
        h[m, k] = 1e-6
        rise = joint(s + h, np.ones(3), eta=[1.2, 1.5])[k] - joint(s - h, np.ones(3), eta=[1.2, 1.5])[k]
        assert slopes[m, k] == pytest.approx(rise / 2e-6, rel=1e-5)


def test_marginal_where_a_mass_is_zero() -> None:
    np.testing.assert_allclose(marginal(ala, [1.0, 0.5], [1, 1]), [-2.0, 0.0])
    assert np.isnan(marginal(ala, [1.0, 1.0], [1, 1])).all()


def test_marginal_of_a_rule_from_elsewhere() -> None:
    def squared(scores: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return (2 - scores) ** 2 / ((2 - scores) ** 2).sum()

    np.testing.assert_allclose(marginal(squared, [0.0, 1.0], [1, 1]), [-4 / 25, -8 / 25], rtol=1e-4)


# What is refused, and what is undefined


@pytest.mark.parametrize(
    ("rule", "scores", "sizes", "params", "match"),
    [
        (fairis, [0.1, 0.3], [1, 1], {"eta": 0.5}, r"eta must be above 1, got 0.5 \(scores lie in 0..1, so 0.5 would"),
        (fairis, [0.1, 0.3], [1, 1], {"eta": 1}, "zero weight"),
        (fairis_n, [0.1, 0.3], [1, 1], {"eta": float("nan")}, "eta must be above 1"),
        (fairis, [0.1, 1.3], [1, 1], {}, "score 1.3 at position 1 lies outside 0..1"),
        (fairis, [0.1, -0.3], [1, 1], {}, "score -0.3 at position 1"),
        (fairis, [float("nan"), 0.3], [1, 1], {}, "score at position 0 is undefined"),
        (fairis, [0.1, 0.2, 0.3], [1, 1], {}, r"scores have shape \(3,\), expected \(2,\)"),
        (fairis, [], [], {}, "at least one client"),
        (fairis_n, [0.1, 0.3], [1, -4], {}, "size -4 at position 1"),
        (fedavg, [0.1, 0.3], [1, float("inf")], {}, "size inf at position 1"),
        (uniform, [0.1], [[1]], {}, "sizes have shape"),
        (joint, [[0.1, 0.2]] * 2, [1, 1], {"eta": [1.1, 1.2, 1.3]}, "eta has 3 values for 2 scores"),
        (joint, [[0.1, 0.2]] * 2, [1, 1], {"eta": [1.1, 0.9]}, "eta must be above 1, got 0.9"),
        (joint, [0.1, 0.2], [1, 1], {"power": 2}, "power must lie in 0..1"),
    ],
)
def test_refused_in_one_sentence(rule: Any, scores: Any, sizes: Any, params: Any, match: str) -> None:
    with pytest.raises(BadInput, match=match) as e:
        rule(scores, sizes, **params)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("rule", "scores", "sizes"), [(ala, [1, 1], [1, 1]), (fedavg, [0, 0], [0, 0]), (fairis_n, [0.5, 0], [0, 0])]
)
def test_no_mass_is_undefined(rule: Any, scores: Any, sizes: Any) -> None:
    assert np.isnan(rule(scores, sizes)).all()


@pytest.mark.parametrize("rule", [fedavg, fairis_n])
def test_claims_near_the_end_of_float_still_share(rule: Any) -> None:
    np.testing.assert_allclose(rule([0, 0], [1e308, 1e308]), [0.5, 0.5])


def test_catalogue_is_what_it_says() -> None:
    assert set(CATALOGUE) == {uniform, fedavg, fairis, fairis_n, ala, joint}
