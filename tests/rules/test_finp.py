"""FinP's loop on the server: figures in, weights and rho out; the authors' mix-up, and what a liar makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from equipoise import robust as robust_rules
from equipoise import weights
from equipoise.aggregate import misassigned, robust, telling, weighted
from equipoise.checks import BadInput
from equipoise.metrics import equal_opportunity_difference
from equipoise.scores import absolute, deviation, gap, rank, several
from equipoise.types import Aggregator, Reports

from .claims import reports

EOD = gap(equal_opportunity_difference, "received")


def figures(values: Any, clients: Any = None) -> Reports:
    k = len(values)
    ids = np.arange(k) if clients is None else np.array(clients)
    return Reports(ids, np.eye(k), np.ones(k), {"trace": np.array(values, float)})


def test_the_published_order_of_the_first_round() -> None:
    """Ten clients and seed 42, as in FinP's artifact: client i is judged by the figures of client order[i]."""
    order = [2, 9, 1, 6, 3, 8, 5, 7, 4, 0]
    r = figures(np.random.default_rng(0).random(10))
    judge = deviation("trace")
    right = weighted(weights.ala, judge, asks=["trace"])
    mixed = misassigned(telling(right, "rho", judge, first=0.5, asks=["trace"]), seed=42)
    _, info, state = mixed.step(r, mixed.init())
    np.testing.assert_allclose(info["scores"], judge(r)[order], rtol=1e-12)
    np.testing.assert_array_equal(mixed.tell(state, np.arange(10))["rho"], info["scores"])
    np.testing.assert_allclose(info["weights"], right.step(r, right.init())[1]["weights"][order])
    assert info["note"] == "every client was judged by the figures of another, for reproduction only"
    assert mixed.asks == {"trace"}


def test_every_round_is_mixed_up_anew_and_a_resumed_one_the_same() -> None:
    mixed = misassigned(weighted(weights.ala, deviation("trace"), asks=["trace"]), seed=3)
    r, state, seen = figures([1, 2, 4, 8, 16, 32]), mixed.init(), []
    for _ in range(4):
        _, info, state = mixed.step(r, state)
        seen.append(tuple(info["scores"]))
    assert len(set(seen)) == 4
    np.testing.assert_allclose(np.sort(seen, 1), np.sort(seen[:1] * 4, 1))
    assert state["rounds"] == 4
    np.testing.assert_array_equal(mixed.step(r, {**state, "rounds": 2})[1]["scores"], seen[2])


def test_mixing_up_leaves_counts_and_updates_alone() -> None:
    r = reports([0.9, 0.1, None, -0.4], [100, 50, 30, 5])
    plain = weighted(weights.fairis_n, EOD, asks=["received"])
    mixed = misassigned(plain, seed=1)
    delta, info, _ = mixed.step(r, mixed.init())
    right, expected, _ = plain.step(r, plain.init())
    np.testing.assert_array_equal(delta, right)
    assert info["fallbacks"] == expected["fallbacks"]
    with pytest.raises(BadInput, match="Krum needs"):
        misassigned(robust(robust_rules.krum, f=1), seed=1).check(3)


def test_rho_belongs_to_a_client_id() -> None:
    """Whatever other clients are there, and in whatever order replies came, a client is told its own figure."""
    told = telling(weighted(weights.uniform), "rho", deviation("trace"), first=0.5, asks=["trace"])
    _, _, state = told.step(figures([1, 2, 6], clients=[3, 8, 20]), told.init())
    np.testing.assert_allclose(told.tell(state, np.array([20, 5, 3]))["rho"], [1, 0.5, 2 / 3])
    _, _, state = told.step(figures([9, np.nan, 5, 8], clients=[3, 8, 9, 11]), state)  # 20 is absent, 8 sends nothing
    np.testing.assert_allclose(told.tell(state, np.array([8, 20]))["rho"], [5 / 9, 1])


# FinP meets a liar

HONEST = np.array([1.0, 2.0, 3.0, 4.0, 9.0])
LIES = {"huge": 1e12, "median": np.median(HONEST[:-1])}


@pytest.mark.parametrize("make", [deviation, rank, absolute])
def test_what_a_liar_makes_of_the_weights(make: Any) -> None:
    """The last of five clients has the sharpest loss, and either says so, or claims a huge or the median figure."""
    ala = weighted(weights.ala, make("trace"), asks=["trace"])
    soft = weighted(weights.joint, make("trace"), asks=["trace"], eta=1.5)

    def shares(rule: Aggregator, last: float) -> Any:
        return rule.step(figures([*HONEST[:-1], last]), rule.init())[1]["weights"]

    truth, huge, median = (shares(ala, v) for v in (HONEST[-1], LIES["huge"], LIES["median"]))
    assert truth.argmin() == 4
    assert median[4] > truth[4]  # who claims what everybody has gains
    if make is deviation:
        np.testing.assert_allclose(huge, [1 / 4, 1 / 4, 1 / 4, 1 / 4, 0], atol=1e-9)  # nobody else is told apart
        assert median.argmax() == 4 and median[4] > 1 / 5
        assert median[[0, 3]].tolist() == [0, 0]  # and two honest clients are silenced
    else:  # nobody's standing among the honest is changed by more than a place, or at all
        np.testing.assert_allclose(huge[:4] / huge[:4].sum(), truth[:4] / truth[:4].sum(), atol=1e-9)
    for last in (HONEST[-1], *LIES.values()):
        assert (shares(soft, last) > 0).all()  # with eta above 1 no client is silenced
    if make is absolute:
        np.testing.assert_allclose(median[:4] / median[:4].sum(), truth[:4] / truth[:4].sum())


def test_ala_and_the_same_rule_with_a_larger_eta() -> None:
    """FinP's rule is the family's member with eta = 1; above 1 the worst client keeps a share, the same order stays."""
    r = figures(HONEST)
    ala, soft = (
        weighted(rule, deviation("trace"), asks=["trace"], **eta).step(r, {"scores": {}})[1]["weights"]
        for rule, eta in ((weights.ala, {}), (weights.fairis, {"eta": 1.25}))
    )
    assert ala[4] == 0 and soft[4] == pytest.approx(0.25 / (1.25 * 5 - deviation("trace")(r).sum()))
    np.testing.assert_array_equal(np.argsort(ala), np.argsort(soft))


def test_what_one_score_asks_for_is_asked_once() -> None:
    judge = deviation("eigenvalue", "trace")
    rule = weighted(weights.joint, several(EOD, judge), asks=["received", "eigenvalue", "trace"])
    assert telling(rule, "rho", judge, first=0.5, asks=("eigenvalue", "trace")).asks == {
        "received",
        "eigenvalue",
        "trace",
    }
