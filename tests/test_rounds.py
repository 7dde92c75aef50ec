"""Guarding replies, and the moves of a round, on arrays a reader can follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.checks import BadInput
from equipoise.layout import Layout
from equipoise.rounds import close_round, collect, guard, open_round, part, remember, stream
from equipoise.types import Reports, Run, Snapshot

from .toy import federation, mean_rule

ASKED = np.arange(4)


def reports(**changes: object) -> Reports:
    base = Reports(
        np.arange(3),
        np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        np.array([1.0, 2.0, 3.0]),
        {"loss": np.array([0.1, np.nan, 0.3])},
        {"trained": np.ones((3, 2, 4), np.int64)},
    )
    return replace(base, **changes)


def run(**changes: object) -> Run:
    return replace(Run("r", federation(), mean_rule(), 7, 3), **changes)


def snapshot() -> Snapshot:
    return Snapshot(0, np.zeros(2), {}, {"times": np.zeros(4, np.int64)})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_one_bad_number_goes_whole_and_is_named(bad: float) -> None:
    updates = reports().updates.copy()
    updates[1, 0] = bad
    good, rejected = guard(reports(updates=updates), ASKED, 2)
    assert rejected == {1: "update not finite"}
    assert good.clients.tolist() == [0, 2]
    assert good.figures["loss"].tolist() == [0.1, 0.3]


def test_opposite_infinities_do_not_cancel() -> None:
    updates = reports().updates.copy()
    updates[0] = [np.inf, -np.inf]
    assert guard(reports(updates=updates), ASKED, 2)[1] == {0: "update not finite"}


def test_huge_but_finite_numbers_pass() -> None:
    updates = reports().updates.copy()
    updates[0] = 1.7e308
    assert guard(reports(updates=updates), ASKED, 2)[1] == {}


def test_who_was_not_asked_or_comes_twice_is_rejected() -> None:
    good, rejected = guard(reports(clients=np.array([1, 9, 1])), ASKED, 2)
    assert rejected == {1: "client id appears twice", 9: "was not asked in this round"}
    assert not len(good.clients)


def test_sizes_and_counts_below_zero_are_rejected() -> None:
    counts = np.ones((3, 2, 4), np.int64)
    counts[2, 0, 0] = -1
    rejected = guard(reports(sizes=np.array([-1.0, np.nan, 3.0]), counts={"trained": counts}), ASKED, 2)[1]
    assert rejected == {
        0: "size -1 is not a number of rows",
        1: "size nan is not a number of rows",
        2: "a count is negative",
    }


def test_an_update_of_another_length_is_rejected() -> None:
    assert set(guard(reports(), ASKED, 3)[1].values()) == {"update has 2 numbers, expected 3"}


@given(st.permutations([0, 1, 2]))
def test_order_of_arrival_does_not_matter(order: list[int]) -> None:
    r = reports()
    shuffled = Reports(
        r.clients[order],
        r.updates[order],
        r.sizes[order],
        {"loss": r.figures["loss"][order]},
        {"trained": r.counts["trained"][order]},
    )
    assert guard(shuffled, ASKED, 2)[0].updates.tolist() == r.updates.tolist()


def test_replies_by_name_keep_integer_buffers_integers() -> None:
    layout = Layout(("w",), ((2,),))
    counter = np.array(10, np.int64)
    got, rejected = collect(
        [
            (1, {"w": np.array([5.0, 6.0]), "n": counter + 3}, 3.0),
            (0, {"w": np.array([1.0, 2.0]), "n": counter}, 1.0),
            (2, {"w": np.ones(2), "n": np.ones(1, int)}, 1.0),
        ],
        layout,
        np.ones(2),
    )
    assert got.updates.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert got.counters["n"].dtype == np.int64
    assert got.counters["n"].shape == (2,)
    assert rejected == {2: "integer buffers differ from the other clients'"}
    r = run()
    closed = close_round(r, snapshot(), open_round(r, snapshot()), got, {}, rejected=rejected)
    assert closed.after.counters["n"] == 13
    assert closed.after.counters["n"].shape == ()
    assert closed.info["rejected"] == rejected
    assert closed.info["missing"] == [3]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"updates": np.full((3, 2), np.nan)}, "no valid reply"),
        ({"sizes": np.zeros(3)}, "every client reports 0 rows"),
    ],
)
def test_a_round_without_a_usable_reply_keeps_the_model_and_says_so(changed: dict[str, object], why: str) -> None:
    r = run()
    before = replace(snapshot(), model=np.array([1.0, -1.0]))
    closed = close_round(r, before, open_round(r, before), reports(**changed), {})
    assert closed.info["kept"] == why
    assert closed.after.model.tolist() == [1.0, -1.0]
    assert closed.after.round == 1


def test_too_few_for_the_rule_keeps_the_model() -> None:
    r = run(aggregator=mean_rule(needs=4))
    closed = close_round(r, snapshot(), open_round(r, snapshot()), reports(), {})
    assert closed.info["kept"] == "the rule needs 4 clients, got 3"


def test_the_aggregator_sees_what_it_asked_for_and_nothing_else() -> None:
    seen = []
    rule = mean_rule()

    def step(r: Reports, state: object) -> object:
        seen.append((set(r.counts), set(r.figures)))
        return rule.step(r, state)

    r = run(aggregator=rule._replace(step=step))
    more = reports(counts={"trained": np.ones((3, 2, 4), np.int64), "received@test": np.ones((3, 2, 4), np.int64)})
    close_round(r, snapshot(), open_round(r, snapshot()), more, {})
    assert seen == [({"trained"}, set())]


def test_bad_input_inside_a_step_is_not_swallowed() -> None:
    def step(r: Reports, state: object) -> object:
        raise BadInput("the score of client 1 is undefined")

    r = run(aggregator=mean_rule()._replace(step=step))
    with pytest.raises(BadInput, match="client 1"):
        close_round(r, snapshot(), open_round(r, snapshot()), reports(), {})


def test_streams_belong_to_their_key_and_leave_the_global_generator_alone() -> None:
    state = np.random.get_state()[1].tolist()  # noqa: NPY002 (what is shown is that nobody uses it)
    draws = {stream(s, p, t, c).integers(2**60) for s in (0, 1) for p in ("a", "b") for t in (0, 1) for c in (0, 1)}
    assert len(draws) == 16
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def test_a_part_of_a_federation_keeps_rows_terms_and_views_together() -> None:
    fed = replace(federation(), terms={"ce": np.arange(4.0)})
    two = part(fed, np.array([1, 3]))
    assert two.terms["ce"].tolist() == [1.0, 3.0]
    assert two.shards[1] is fed.shards[3]
    assert len(two.views["test"]) == 2


def test_memories_return_to_their_places() -> None:
    r = run()
    memory = remember(r, snapshot(), np.array([1, 3]), {"times": np.array([5, 6])})
    assert memory["times"].tolist() == [0, 5, 0, 6]
