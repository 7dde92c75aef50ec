"""What a client is judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from equipoise import scores
from equipoise.checks import BadInput
from equipoise.metrics import equal_opportunity_difference, statistical_parity_difference
from equipoise.scores import absolute, deviation, gap, population, rank, several
from equipoise.types import Reports

from .claims import law, reports, signed_eod, table

SCORES = (absolute, deviation, rank)
FIGURES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


def with_figures(**figures: Any) -> Reports:
    k = len(next(iter(figures.values())))
    return Reports(np.arange(k), np.zeros((k, 1)), np.ones(k), {n: np.array(v, float) for n, v in figures.items()})


def made(name: str) -> scores.Score:
    maker = getattr(scores, name)
    return gap(equal_opportunity_difference) if maker is gap else maker("trace")  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", scores.__all__)
@law(values=FIGURES)
def test_in_the_unit_interval_in_order_and_without_a_trace(name: str, values: list[float]) -> None:
    k = len(values)
    unit = (np.tanh(np.array(values)) + 1) / 2
    counts = np.array([table(g) for g in unit])
    r = Reports(np.arange(k), np.zeros((k, 1)), np.ones(k), {"trace": np.array(values)}, {"trained": counts})
    before = counts.copy(), np.array(values)
    s = made(name)(r)
    assert s.shape == (k,)
    assert ((s >= 0) & (s <= 1)).all()
    np.testing.assert_array_equal(r.counts["trained"], before[0])
    np.testing.assert_array_equal(r.figures["trace"], before[1])
    turned = Reports(r.clients, r.updates, r.sizes, {"trace": r.figures["trace"][::-1]}, {"trained": counts[::-1]})
    np.testing.assert_allclose(made(name)(turned), s[::-1], atol=1e-12)


def test_gap_reads_the_moment_it_names() -> None:
    r = reports([0.3, -0.5, None], moment="trained")
    np.testing.assert_allclose(gap(signed_eod)(r), [0.3, 0.5, np.nan])
    np.testing.assert_allclose(gap(equal_opportunity_difference)(r), [0.3, 0.5, np.nan])
    with pytest.raises(BadInput, match="'received'"):
        gap(signed_eod, "received")(r)


def test_undefined_is_per_metric() -> None:
    r = reports([None], tables=[np.array([[1, 0, 0, 1], [0, 1, 1, 0]])], moment="trained")
    assert np.isnan(gap(equal_opportunity_difference)(r)).all()
    assert gap(statistical_parity_difference)(r)[0] == 0


def test_deviation_is_two_sided_and_rank_is_not() -> None:
    r = with_figures(trace=[0.0, 10.0, 10.0, 10.0])
    np.testing.assert_allclose(deviation("trace")(r), [1, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(rank("trace")(r), [1 / 4, 3 / 4, 3 / 4, 3 / 4])


def test_deviation_where_it_degenerates() -> None:
    np.testing.assert_array_equal(deviation("trace")(with_figures(trace=[7, 7, 7])), 0.5)
    np.testing.assert_array_equal(deviation("trace")(with_figures(trace=[7, 9])), 1)
    assert np.isnan(deviation("trace")(with_figures(trace=[7]))).all()
    odd = deviation("trace")(with_figures(trace=[1, np.nan, 2, np.inf]))
    np.testing.assert_array_equal(odd, [1, np.nan, 1, np.nan])
    assert np.isfinite(deviation("trace")(with_figures(trace=[1e308, -1e308, 0]))).all()


@pytest.mark.parametrize("make", [deviation, rank])
def test_the_relative_scores_against_one_client_after_another(make: Any) -> None:
    """The definitions in plain words, with negative figures among them."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        v = np.round(rng.normal(size=rng.integers(2, 9)), 1)
        k = len(v)
        if make is deviation:
            mean = [sum(abs(a - b) for b in v) / (k - 1) for a in v]
            right = [r / max(mean) if max(mean) > 0 else 0.5 for r in mean]
        else:
            places = sorted(v)
            right = [np.mean([i + 1 for i, b in enumerate(places) if a == b]) / k for a in v]
        np.testing.assert_allclose(make("trace")(with_figures(trace=v)), right)


def test_rank_where_it_degenerates() -> None:
    np.testing.assert_array_equal(rank("trace")(with_figures(trace=[7, 7, 7])), 2 / 3)
    np.testing.assert_array_equal(rank("trace")(with_figures(trace=[-7, -9])), [1, 0.5])
    assert np.isnan(rank("trace")(with_figures(trace=[7]))).all()
    np.testing.assert_array_equal(rank("trace")(with_figures(trace=[1, np.nan, 2, np.inf])), [0.5, np.nan, 1, np.nan])
    assert np.isnan(rank("trace")(with_figures(trace=[np.nan, np.nan]))).all()


