"""What a client is judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from equipoise import scores
from equipoise.checks import BadInput
from equipoise.metrics import equal_opportunity_difference, statistical_parity_difference
from equipoise.scores import deviation, gap, population, rank, several
from equipoise.types import Reports

from .claims import law, reports, signed_eod, table

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


def test_one_liar_pushes_the_others_down() -> None:
    s = deviation("trace")(with_figures(trace=[1.0, 2.0, 3.0, 4.0, 1e12]))
    np.testing.assert_allclose(s, [1 / 4, 1 / 4, 1 / 4, 1 / 4, 1], atol=1e-6)


@law(FIGURES, st.floats(0.1, 10), st.floats(-100, 100))
def test_deviation_knows_no_unit(values: list[float], scale: float, shift: float) -> None:
    v = np.round(values, 3)
    first = deviation("trace")(with_figures(trace=v))
    np.testing.assert_allclose(deviation("trace")(with_figures(trace=scale * v + shift)), first, atol=1e-4)


def test_several_scores_stand_side_by_side() -> None:
    r = with_figures(trace=[1.0, 2.0], loss=[5.0, 1.0])
    np.testing.assert_array_equal(several(rank("trace"), rank("loss"))(r), [[0.5, 1], [1, 0.5]])


@pytest.mark.parametrize("make", [deviation, rank, several])
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
