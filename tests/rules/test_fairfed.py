"""FairFed: the traces and theorems of both papers, and what its options mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from equipoise import weights
from equipoise.aggregate import fairfed, fairfed_gaps, fairfed_step, weighted
from equipoise.checks import BadInput
from equipoise.scores import population

from .claims import law, reports, signed_eod, table

GAPS = st.lists(st.floats(0, 1), min_size=2, max_size=6)


def shares(gaps: list[float | None], sizes: Any = None, **options: Any) -> np.ndarray:
    server = fairfed(signed_eod, **options)
    return np.asarray(server.step(reports(gaps, sizes), server.init())[1]["weights"])


# Golden figures


def test_trace_of_the_gaming_adversary() -> None:
    """It plays 0.40 first and then what was broadcast last; gaps are to the current F_global."""
    server = fairfed(signed_eod, statistic="mean")
    state, play, trace = server.init(), 0.40, []
    for _ in range(4):
        _, info, state = server.step(reports([play, 0.10, 0.85]), state)
        trace.append(round(float(info["weights"][0]), 3))
        play = info["f_global"]
    assert trace == [0.550, 0.789, 0.982, 1.000]


def test_matching_converges_geometrically_to_the_honest_mean() -> None:
    sizes, honest = np.array([30.0, 50.0, 20.0]), [0.3, 0.8]
    p0, play = 0.3, 0.95
    fixed = (0.5 * honest[0] + 0.2 * honest[1]) / (1 - p0)
    for t in range(1, 12):
        play = population(signed_eod, statistic="mean")(reports([play, *honest], sizes))
        assert play - fixed == pytest.approx(p0**t * (0.95 - fixed), rel=1e-9)
    assert fixed <= max(honest)


def test_a_matched_client_gains_beta_times_the_mean_gap() -> None:
    before = np.array([0.3, 0.5, 0.2])
    gaps = np.array([0.0, 0.2, 0.1])
    assert fairfed_step(before, gaps, beta=0.5)[0] == pytest.approx(0.3 + 0.5 * 0.1)


@law(st.integers(2, 9), st.floats(0.05, 0.95), st.floats(0, 1), st.floats(0, 1))
def test_majority_data_captures_the_weight(clients: int, p0: float, biased: float, honest: float) -> None:
    """Whoever holds more than half of the data gains, whatever its bias (statistic: mean)."""
    sizes = np.array([p0, *[(1 - p0) / (clients - 1)] * (clients - 1)])
    server = fairfed(signed_eod, statistic="mean")
    gaps = server.step(reports([biased, *[honest] * (clients - 1)], sizes), server.init())[1]["scores"]
    expected = (clients - 1) / clients * (1 - 2 * p0) * abs(biased - honest)
    assert gaps[0] - gaps.mean() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("p0", "biased", "honest", "share"),
    [(0.395, 1.00, 0.00, 0.255), (0.210, 0.93, 0.26, 0.000), (0.303, 0.64, 0.18, 0.182)],
    ids=["German", "Taiwan", "Adult"],
)
def test_one_step_of_the_poisoning_table(p0: float, biased: float, honest: float, share: float) -> None:
    rest = (1 - p0) / 2
    w = shares([biased, honest, honest], [p0, rest, rest], statistic="mean")
    assert w[0] == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(("p0", "biased", "honest"), [(0.395, 1, 0), (0.210, 0.93, 0.26), (0.303, 0.64, 0.18)])
def test_cumulative_reaches_zero_in_three_rounds_and_reset_stays(p0: float, biased: float, honest: float) -> None:
    rest = (1 - p0) / 2
    r = reports([biased, honest, honest], [p0, rest, rest])
    trace = {}
    for kind in ("cumulative", "reset"):
        server = fairfed(signed_eod, statistic="mean", state=kind)
        state, trace[kind] = server.init(), []
        for _ in range(3):
            _, info, state = server.step(r, state)
            trace[kind].append(info["weights"][0])
    assert trace["cumulative"][-1] == 0
    assert len(set(trace["reset"])) == 1


def test_pooled_statistic_is_the_sum_of_signed_contributions() -> None:
    r = np.random.default_rng(0)
    counts = r.integers(1, 40, size=(5, 2, 4))
    tp, positives = counts[..., 0], counts[..., 0] + counts[..., 3]
    rows = counts.sum((1, 2))
    n, total = rows.sum(), positives.sum(0)
    # As printed: m_k = TPR_a,k P(A=a, Y=1 | k) / P(A=a, Y=1), weighed by n_k / n.
    m = (tp / positives * (positives / rows[:, None]) / (total / n)) @ [1, -1]
    server = fairfed(signed_eod)
    _, info, _ = server.step(reports([0] * 5, rows, tables=list(counts)), server.init())
    assert info["f_global"] == pytest.approx((rows / n * m).sum())
    assert info["f_global"] == pytest.approx(signed_eod(counts.sum(0)))


def test_the_two_statistics_differ() -> None:
    """Two opposite signed gaps: pooled says fair, the mean of absolute ones says 0.5."""
    pooled = fairfed(signed_eod).step(reports([0.5, -0.5]), {"weights": {}})[1]
    mean = fairfed(signed_eod, statistic="mean").step(reports([0.5, -0.5]), {"weights": {}})[1]
    assert pooled["f_global"] == 0 and mean["f_global"] == 0.5
    np.testing.assert_allclose(pooled["scores"], [0.5, 0.5])
    np.testing.assert_allclose(mean["scores"], [0, 0])
    np.testing.assert_allclose(pooled["raw_scores"], [0.5, -0.5])


# Laws


@law(GAPS, st.sampled_from(["pooled", "mean"]), st.sampled_from(["linear", "exponential"]))
def test_beta_zero_is_fedavg(gaps: list[float], statistic: str, form: str) -> None:
    sizes = np.arange(1.0, len(gaps) + 1)
    r = reports(gaps, sizes)
    delta, _, state = (server := fairfed(signed_eod, beta=0, statistic=statistic, form=form)).step(r, server.init())
    plain, info, _ = weighted(weights.fedavg).step(r, {"scores": {}})
    np.testing.assert_allclose(delta, plain, rtol=1e-12)
    np.testing.assert_allclose(server.step(r, state)[1]["weights"], info["weights"], rtol=1e-12)


@law(GAPS, st.floats(0, 3))
def test_mass_is_kept_without_a_floor(gaps: list[float], beta: float) -> None:
    old = np.full(len(gaps), 1 / len(gaps))
    assert fairfed_step(old, np.array(gaps), beta=beta, floor=False).sum() == pytest.approx(1)


@law(GAPS, st.floats(0, 3), st.sampled_from(["linear", "exponential"]))
def test_a_larger_gap_never_gains_on_a_smaller_one(gaps: list[float], beta: float, form: str) -> None:
    old = np.full(len(gaps), 1 / len(gaps))
    new = fairfed_step(old, np.array(gaps), beta=beta, form=form)
    assert (np.diff(new[np.argsort(gaps)]) <= 1e-12).all()


@law(GAPS)
def test_equal_clients_equal_weight(gaps: list[float]) -> None:
    w = shares([gaps[0]] * len(gaps))
    np.testing.assert_allclose(w, 1 / len(gaps))


def test_exponential_form_by_hand() -> None:
    w = shares([0.5, -0.5, 0.0], [1, 1, 2], form="exponential", beta=2.0)
    mass = np.array([0.25, 0.25, 0.5]) * np.exp(-2 * np.array([0.5, 0.5, 0]))
    np.testing.assert_allclose(w, mass / mass.sum())
    assert np.isfinite(shares([1.0, -1.0, 0.2], form="exponential", beta=1e6)).all()


def test_without_floor_weights_may_be_negative_and_stay_bounded() -> None:
    server = fairfed(signed_eod, statistic="mean", floor=False, clip=1.0)
    r = reports([1.0, 0.0, 0.0], updates=np.eye(3) * 5)
    state = server.init()
    for _ in range(3):
        delta, info, state = server.step(r, state)
    assert info["weights"][0] < 0 and info["weights"].sum() == pytest.approx(1)
    np.testing.assert_allclose(info["bounds"], np.abs(info["weights"]) * 1.0)
    assert abs(delta[0]) == pytest.approx(info["bounds"][0])


# Undefined


def test_undefined_client_is_judged_by_accuracy_and_named() -> None:
    tables = [table(0.1, 0.8, 50), table(None, 0.7, 50), table(0.2, 0.9, 50)]
    server = fairfed(signed_eod, statistic="mean", beta=0.5)
    _, info, _ = server.step(reports([0, 0, 0], [50, 50, 50], tables=tables, clients=[3, 5, 8]), server.init())
    assert info["f_global"] == pytest.approx(0.15)
    np.testing.assert_allclose(info["scores"], [0.05, 0.1, 0.05])
    assert list(info["fallbacks"]) == [5]
    assert info["fallbacks"][5].startswith("metric undefined (no positives in group 1)")
    assert info["fallbacks"][5].endswith("gap by accuracy")
    assert info["weights"][1] < info["weights"][0] == info["weights"][2]


def test_everything_by_accuracy_where_the_population_is_undefined() -> None:
    tables = [table(None, a, 10) for a in (0.5, 0.7, 0.6)]
    for statistic in ("pooled", "mean"):
        server = fairfed(signed_eod, statistic=statistic)
        _, info, _ = server.step(reports([0] * 3, tables=tables), server.init())
        assert info["f_global"] is None and "every gap is by accuracy" in info["note"]
        np.testing.assert_allclose(info["scores"], [0.1, 0.1, 0.0], atol=1e-12)


def test_a_client_without_any_rows_neither_gains_nor_loses() -> None:
    tables = [table(0.4), table(0.0), np.zeros((2, 4))]
    server = fairfed(signed_eod)
    _, info, _ = server.step(reports([0] * 3, tables=tables), server.init())
    assert info["weights"][2] == pytest.approx(1 / 3)
    assert info["fallbacks"][2].endswith("no accuracy either, mean gap of the others")
    np.testing.assert_allclose(fairfed_gaps(np.full(2, np.nan), np.nan, np.full(2, np.nan), np.nan), [0, 0])


# Who is here


def test_newcomers_absent_clients_and_returns() -> None:
    server = fairfed(signed_eod, statistic="mean")
    state = server.init()
    _, _, state = server.step(reports([0.9, 0.1, 0.1], clients=[1, 2, 3]), state)
    before = state["weights"]["1"]
    _, info, state = server.step(reports([0.2, 0.2], [10, 30], clients=[2, 7]), state)
    assert state["weights"]["1"] == before  # absent: keeps its weight
    assert state["weights"]["7"] == pytest.approx(0.75)  # a newcomer enters at n_k / n of those present
    assert info["weights"].sum() == pytest.approx(1)
    assert set(state["weights"]) == {"1", "2", "3", "7"}


def test_nobody_left_above_zero() -> None:
    server = fairfed(signed_eod)
    state = {"weights": {"0": 0.0, "1": 0.0}}
    _, info, after = server.step(reports([0.3, 0.3], [10, 30]), state)
    np.testing.assert_allclose(info["weights"], [0.25, 0.75])
    assert "no weight above 0 was left" in info["note"]
    assert after["weights"] == {"0": 0.0, "1": 0.0}  # being among the floored restores nobody


def test_lies_about_size_or_counts_end_nothing() -> None:
    server = fairfed(signed_eod)
    tables = [table(0.5), np.full((2, 4), 9.2e18)]
    delta, info, _ = server.step(reports([0, 0], [1e308, 1e308], tables=tables), server.init())
    assert np.isfinite(delta).all() and info["weights"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"beta": -1}, "beta must be 0 or more, got -1"),
        ({"beta": float("nan")}, "beta must be 0 or more"),
        ({"statistic": "poold"}, "did you mean 'pooled'"),
        ({"state": "never"}, "state 'never' is unknown"),
        ({"form": "cubic"}, "form 'cubic' is unknown"),
    ],
)
def test_options_are_checked(options: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        fairfed(signed_eod, **options)
