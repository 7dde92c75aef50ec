"""Source inference: brute force, ties, order, planted sources, the loss matrix, and which records are attacked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.attacks.inference import (
    credits,
    exposure,
    loss_dispersion,
    loss_matrix,
    source_inference,
    targets,
)
from equipoise.checks import BadInput
from equipoise.metrics import dispersion

NAN, INF = float("nan"), float("inf")


@st.composite
def worlds(draw):
    """Losses with many ties and some that are not finite, and an owner for each record."""
    n, k = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    losses = draw(hnp.arrays(np.float64, (n, k), elements=st.sampled_from([0.0, 1.0, 2.0, INF, NAN])))
    return losses, draw(hnp.arrays(np.int64, n, elements=st.integers(0, k - 1)))


def test_h19_source_inference(handed):
    for case, expected in zip(handed["h19"]["input"]["cases"], handed["h19"]["expected"]["cases"], strict=True):
        losses, owner = np.array(case["loss_of_client_model_on_record"]), np.array(case["true_owner"])
        found = exposure(losses, owner)
        per_client = [expected["per_client"][str(k)] for k in range(3)]
        assert source_inference(losses, owner) == pytest.approx(per_client)
        assert found.success == pytest.approx(per_client)
        assert (found.overall, found.chance) == pytest.approx((expected["overall"], expected["chance"]))


@given(worlds())
def test_success_is_what_counting_by_hand_gives(world):
    losses, owner = world
    hits = [[] for _ in range(losses.shape[1])]
    for row, mine in zip(losses.tolist(), owner.tolist(), strict=True):
        least = min([x for x in row if x < INF], default=INF)
        accused = [k for k, x in enumerate(row) if x == least or not least < INF]
        hits[mine].append((mine in accused) / len(accused))
    expected = [np.mean(h) if h else NAN for h in hits]
    np.testing.assert_allclose(source_inference(losses, owner), expected)
    np.testing.assert_allclose(exposure(losses, owner).overall, np.mean([h for own in hits for h in own]))


@given(worlds(), st.data())
def test_neither_the_order_of_records_nor_that_of_clients_matters(world, data):
    losses, owner = world
    n, k = losses.shape
    rows = data.draw(st.permutations(range(n)))
    np.testing.assert_array_equal(credits(losses[rows], owner[rows]), credits(losses, owner)[rows])
    columns = np.array(data.draw(st.permutations(range(k))))
    np.testing.assert_allclose(
        source_inference(losses[:, columns], owner, clients=columns), source_inference(losses, owner)[columns]
    )


@given(worlds())
def test_what_all_models_share_changes_nothing(world):
    losses, owner = world
    harder = 4.0 * np.arange(len(losses))[:, None]
    np.testing.assert_array_equal(credits(losses + harder, owner), credits(losses, owner))


def test_a_planted_source_is_found_and_noise_is_not():
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(5), 400)
    noise = random.exponential(size=(2000, 5))
    success = source_inference(noise, owner)
    assert np.abs(success - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 400)
    planted = noise.copy()
    at = owner == 3
    planted[at, 3] = -1.0
    assert source_inference(planted, owner)[3] == 1.0
    assert source_inference(planted, owner)[:3] == pytest.approx(success[:3])
    assert dispersion(source_inference(planted, owner)).worst == 1.0


def test_a_model_that_says_nothing_accuses_nobody():
    losses = np.array([[NAN, 5.0], [0.1, NAN], [NAN, NAN], [INF, NAN]])
    assert credits(losses, [0, 0, 0, 1]).tolist() == [0.0, 1.0, 0.5, 0.5]


def test_clients_are_known_by_id_in_any_order():
    assert credits([[0.1, 0.5, 0.9]], [7], clients=[7, 3, 9]).tolist() == [1.0]
    assert exposure([[0.1, 0.5, 0.9]], [9], clients=[7, 3, 9]).targets[:, 0].tolist() == [0, 0, 1]


def test_groups_add_up_to_clients_and_the_unseen_is_undefined():
    losses = [[0.1, 0.5], [0.5, 0.1], [0.1, 0.5], [0.1, 0.1]]
    found = exposure(losses, [0, 0, 0, 0], group=[0, 1, 1, 0], groups=3)
    assert found.credit.tolist() == [[1.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(found.success, [2.5 / 4, NAN])
    np.testing.assert_array_equal(found.by_group, [0.75, 0.5, NAN])
    np.testing.assert_array_equal(found.by_client_and_group, [[0.75, 0.5, NAN], [NAN, NAN, NAN]])
    assert exposure(np.zeros((0, 2)), []).chance == 0.5
    assert np.isnan(exposure(np.zeros((0, 2)), []).overall)


def test_the_loss_matrix_is_a_mean_per_owner_and_model():
    random = np.random.default_rng(1)
    losses, owner = random.exponential(size=(30, 4)), random.integers(0, 3, 30)  # client 3 has no targets
    got = loss_matrix(losses, owner)
    for i in range(3):
        np.testing.assert_allclose(got[i], losses[owner == i].mean(0))
    assert np.isnan(got[3]).all()
    losses[owner == 1, 2] = INF
    assert np.isnan(loss_matrix(losses, owner)[1]).tolist() == [False, False, True, False]


def test_loss_fairness_is_the_index_of_the_mean_variation():
    matrix = np.array([[0.1, 0.3, 0.5], [0.2, 0.2, 0.2], [1.0, 0.5, 3.0]])
    cov = np.mean([np.std(row) / np.mean(row) for row in matrix])
    mad = np.mean([np.abs(row[:, None] - row).sum() / 9 for row in matrix])
    got = loss_dispersion(matrix)
    assert (got.cov, got.fi, got.mad, got.mean) == pytest.approx((cov, 1 / (1 + cov**2), mad, matrix.mean()))
    mean_of_indices = np.mean([1 / (1 + (np.std(row) / np.mean(row)) ** 2) for row in matrix])
    assert abs(got.fi - mean_of_indices) > 0.01


def test_a_row_of_zeros_has_no_variation_and_is_counted_out():
    got = loss_dispersion([[0.0, 0.0], [0.1, 0.3]])
    assert (got.cov, got.clients) == (pytest.approx(0.5), 1)
    nothing = loss_dispersion([[0.0, 0.0], [0.0, 0.0]])
    assert np.isnan([nothing.cov, nothing.fi]).all()
    assert (nothing.mad, nothing.mean, nothing.clients) == (0.0, 0.0, 0)
    assert np.isnan(loss_dispersion([[0.4]]).mad)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 30), st.integers(0, 5))
def test_targets_are_training_rows_without_repetition(sizes, most, seed):
    smallest = min((s for s in sizes if s), default=0)
    for even in (True, False):
        for rows, size in zip(targets(sizes, seed=seed, per_client=most, even=even), sizes, strict=True):
            assert len(set(rows.tolist())) == len(rows) == min(most, size, smallest if even else size)
            assert ((rows >= 0) & (rows < size)).all()
            assert (np.diff(rows) > 0).all()


def test_targets_belong_to_the_seed_and_the_client_only():
    alone = targets([50], seed=1, clients=[7], per_client=10)[0]
    beside = targets([90, 50], seed=1, clients=[2, 7], per_client=10)
    np.testing.assert_array_equal(alone, beside[1])
    assert set(alone.tolist()) < set(targets([50], seed=1, clients=[7], per_client=20)[0].tolist())
    assert alone.tolist() != targets([50], seed=2, clients=[7], per_client=10)[0].tolist()
    assert alone.tolist() != targets([50], seed=1, clients=[8], per_client=10)[0].tolist()


def test_the_authors_choice_draws_rows_never_trained_on():
    (rows,) = targets([80], seed=0, per_client=100, held=[20])
    assert rows.tolist() == list(range(100))
    drawn = np.concatenate([targets([80], seed=s, per_client=10, held=[20])[0] for s in range(300)])
    assert (drawn >= 80).mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / 3000))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: source_inference([0.1, 0.2], [0, 1]), r"losses have shape \(2,\)"),
        (lambda: source_inference([[0.1, 0.2]], [0, 1]), "lengths differ: losses has 1, owner has 2"),
        (lambda: source_inference([[0.1, 0.2]], [2]), "owner 2 of record 0 is none of the clients"),
        (lambda: source_inference([[0.1, 0.2]], [-1]), "owner -1 of record 0 is none of the clients"),
        (lambda: source_inference([[0.1, 0.2]], [3], clients=[3, 3]), r"each of the 2 columns .* once, got \[3, 3\]"),
        (lambda: exposure([[0.1, 0.2]], [0], group=[1]), r"group must hold integers in 0\.\.0"),
        (lambda: loss_dispersion([0.1, 0.2]), r"loss matrix has shape \(2,\)"),
        (lambda: targets([3], seed=0, per_client=0), "per_client must be above 0"),
        (lambda: targets([3, -1], seed=0), "a client has -1 rows"),
        (lambda: targets([3], seed=0, held=[-2]), "a client has -2 rows"),
        (lambda: targets([3], seed=0, clients=[1, 2]), "lengths differ"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(BadInput, match=says):
        call()
