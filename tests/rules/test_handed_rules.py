"""Cases h09 to h14, h16 and h17 through the guarded path that every driver takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from equipoise import weights
from equipoise.aggregate import fairfed, fairfed_gaps, fairfed_step, robust, weighted
from equipoise.checks import BadInput
from equipoise.layout import Layout
from equipoise.robust import krum, krum_choice, krum_scores, trimmed_mean
from equipoise.rounds import close_round, collect, guard, open_round
from equipoise.scores import deviation
from equipoise.types import Aggregator, Array, Federation, Reports, Round, Run, Snapshot

from .claims import reports, signed_eod, table

Handed = dict[str, dict[str, Any]]


def closed(aggregator: Aggregator, replies: Any, layout: Layout, clients: int, counters: Any = None) -> Round:
    """One round on a zero model: (client, named arrays, size) in, the round out."""
    federation = Federation(np.arange(clients), [], {}, 2)
    run = Run("handed", federation, aggregator, 0, 1)
    snapshot = Snapshot(0, np.zeros(layout.size), aggregator.init(), {}, counters or {})
    sent = open_round(run, snapshot)
    back, rejected = collect(replies, layout, sent.model)
    return close_round(run, snapshot, sent, back, {}, rejected=rejected)


def test_h09_clients_with_no_examples(handed: Handed) -> None:
    cases, expected = handed["h09"]["input"]["cases"], handed["h09"]["expected"]["cases"]
    for case, right in zip(cases[:3], expected[:3], strict=True):
        d = 2
        replies = [(i, {"w": np.array(u)}, n) for i, (u, n) in enumerate(zip(case["updates"], case["num_examples"]))]
        done = closed(weighted(weights.fedavg), replies, Layout(("w",), ((d,),)), 2)
        if "value" in right:
            np.testing.assert_array_equal(done.after.model, right["value"])
            assert "kept" not in done.info
        else:
            np.testing.assert_array_equal(done.after.model, np.zeros(d))
            assert done.info["kept"] in ("no valid reply", "every client reports 0 rows")


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_h10_a_non_finite_update(handed: Handed, bad: str) -> None:
    case, right = handed["h10"]["input"], handed["h10"]["expected"]["default"]
    updates = {**case["updates"], "c0": [bad, 2.0]}
    layout = Layout(("a", "b"), ((1,), (1,)))
    replies = [
        (i, {"a": np.array([float(u[0])]), "b": np.array([float(u[1])])}, case["num_examples"][name])
        for i, (name, u) in enumerate(updates.items())
    ]
    done = closed(weighted(weights.fedavg), replies, layout, 3)
    np.testing.assert_allclose(done.after.model, right["value"])
    assert done.info["rejected"] == {0: "update not finite"}
    np.testing.assert_allclose(done.info["weights"], [1 / 3, 2 / 3])


def test_h11_batchnorm_buffers(handed: Handed) -> None:
    names = ("weight", "running_mean", "running_var")
    layout = Layout(names, ((1,), (1,), (1,)))
    counter = "num_batches_tracked"
    replies = []
    for i, c in enumerate(handed["h11"]["input"]["clients"]):
        arrays = {n: np.array(c["state"][n]) for n in names} | {counter: np.array(c["state"][counter]["value"])}
        replies.append((i, arrays, c["num_examples"]))
    done = closed(weighted(weights.fedavg), replies, layout, 2)
    right = handed["h11"]["expected"]
    for name, values in layout.split(done.after.model).items():
        np.testing.assert_allclose(values, right[name])
    counted = done.after.counters[counter]
    assert counted.dtype == np.int64 and np.shape(counted) == () and counted in right[counter]["accept_values"]


def test_h12_one_step_of_fairfed(handed: Handed) -> None:
    case, right = handed["h12"]["input"], handed["h12"]["expected"]
    n = np.array(case["num_examples"], float)
    gaps = fairfed_gaps(np.array(case["F_k"]), case["F_global"], np.full(3, np.nan), np.nan)
    np.testing.assert_allclose(gaps, right["gaps"])
    for beta, name in ((case["beta"], "weights"), (0.0, "weights_beta_0")):
        new = fairfed_step(n / n.sum(), gaps, beta=beta)
        np.testing.assert_allclose(new / new.sum(), right[name])


def _with_pooled_gap() -> list[Array]:
    """F = 0.1, undefined, 0.2 and a pooled signed gap of just 0.2; accuracies 0.8, 0.7, 0.9 of 50 rows each."""
    first, third = table(0.1, 0.8, 50), table(0.2, 0.9, 50)
    second = np.zeros((2, 4))
    positives = 2.0  # group 0 only: (0.1 + 0.2 + tp) / (2 + 2) = 0.2
    second[0, 0], second[0, 3] = 0.5, positives - 0.5
    second[0, 2] = 35 - 0.5
    second[0, 1] = 50 - second.sum()
    return [first, second, third]


def test_h13_fairfed_with_an_undefined_client(handed: Handed) -> None:
    case, right = handed["h13"]["input"], handed["h13"]["expected"]
    tables = _with_pooled_gap()
    assert signed_eod(np.sum(tables, axis=0)) == pytest.approx(case["F_global"])
    server = fairfed(signed_eod, beta=case["beta"])
    _, info, _ = server.step(reports([0, 0, 0], case["num_examples"], tables=tables), server.init())
    np.testing.assert_allclose(info["raw_scores"], np.array(case["F_k"], float), atol=1e-12)
    np.testing.assert_allclose(info["scores"], right["gaps"], atol=1e-12)
    np.testing.assert_allclose(info["weights"], right["weights"])
    assert list(info["fallbacks"]) == right["fallback_used_for"]


def test_h14_fairis(handed: Handed) -> None:
    for case, right in zip(handed["h14"]["input"]["fairis"], handed["h14"]["expected"]["fairis"], strict=True):
        f = case["F_k"]
        rule = weights.fairis_n if case.get("variant") == "size-weighted" else weights.fairis
        n = case.get("num_examples", [1] * len(f))
        if "error" in right:
            with pytest.raises(BadInput) as e:
                rule(f, n, eta=case["eta"])
            reason = right["error"].split("(")[1]
            assert "eta must be above 1" in str(e.value) and reason in str(e.value)
        else:
            w = rule(f, n, eta=case["eta"])
            np.testing.assert_allclose(w, right["weights"], atol=1e-9)
            assert w.sum() == pytest.approx(handed["h14"]["expected"]["each_sums_to"])


@pytest.mark.parametrize("order", [["c0", "c1", "c2"], ["c2", "c0", "c1"]])
def test_h14_finp(handed: Handed, order: list[str]) -> None:
    case, right = handed["h14"]["input"]["finp"], handed["h14"]["expected"]["finp"]
    ids = [int(c[1]) for c in order]
    figures = {name: np.array([case[name][c] for c in order], float) for name in ("top_eigenvalue", "trace")}
    arrived = Reports(np.array(ids), np.eye(3)[ids], np.ones(3), figures)
    sorted_, _ = guard(arrived, np.arange(3), 3)
    server = weighted(weights.ala, deviation("top_eigenvalue", "trace"), asks=("top_eigenvalue", "trace"))
    delta, info, _ = server.step(sorted_, server.init())
    np.testing.assert_allclose(info["scores"], list(right["rho"].values()))
    np.testing.assert_allclose(info["weights"], list(right["weights"].values()))
    np.testing.assert_allclose(delta, list(right["weights"].values()))
    assert info["weights"][2] == 0


def test_h16_trimmed_mean(handed: Handed) -> None:
    for case, right in zip(handed["h16"]["input"]["cases"], handed["h16"]["expected"]["cases"], strict=True):
        u = np.array(case["values"])[:, None]
        if "error" in right:
            with pytest.raises(BadInput, match=r"trim must be below 0\.5"):
                trimmed_mean(u, trim=case["trim"])
        else:
            assert trimmed_mean(u, trim=case["trim"])[0] == right.get("value", 3.0)


def test_h17_krum(handed: Handed) -> None:
    (case, small), (right, _) = handed["h17"]["input"]["cases"], handed["h17"]["expected"]["cases"]
    u = np.array(case["values"])[:, None]
    np.testing.assert_allclose(krum_scores(u, f=case["f"]), right["scores"])
    assert krum_choice(u, f=case["f"]).tolist() == [right["chosen_index"]]
    assert krum(u, f=case["f"])[0] == right["value"]
    with pytest.raises(BadInput, match=r"Krum needs n >= 2f \+ 3 = 5 clients, got 3"):
        krum(np.array(small["values"])[:, None], f=small["f"])


def test_h17_in_the_middle_of_a_run_the_model_is_kept(handed: Handed) -> None:
    values = handed["h17"]["input"]["cases"][1]["values"]
    replies = [(i, {"w": np.array([v])}, 1) for i, v in enumerate(values)]
    done = closed(robust(krum, f=1), replies, Layout(("w",), ((1,),)), 5)
    assert done.after.model.tolist() == [0.0]
    assert "Krum needs n >= 2f + 3 = 5 clients, got 3" in done.info["kept"]
    assert done.info["missing"] == [3, 4]
