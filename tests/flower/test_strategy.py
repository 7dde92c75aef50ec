"""Our aggregators in Flower's own loop, with training code that is not ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from equipoise import aggregate, metrics, scores, weights
from equipoise.checks import BadInput
from equipoise.flower import AggregatorStrategy, LocalGrid, curvature_record, fairness_record

SIZES, PULLS = [10, 30, 60], [1.0, 2.0, 4.0]


def record(k: int) -> MetricRecord:
    """Client k hits the positives of group 0 always, those of group 1 the less the larger k is."""
    y, group = np.ones(SIZES[k], int), np.arange(SIZES[k]) % 2
    return fairness_record(y, np.where(group == 0, 1, np.arange(SIZES[k]) // 2 % 5 >= k), group)


def own_clients() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        arrays = message.content.array_records["arrays"]
        moved = ArrayRecord({n: Array(a.numpy() + a.numpy().dtype.type(PULLS[k])) for n, a in arrays.items()})
        return Message(RecordDict({"arrays": moved, "metrics": record(k)}), reply_to=message)

    return app


def initial() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros((2, 2), np.float32)), "b": Array(np.zeros(2, np.float32))})


def fair(eta: float = 1.1) -> Any:
    return aggregate.weighted(weights.fairis, scores.gap(metrics.equal_opportunity_difference), eta=eta)


def test_fedavg_equals_flowers_own() -> None:
    ours = AggregatorStrategy(aggregate.weighted(weights.fedavg))
    mine = ours.start(LocalGrid(own_clients(), 3), initial(), num_rounds=3)
    theirs = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3).start(
        LocalGrid(own_clients(), 3), initial(), num_rounds=3
    )
    for name, array in theirs.arrays.items():
        np.testing.assert_allclose(mine.arrays[name].numpy(), array.numpy(), rtol=1e-6)
    assert len(ours.history) == 3 and ours.history[0].info["weights"].tolist() == [0.1, 0.3, 0.6]


def test_a_fair_rule_weighs_by_the_counts_that_clients_send() -> None:
    strategy = AggregatorStrategy(fair())
    strategy.start(LocalGrid(own_clients(), 3), initial(), num_rounds=1)
    (first,) = strategy.history
    assert first.info["scores"].round(6).tolist() == [0.0, 0.2, 0.4]
    assert first.info["weights"] == pytest.approx(np.array([1.1, 0.9, 0.7]) / 2.7)


def test_a_lone_bad_reply_does_not_end_flowers_run() -> None:
    app, good = ClientApp(), own_clients()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            return Message(RecordDict({"metrics": MetricRecord({})}), reply_to=message)
        return good(message, context)

    strategy = AggregatorStrategy(aggregate.weighted(weights.uniform), quorum=2)
    result = strategy.start(LocalGrid(app, 3), initial(), num_rounds=2)
    assert result.arrays["b"].numpy().tolist() == [3.0, 3.0]  # twice (1 + 2) / 2
    assert [r.info["rejected"] for r in strategy.history] == [
        {2: "the reply has no record 'arrays'; send 'arrays' and 'metrics'"}
    ] * 2


def test_state_follows_the_client_and_not_its_place_among_those_asked() -> None:
    rule = aggregate.fairfed(metrics.equal_opportunity_difference)
    strategy = AggregatorStrategy(rule, fraction=0.67, seed=3)
    strategy.start(LocalGrid(own_clients(), 3), initial(), num_rounds=4)
    asked = [r.broadcast.clients.tolist() for r in strategy.history]
    assert all(len(a) == 2 for a in asked) and len({tuple(a) for a in asked}) > 1


def test_counters_and_config_travel() -> None:
    seen = []
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        seen.append(dict(message.content.config_records["config"]))
        arrays = message.content.array_records["arrays"]
        counted = {n: Array(np.asarray(a.numpy() + a.numpy().dtype.type(1))) for n, a in arrays.items()}
        metrics_of = MetricRecord({"num-examples": 5})
        return Message(RecordDict({"arrays": ArrayRecord(counted), "metrics": metrics_of}), reply_to=message)

    arrays = initial()
    arrays["steps"] = Array(np.array(7, np.int64))
    strategy = AggregatorStrategy(aggregate.weighted(weights.uniform))
    result = strategy.start(LocalGrid(app, 2), arrays, num_rounds=2, train_config=ConfigRecord({"lr": 0.5}))
    assert seen[0]["lr"] == 0.5 and seen[0]["server-round"] == 1 and seen[-1]["server-round"] == 2
    steps = result.arrays["steps"].numpy()
    assert steps.dtype == np.int64 and steps == 9


def test_no_node_and_no_round_are_named() -> None:
    strategy = AggregatorStrategy(aggregate.weighted(weights.uniform))
    with pytest.raises(BadInput, match="no node is connected"):
        strategy.start(LocalGrid(own_clients(), 0), initial(), num_rounds=1)
    with pytest.raises(BadInput, match="before configure_train"):
        strategy.aggregate_train(1, [])


def test_records_refuse_what_is_none() -> None:
    with pytest.raises(BadInput):
        fairness_record(np.array([1, 2]), np.array([1, 1]), np.array([0, 1]))
    with pytest.raises(BadInput, match="lengths differ"):
        curvature_record(torch.nn.Linear(2, 1), (np.zeros((3, 2)), np.zeros(2)))
    with pytest.raises(BadInput, match="without rows"):
        curvature_record(torch.nn.Linear(2, 1), (np.zeros((0, 2)), np.zeros(0)))
    frozen = torch.nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(BadInput, match="nothing of this module trains"):
        curvature_record(frozen, (np.zeros((3, 2)), np.zeros(3)))


def test_curvature_of_a_record_is_the_dense_hessians() -> None:
    torch.manual_seed(0)
    net, x, y = torch.nn.Linear(3, 1).double(), np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2

    def loss(flat: torch.Tensor) -> torch.Tensor:
        z = torch.from_numpy(x) @ flat[:3] + flat[3]
        return torch.nn.functional.binary_cross_entropy_with_logits(z, torch.from_numpy(y).double())

    flat = torch.cat([net.weight.flatten(), net.bias]).detach()
    hessian = torch.autograd.functional.hessian(loss, flat)
    record = curvature_record(net, (x, y))
    assert record["eigenvalue"] == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-6)
    assert record["trace"] == pytest.approx(float(hessian.trace()), rel=1e-6)
