"""Membership inference: brute force over thresholds, scikit-learn, ties, planted members, and what is undefined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.attacks.inference import advantage, auc, decisions, loss_scores, membership, roc, tpr_at
from equipoise.checks import BadInput

sklearn_metrics = pytest.importorskip("sklearn.metrics")
NAN, INF = float("nan"), float("inf")


@st.composite
def attacks(draw, least=0):
    """Scores with many ties, and members; ``least`` of each kind."""
    n = draw(st.integers(2 * least, 12))
    member = np.array(
        [1] * least
        + [0] * least
        + draw(st.lists(st.sampled_from([0, 1]), min_size=n - 2 * least, max_size=n - 2 * least)),
        int,
    )
    score = draw(hnp.arrays(np.float64, len(member), elements=st.sampled_from([-INF, -1.0, 0.0, 0.5, 2.0, INF])))
    return score, member


def test_h20_membership_inference(handed):
    case, expected = handed["h20"]["input"], handed["h20"]["expected"]
    score, member = np.array(case["score"]), np.array(case["member"])
    leak = membership(score, member).overall
    assert auc(score, member) == leak.auc == expected["auc"]
    assert advantage(score, member) == leak.advantage == expected["advantage_max_tpr_minus_fpr"]
    assert leak.best_accuracy == expected["best_accuracy"]
    assert leak.majority_baseline == expected["majority_baseline"]
    assert leak.best_balanced_accuracy == expected["best_balanced_accuracy"]


@given(attacks(least=1))
def test_every_figure_is_what_trying_all_thresholds_gives(attack):
    score, member = attack
    yes, no = score[member == 1], score[member == 0]
    said = [score >= t for t in score] + [np.zeros(len(score), bool)]
    tpr, fpr = (np.array([s[member == kind].mean() for s in said]) for kind in (1, 0))
    leak = membership(score, member).overall
    assert leak.auc == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a in yes for b in no]))
    assert leak.advantage == pytest.approx((tpr - fpr).max())
    assert leak.best_accuracy == pytest.approx(max((s == member).mean() for s in said))
    assert leak.best_balanced_accuracy == pytest.approx(((tpr + 1 - fpr) / 2).max())
    assert leak.majority_baseline == max(len(yes), len(no)) / len(score)
    assert (leak.members, leak.others) == (len(yes), len(no))
    for target in (0.0, 0.25, 0.5, 1.0):
        assert tpr_at(score, member, target) == pytest.approx(tpr[fpr <= target].max())
    assert leak.tpr_at_1 == pytest.approx(tpr[fpr <= 0.01].max())
    assert {*zip(*roc(score, member), strict=True)} == {*zip(fpr, tpr, strict=True)}


def test_auc_agrees_with_scikit_learn():
    random = np.random.default_rng(2)
    for step in (1.0, 0.2, 1e-6):
        member = random.integers(0, 2, 500)
        score = np.round((random.normal(size=500) + member) / step) * step
        assert auc(score, member) == pytest.approx(sklearn_metrics.roc_auc_score(member, score), abs=1e-12)


@given(attacks(), st.data())
def test_order_and_scale_change_nothing_and_a_turned_score_turns_the_figure(attack, data):
    score, member = attack
    at = data.draw(st.permutations(range(len(score))))
    leak = membership(score, member).overall
    np.testing.assert_array_equal(membership(score[at], member[at]).overall, leak)
    np.testing.assert_array_equal(membership(2 * score + 8, member).overall, leak)
    np.testing.assert_allclose(auc(-score, member), 1 - leak.auc)


def test_planted_members_are_found_and_noise_tells_nothing():
    random = np.random.default_rng(3)
    member = np.repeat([1, 0], 2000)
    found = membership(member + 0.1 * random.random(4000), member).overall
    assert (found.auc, found.tpr_at_1, found.tpr_at_01, found.advantage, found.best_accuracy) == (1, 1, 1, 1, 1)
    turned = membership(-1.0 * member, member).overall
    assert (turned.auc, turned.tpr_at_1, turned.advantage, turned.best_accuracy) == (0, 0, 0, 0.5)
    noise = membership(random.random(4000), member).overall
    assert noise.auc == pytest.approx(0.5, abs=4 * np.sqrt(4001 / (12 * 2000 * 2000)))
    assert noise.tpr_at_1 == pytest.approx(0.01, abs=0.01)
    assert 0 <= noise.advantage < 0.06


def test_false_alarms_are_counted_and_never_interpolated():
    score = np.concatenate([np.arange(1000.0), [999.5, 998.5, 997.5, 0.5]])
    member = np.array([0] * 1000 + [1] * 4)
    # Above 999.5: nobody. 999.5 itself: no false alarm. 998.5 costs one in a thousand, 997.5 two.
    assert tpr_at(score, member, 0.0) == 0.25
    assert tpr_at(score, member, 0.001) == 0.5
    assert tpr_at(score, member, 0.00199) == 0.5
    assert tpr_at(score, member, 0.01) == 0.75
    assert tpr_at([1.0, 1.0], [1, 0], 0.5) == 0.0  # the tie is one step


@pytest.mark.parametrize("member", [[1, 1, 1], [0, 0, 0], []])
def test_one_kind_only_is_undefined(member):
    score = np.arange(len(member), dtype=float)
    leak = membership(score, member).overall
    assert np.isnan(leak[:7]).all()
    assert (leak.members, leak.others) == (sum(member), len(member) - sum(member))
    assert np.isnan([auc(score, member), tpr_at(score, member, 0.1), advantage(score, member)]).all()


def test_records_without_a_score_are_left_out_and_counted_out():
    with_gaps = membership([0.9, NAN, 0.1, 0.5, NAN], [1, 1, 0, 1, 0]).overall
    assert with_gaps == membership([0.9, 0.1, 0.5], [1, 0, 1]).overall
    assert (with_gaps.members, with_gaps.others) == (2, 1)
    assert np.isnan(membership([NAN, NAN], [1, 0]).overall.auc)


def test_clients_and_groups_are_judged_on_their_own_rows():
    random = np.random.default_rng(4)
    score, member = random.random(60), random.integers(0, 2, 60)
    client, group = random.choice([3, 8], 60), random.integers(0, 3, 60)
    found = membership(score, member, client, group)
    assert list(found.clients) == [3, 8]
    assert list(found.groups) == [0, 1, 2]
    for part, at in ((found.clients[8], client == 8), (found.groups[2], group == 2)):
        assert part == membership(score[at], member[at]).overall
    assert membership(score, member).clients == membership(score, member).groups == {}


def test_a_fixed_threshold_is_a_table_of_counts():
    losses, member = np.array([0.1, 0.2, 0.9, 0.2, 1.5, 2.0]), np.array([1, 1, 1, 0, 0, 0])
    tau = losses[member == 1].mean()
    got = decisions(loss_scores(losses), member, threshold=-tau)
    assert (got.tpr, got.fpr, got.precision, got.accuracy) == pytest.approx((2 / 3, 1 / 3, 2 / 3, 4 / 6))
    assert got.advantage == pytest.approx(1 / 3)
    assert (got.majority_baseline, got.members, got.others) == (0.5, 3, 3)
    assert decisions([0.5], [1], threshold=0.5).tpr == 1.0  # at the threshold is a member
    assert decisions([0.1, 0.9], [1, 0], threshold=0.5).advantage == -1.0


def test_a_threshold_or_a_score_that_does_not_exist_decides_nothing():
    nothing = decisions([0.1, 0.9], [1, 0], threshold=NAN)
    assert np.isnan(nothing[1:7]).all()
    assert (nothing.members, nothing.others) == (0, 0)
    assert decisions([0.1, NAN, 0.9], [1, 0, 0], threshold=0.5).others == 1
    assert np.isnan(decisions([0.1, 0.2], [1, 0], threshold=0.5).precision)  # nobody is called a member


@given(attacks(least=1), st.sampled_from([-1.0, 0.0, 0.7]))
def test_no_fixed_threshold_beats_the_best_one(attack, threshold):
    score, member = attack
    fixed, best = decisions(score, member, threshold), membership(score, member).overall
    assert fixed.advantage <= best.advantage + 1e-12
    assert fixed.accuracy <= best.best_accuracy + 1e-12


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: auc([[0.1]], [1]), r"score has shape \(1, 1\)"),
        (lambda: auc([0.1, 0.2], [1]), "lengths differ: score has 2, member has 1"),
        (lambda: auc([0.1, 0.2], [1, 2]), "member must hold 1 .* and 0"),
        (lambda: auc([0.1, 0.2], [1, NAN]), "member must hold 1 .* and 0"),
        (lambda: tpr_at([0.1, 0.2], [1, 0], 1.5), r"fpr must lie in 0\.\.1, got 1\.5"),
        (lambda: membership([0.1, 0.2], [1, 0], client=[1]), "lengths differ: score has 2, client has 1"),
        (lambda: membership([0.1, 0.2], [1, 0], group=["a", "b"]), "group holds <U1 values"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(BadInput, match=says):
        call()