def test_absolute_is_a_share_of_a_fixed_constant() -> None:
    s = absolute("trace", constant=2.0)
    np.testing.assert_allclose(s(with_figures(trace=[-3, 0, 2, 6, np.nan])), [0, 0, 1 / 2, 3 / 4, np.nan])
    np.testing.assert_array_equal(s(with_figures(trace=[2])), 0.5)
    np.testing.assert_array_equal(s(with_figures(trace=[1e308, -1e308])), [1, 0])
    assert absolute("trace", constant=1e-300)(with_figures(trace=[1e300]))[0] == 1
    both = absolute("eigenvalue", "trace", constant=2.0)
    np.testing.assert_allclose(both(with_figures(eigenvalue=[2.0, 2.0], trace=[6.0, np.nan])), [5 / 8, np.nan])


@pytest.mark.parametrize("constant", [0.0, -1.0, np.nan, np.inf])
def test_absolute_needs_a_constant_above_0(constant: float) -> None:
    with pytest.raises(BadInput, match="constant must be above 0"):
        absolute("trace", constant=constant)


@law(FIGURES, st.floats(-1e300, 1e300))
def test_nobody_moves_anybody_elses_absolute_score(values: list[float], claimed: float) -> None:
    before = absolute("trace")(with_figures(trace=values))
    after = absolute("trace")(with_figures(trace=[*values[:-1], claimed]))
    np.testing.assert_array_equal(after[:-1], before[:-1])
    assert np.sign(after[-1] - before[-1]) in (0, np.sign(claimed - values[-1]))


def test_what_a_liar_does_to_everybody() -> None:
    """Five clients, the last of which sends what is not so; its honest figure would be the largest."""
    honest = [1.0, 2.0, 3.0, 4.0, 9.0]
    huge, median, flat = ([*honest[:-1], lie] for lie in (1e12, np.median(honest[:-1]), 0.0))
    of = {make: [make("trace")(with_figures(trace=v)) for v in (honest, huge, median, flat)] for make in SCORES}
    truth, by_huge, by_median, by_flat = of[deviation]
    assert truth.argmax() == 4
    np.testing.assert_allclose(by_huge, [1 / 4, 1 / 4, 1 / 4, 1 / 4, 1], atol=1e-6)  # nobody is told apart any more
    assert by_median.argmin() == 4 and by_median[0] == by_median[3] == 1  # the honest ends are now the worst
    assert by_flat[4] == 1  # two-sided: to claim to be flat does not help
    truth, by_huge, by_median, by_flat = of[rank]
    np.testing.assert_array_equal(by_huge, truth)  # a rank knows no size
    np.testing.assert_allclose(by_median, [0.2, 0.4, 0.8, 1, 0.6])
    assert by_flat.argmin() == 4 and (by_flat[:4] - truth[:4] == pytest.approx(1 / 5))
    truth, *lies = of[absolute]
    for s in lies:
        np.testing.assert_array_equal(s[:4], truth[:4])
    assert lies[0][4] > truth[4] > lies[1][4] > lies[2][4] == 0


@law(FIGURES, st.floats(0.1, 10), st.floats(-100, 100))
def test_deviation_knows_no_unit(values: list[float], scale: float, shift: float) -> None:
    v = np.round(values, 3)
    first = deviation("trace")(with_figures(trace=v))
    np.testing.assert_allclose(deviation("trace")(with_figures(trace=scale * v + shift)), first, atol=1e-4)


def test_several_scores_stand_side_by_side() -> None:
    r = with_figures(trace=[1.0, 2.0], loss=[5.0, 1.0])
    np.testing.assert_array_equal(several(rank("trace"), rank("loss"))(r), [[0.5, 1], [1, 0.5]])


@pytest.mark.parametrize("make", [*SCORES, several])
def test_a_score_of_nothing_is_refused(make: Any) -> None:
    with pytest.raises(BadInput, match="pass at least one"):
        make()


def test_a_figure_that_was_not_sent_is_named() -> None:
    with pytest.raises(BadInput, match="'eigenvalue'"):
        deviation("eigenvalue")(with_figures(trace=[1.0]))


def test_counterexample_49_of_50() -> None:
    """Every client is perfectly fair by itself, and the federation is not."""
    one = [[99, 0, 0, 0], [1, 0, 0, 0]]
    other = [[0, 0, 0, 1], [0, 0, 0, 99]]
    r = reports([0, 0], tables=[np.array(one), np.array(other)])
    np.testing.assert_array_equal(gap(equal_opportunity_difference, "received")(r), [0, 0])
    assert population(equal_opportunity_difference)(r) == pytest.approx(49 / 50)
    assert population(signed_eod)(r) == pytest.approx(49 / 50)
    assert population(equal_opportunity_difference, statistic="mean")(r) == 0


def test_population_of_the_defined() -> None:
    r = reports([0.2, None, -0.6], [100, 500, 300])
    assert population(signed_eod, statistic="mean")(r) == pytest.approx((0.2 * 100 + 0.6 * 300) / 400)
    assert np.isnan(population(signed_eod, statistic="mean")(reports([None, None])))
    with pytest.raises(BadInput, match="statistic 'media' is unknown"):
        population(signed_eod, statistic="media")
