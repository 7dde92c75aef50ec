"""One weighted sum, one clip, one policy for undefined scores, and telling."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise import robust as robust_rules
from equipoise import weights
from equipoise.aggregate import (
    _sums,
    clip_factors,
    equidistant,
    fairfed,
    mean,
    misassigned,
    norms,
    robust,
    telling,
    weighted,
)
from equipoise.checks import BadInput
from equipoise.metrics import equal_opportunity_difference
from equipoise.records import strict
from equipoise.scores import deviation, gap, several
from equipoise.types import Aggregator, Reports

from .claims import law, reports, signed_eod

EOD = gap(equal_opportunity_difference, "received")
ASKS = ("received",)


def all_aggregators(clip: float | None) -> dict[str, Aggregator]:
    several_scores = several(EOD, EOD)
    made = {
        name: weighted(getattr(weights, name), several_scores if name == "joint" else EOD, asks=ASKS, clip=clip)
        for name in weights.__all__
    }
    made |= {name: robust(getattr(robust_rules, name), clip=clip) for name in robust_rules.__all__}
    options = product(("pooled", "mean"), ("cumulative", "reset"), ("linear", "exponential"))
    made |= {
        f"fairfed {s} {t} {f}": fairfed(signed_eod, statistic=s, state=t, form=f, clip=clip) for s, t, f in options
    }
    made["fairfed without floor"] = fairfed(signed_eod, floor=False, clip=clip)
    made["equidistant"] = equidistant(clip=clip)
    made["misassigned"] = misassigned(made["fairis"], seed=1)
    made["telling"] = telling(made["fairis"], "rho", EOD, first=0.5)
    return made


NAMES = list(all_aggregators(None))
SOME = reports(
    [0.9, 0.1, None, -0.4, 0.2],
    [100, 50, 30, 5, 300],
    updates=np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32),
    clients=[2, 3, 11, 20, 100],
)


def frozen(r: Reports) -> Reports:
    for a in (r.clients, r.updates, r.sizes, *r.counts.values(), *r.figures.values()):
        a.setflags(write=False)
    return r


# Laws over every aggregator


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("clip", [None, 1.0])
def test_deterministic_and_input_untouched(name: str, clip: float | None) -> None:
    aggregator = all_aggregators(clip)[name]
    r, state = frozen(SOME), aggregator.init()
    delta, info, after = aggregator.step(r, state)
    again, info_again, after_again = aggregator.step(r, aggregator.init())
    assert delta.shape == (7,) and delta.dtype == np.float32
    np.testing.assert_array_equal(delta, again)
    assert strict(info) == strict(info_again) and after == after_again
    assert state == aggregator.init()  # a state is never written to
    strict(after)  # JSON, and no NaN in it


@pytest.mark.parametrize("name", [n for n in NAMES if "floor" not in n])
def test_weights_on_the_simplex_and_clip_bound(name: str) -> None:
    """Proposition 2: no client moves the model by more than w_k C. Without its floor FairFed is exempt by name."""
    clip = 0.5
    _, info, _ = all_aggregators(clip)[name].step(SOME, all_aggregators(clip)[name].init())
    assert (info["norms"] > clip).any() and info["clip_norm"] == clip
    np.testing.assert_array_equal(info["clipped"], info["norms"] > clip)
    if "weights" in info:
        w = info["weights"]
        assert w.sum() == pytest.approx(1) and (w >= 0).all()
        moved = w[:, None] * (SOME.updates * clip_factors(info["norms"], clip)[:, None])
        assert (norms(moved) <= info["bounds"] * (1 + 1e-6)).all()
        np.testing.assert_allclose(info["bounds"], w * clip)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_was_not_asked_for_is_read(name: str) -> None:
    aggregator = all_aggregators(None)[name]
    shown = replace(SOME, counts={m: c for m, c in SOME.counts.items() if m in aggregator.asks})
    aggregator.step(shown, aggregator.init())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in robust_rules.__all__])
def test_a_clip_that_never_binds_changes_no_bit(name: str) -> None:
    one = all_aggregators(None)[name]
    other = all_aggregators(1e6)[name]
    np.testing.assert_array_equal(one.step(SOME, one.init())[0], other.step(SOME, other.init())[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda c: weighted(weights.uniform, clip=c),
        lambda c: fairfed(signed_eod, clip=c),
        lambda c: equidistant(clip=c),
        lambda c: robust(robust_rules.krum, clip=c),
    ],
)
@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clip_must_be_a_length(make: Any, clip: float) -> None:
    with pytest.raises(BadInput, match="clip must be above 0"):
        make(clip)


# The sum, lengths, the clip


@law(hnp.arrays(np.float32, (3, 7), elements=st.floats(-1e6, 1e6, width=32)), st.integers(1, 7))
def test_bits_do_not_depend_on_the_block(updates: np.ndarray, block: int) -> None:
    w = np.array([0.1, 0.7, 0.2])
    whole = mean(w, updates)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(_sums, "BLOCK", block)
        np.testing.assert_array_equal(mean(w, updates), whole)


def test_sum_in_float64_for_float32_updates() -> None:
    updates = np.array([[1e8], [1.0], [-1e8]], np.float32)
    np.testing.assert_array_equal(mean(np.ones(3), updates), [1.0])


def test_mean_of_one_client_is_its_update() -> None:
    u = np.random.default_rng(0).normal(size=(1, 9)).astype(np.float32)
    np.testing.assert_array_equal(mean(np.ones(1), u), u[0])
    assert mean(np.ones(2), np.zeros((2, 0))).shape == (0,)


def test_norms_at_both_ends() -> None:
    np.testing.assert_allclose(norms(np.array([[0.0, 0.0], [3, 4], [3e180, 4e180]])), [0, 5, 5e180])
    assert norms(np.zeros((2, 0))).tolist() == [0, 0]


def test_inflation_is_contained_by_the_clip_only() -> None:
    """A small weight does not help against a large update; the clip does."""
    big = np.array([[1e9, 0.0], [0.0, 1.0], [0.0, 1.0]])
    r = reports([1.0, 0.0, 0.0], updates=big)
    open_, _, _ = weighted(weights.fairis, EOD, asks=ASKS).step(r, {"scores": {}})
    shut, info, _ = weighted(weights.fairis, EOD, asks=ASKS, clip=2.0).step(r, {"scores": {}})
    assert abs(open_[0]) > 1e6
    assert abs(shut[0]) <= info["bounds"][0] * (1 + 1e-12) < 0.02
    assert info["clipped"].tolist() == [True, False, False]


# What an undefined score counts as

UNDEFINED = reports([None, 0.2, 0.6], clients=[4, 7, 9])


@pytest.mark.parametrize(
    ("policy", "value", "words"),
    [
        ("neutral", 0.5, "neutral 0.5"),
        ("worst", 1.0, "worst 1"),
        ("zero", 0.0, "zero 0, for reproduction only"),
        ("previous", 0.5, "neutral 0.5"),
    ],
)
def test_policies(policy: str, value: float, words: str) -> None:
    aggregator = weighted(weights.fairis, EOD, asks=ASKS, undefined=policy)
    _, info, _ = aggregator.step(UNDEFINED, aggregator.init())
    np.testing.assert_allclose(info["scores"], [value, 0.2, 0.6])
    np.testing.assert_allclose(info["raw_scores"], [np.nan, 0.2, 0.6])
    np.testing.assert_allclose(info["weights"], weights.fairis([value, 0.2, 0.6], [1, 1, 1]))
    assert list(info["fallbacks"]) == [4]
    assert info["fallbacks"][4] == f"score undefined (no negatives in group 0, no positives in group 1): {words}"
    assert ("note" in info) == (policy == "zero")


def test_policy_error_names_the_client() -> None:
    aggregator = weighted(weights.fairis, EOD, asks=ASKS, undefined="error")
    with pytest.raises(BadInput, match=r"client 4: score undefined \(.*no positives in group 1"):
        aggregator.step(UNDEFINED, aggregator.init())
    with pytest.raises(BadInput, match="did you mean 'previous'"):
        weighted(weights.fairis, EOD, undefined="previus")


def test_previous_is_the_clients_own_last_defined_score() -> None:
    aggregator = weighted(weights.fairis, EOD, asks=ASKS, undefined="previous")
    state = aggregator.init()
    _, _, state = aggregator.step(reports([0.9, 0.1], clients=[4, 7]), state)
    _, info, state = aggregator.step(reports([0.3], clients=[7]), state)  # 4 is absent, and keeps its score
    assert info["fallbacks"] == {}
    _, info, state = aggregator.step(reports([None, None, None], clients=[4, 7, 8]), state)
    np.testing.assert_allclose(info["scores"], [0.9, 0.3, 0.5])
    assert "previous 0.9" in info["fallbacks"][4] and "neutral 0.5" in info["fallbacks"][8]
    _, info, _ = aggregator.step(reports([None, 0.2], clients=[4, 7]), state)  # a used value is not a defined one
    np.testing.assert_allclose(info["scores"], [0.9, 0.2])


def test_an_undefined_client_cannot_be_moved_by_others() -> None:
    """Neutral is a constant: what the others score does not move what an undefined client counts as."""
    aggregator = weighted(weights.fairis, EOD, asks=ASKS)
    low = aggregator.step(reports([None, 0.0]), aggregator.init())[1]["scores"][0]
    high = aggregator.step(reports([None, 1.0]), aggregator.init())[1]["scores"][0]
    assert low == high == 0.5


def test_a_claim_outside_the_interval_is_undefined_and_ends_no_run() -> None:
    aggregator = weighted(weights.fairis, lambda r: np.array([-5.0, 7.0, np.inf, 0.0]))
    _, info, _ = aggregator.step(reports([0, 0, 0, 0]), aggregator.init())
    np.testing.assert_allclose(info["scores"], [0.5, 0.5, 0.5, 0])
    assert info["fallbacks"][0] == "score -5 outside 0..1: neutral 0.5"
    assert set(info["fallbacks"]) == {0, 1, 2}


def test_no_mass_becomes_equal_and_says_so() -> None:
    aggregator = weighted(weights.ala, EOD, asks=ASKS)
    delta, info, _ = aggregator.step(reports([1.0, -1.0]), aggregator.init())
    np.testing.assert_array_equal(info["weights"], [0.5, 0.5])
    np.testing.assert_array_equal(delta, [0.5, 0.5])
    assert info["note"] == "every weight was 0/0: weighted equally"


def test_joint_takes_several_scores_and_shows_the_worst() -> None:
    r = Reports(np.arange(3), np.eye(3), np.ones(3), {"trace": np.array([1.0, 2.0, np.nan])}, UNDEFINED.counts)
    aggregator = weighted(weights.joint, several(EOD, deviation("trace")), asks=["received", "trace"],
                          undefined="previous", eta=[1.5, 2.0])  # fmt: skip
    _, info, state = aggregator.step(r, aggregator.init())
    parts = np.array([[0.5, 0.2, 0.6], [1.0, 1.0, 0.5]])
    np.testing.assert_allclose(info["score_parts"], parts)
    np.testing.assert_allclose(info["scores"], parts.max(0))
    np.testing.assert_allclose(info["weights"], weights.joint(parts, np.ones(3), eta=[1.5, 2.0]))
    assert set(info["fallbacks"]) == {0, 2}
    assert state == {"scores": {"0": [None, 1.0], "1": [0.2, 1.0], "2": [0.6, None]}}


def test_parameters_are_checked_at_set_up() -> None:
    with pytest.raises(BadInput, match="eta must be above 1"):
        weighted(weights.fairis, EOD, eta=0.9)
    with pytest.raises(BadInput, match="parameter of fairis 'etta' is unknown; did you mean 'eta'"):
        weighted(weights.fairis, EOD, etta=1.1)
    with pytest.raises(BadInput, match="parameter of krum 'keep' is unknown"):
        robust(robust_rules.krum, keep=2)
    with pytest.raises(BadInput, match=r"eta must be above 1, got 0\.5"):
        weighted(weights.joint, several(EOD, EOD), eta=[1.1, 0.5])


# Robust rules as aggregators


def test_robust_rules_say_whom_they_chose() -> None:
    r = replace(SOME, updates=np.array([[0.0], [1.0], [2.0], [10.0], [10.1]]))
    aggregator = robust(robust_rules.multi_krum, chooses=robust_rules.multi_krum_choice, f=1, keep=3)
    delta, info, _ = aggregator.step(r, aggregator.init())
    assert info["chosen"] == [2, 3, 11] and delta[0] == 1.0 and "weights" not in info
    plain, _, _ = robust(robust_rules.multi_krum, f=1, keep=3).step(r, {})
    np.testing.assert_array_equal(delta, plain)


def test_robust_checks_the_number_of_clients() -> None:
    robust(robust_rules.krum, f=1).check(5)
    with pytest.raises(BadInput, match="needs n >= 2f"):
        robust(robust_rules.krum, f=1).check(4)
    with pytest.raises(BadInput, match=r"trim must be below 0\.5"):
        robust(robust_rules.trimmed_mean, trim=0.7).check(5)


def test_robust_clips_first() -> None:
    r = replace(SOME, updates=np.array([[1.0], [1.0], [1.0], [1.0], [80.0]]))
    delta, info, _ = robust(lambda u: u.mean(0), clip=2.0).step(r, {})
    assert delta[0] == pytest.approx(6 / 5) and info["clipped"].tolist() == [False] * 4 + [True]


# Telling


def test_telling_tells_and_changes_nothing_else() -> None:
    inner = weighted(weights.uniform)
    told = telling(inner, "rho", EOD, first=0.5, asks=ASKS)
    assert told.asks == {"received"}
    state = told.init()
    np.testing.assert_array_equal(told.tell(state, np.array([4, 9]))["rho"], [0.5, 0.5])
    delta, _, state = told.step(UNDEFINED, state)
    np.testing.assert_array_equal(delta, inner.step(UNDEFINED, inner.init())[0])
    np.testing.assert_array_equal(told.tell(state, np.array([1, 4, 7, 9]))["rho"], [0.5, 0.5, 0.2, 0.6])
    _, _, state = told.step(reports([None], clients=[7]), state)
    np.testing.assert_array_equal(told.tell(state, np.array([7, 9]))["rho"], [0.2, 0.6])


def test_telling_everybody_the_same() -> None:
    told = telling(weighted(weights.uniform), "F_global", lambda r: 0.25, first=0.3, shared=True)
    outer = telling(told, "rho", EOD, first=0.5, asks=ASKS)
    state = outer.init()
    np.testing.assert_array_equal(outer.tell(state, np.array([1, 2]))["F_global"], [0.3, 0.3])
    _, _, state = outer.step(UNDEFINED, state)
    news = outer.tell(state, np.array([7, 1000]))
    np.testing.assert_array_equal(news["F_global"], [0.25, 0.25])
    np.testing.assert_array_equal(news["rho"], [0.2, 0.5])


def test_telling_keeps_the_preconditions() -> None:
    with pytest.raises(BadInput, match="Krum needs"):
        telling(robust(robust_rules.krum, f=1), "rho", EOD, first=0.5).check(3)
