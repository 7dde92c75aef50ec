"""Participation, probes of the laboratory, and equal bits whatever the company or the interruption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from equipoise.records.journal import entry, strict
from equipoise.rounds import stream
from equipoise.simulate import simulate
from equipoise.types import Array, Reports, Round, Run

from .toy import federation, learner, mean_rule


def run(name: str = "r", seed: int = 1, **changes: object) -> Run:
    observes = lambda t: frozenset({"received@test"})  # noqa: E731
    return replace(Run(name, federation(seed), mean_rule(), seed, 4, observes=observes), **changes)


def lines(rounds: list[Round], name: str) -> list[str]:
    return [strict(entry(r)) for r in rounds if r.run == name]


def go(*runs: Run, snapshots: object = None) -> list[Round]:
    return [r for step in simulate(runs, learner(), snapshots) for r in step]


def half(ids: Array, seed: int, t: int) -> Array:
    return stream(seed, "cohort", t).choice(ids, 2, replace=False)


def test_every_run_ends_with_one_closing_line_that_measures_the_final_model() -> None:
    rounds = go(run())
    assert [r.broadcast.round for r in rounds] == [1, 2, 3, 4, 5]
    assert [r.closing for r in rounds] == [False] * 4 + [True]
    assert rounds[4].broadcast.model.tolist() == rounds[3].after.model.tolist()
    assert rounds[4].measured["received@test"].shape == (4, 2, 4)
    assert not len(rounds[4].reports.clients)


def test_a_line_measures_the_model_as_received() -> None:
    first = go(run())[0].measured["received@test"]
    assert (first[..., :2] == 0).all(), "the initial model is all zeros and selects nobody"


def test_a_run_in_company_has_the_bits_of_the_run_alone() -> None:
    a, b = run("a", 1, cohort=half), run("b", 2, rounds=2)
    together = go(a, b)
    assert lines(together, "a") == lines(go(a), "a")
    assert lines(together, "b") == lines(go(b), "b")


def test_resumed_at_different_rounds_the_rest_is_equal() -> None:
    a, b = run("a", 1), run("b", 2, cohort=half)
    whole = go(a, b)
    at = {"a": next(r for r in whole if r.run == "a").after, "b": [r for r in whole if r.run == "b"][2].after}
    rest = go(a, b, snapshots=at)
    assert lines(rest, "a") == lines(whole, "a")[1:]
    assert lines(rest, "b") == lines(whole, "b")[3:]


def test_lost_has_not_trained_late_has() -> None:
    lost = lambda ids, seed, t: ids[ids == 0]  # noqa: E731
    late = lambda ids, seed, t: ids[ids == 1]  # noqa: E731
    rounds = go(run(lost=lost, late=late))
    for r in rounds[:-1]:
        assert r.info["missing"] == [0, 1]
        assert r.info["late"] == [1]
        assert r.reports.clients.tolist() == [2, 3]
        assert r.measured_clients.tolist() == [1, 2, 3]
    assert rounds[-1].after.memory["times"].tolist() == [0, 4, 4, 4]
    assert rounds[-1].after.state == {"2": 4, "3": 4}


def test_nobody_left_keeps_the_model_and_the_run_goes_on() -> None:
    gone = lambda ids, seed, t: ids if t == 2 else ids[:0]  # noqa: E731
    rounds = go(run(lost=gone))
    assert rounds[1].info["kept"] == "no valid reply"
    assert rounds[1].after.model.tolist() == rounds[0].after.model.tolist()
    assert rounds[2].after.model.tolist() != rounds[1].after.model.tolist()


def test_tampering_changes_what_is_sent_not_what_is_measured_or_remembered() -> None:
    def tamper(r: Reports, b: object) -> Reports:
        return replace(
            r,
            updates=np.where(r.clients[:, None] == 2, np.nan, r.updates),
            counts={m: 0 * c for m, c in r.counts.items()},
        )

    honest, attacked = go(run()), go(run(tamper=tamper))
    assert attacked[0].info["rejected"] == {2: "update not finite"}
    assert attacked[0].reports.counts["trained"].sum() == 0
    assert attacked[0].measured["received@test"].tolist() == honest[0].measured["received@test"].tolist()
    assert attacked[-1].after.memory["times"].tolist() == [4, 4, 4, 4]
