"""The running statistics of batch normalisation in a federation: averaged, kept by their client, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from equipoise import aggregate, learners, metrics, models, objectives
from equipoise.checks import BadInput
from equipoise.simulate import simulate
from equipoise.types import Federation, Run, Shard
from equipoise.weights import uniform

torch.set_num_threads(1)
RNG = np.random.default_rng(0)
SHARDS = [Shard(RNG.normal(5 * k, 1 + k, (24, 3)), np.arange(24) % 2, np.arange(24) % 2) for k in range(2)]
"""Two clients whose features lie in different places, so that their statistics differ."""


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 1))


def train(way, lr=1e-12):
    """Train two rounds of 5 steps; return their records and the layouts of what travels and of what stays."""
    names = models.shared_names(normed(), None, way)
    learner = learners.stacked(
        normed,
        shared=names,
        terms={"cross_entropy": objectives.cross_entropy},
        count=metrics.counts,
        steps=5,
        batch="full",
        optimiser="sgd",
        lr=lr,
        dtype="float64",
    )
    federation = Federation(np.arange(2), SHARDS, {"cross_entropy": np.ones(2)}, 2)
    run = Run("r", federation, aggregate.weighted(uniform), 1, 2, observes=lambda t: frozenset({"received"}))
    return [r for step in simulate([run], learner) for r in step], *learners.layouts(normed, names)


def means(record, layout):
    """Mean of what enters the normalisation, for each client, of a first layer that (almost) does not learn."""
    first = layout.split(record.broadcast.model)
    return np.stack([s.x.mean(0) @ first["0.weight"].T + first["0.bias"] for s in SHARDS])


def test_averaged_statistics_are_part_of_the_model():
    records, travels, stays = train("average")
    own = means(records[0], travels)
    assert abs(own[0] - own[1]).max() > 1 and stays.size == 0
    sent = travels.split(records[0].reports.updates)["1.running_mean"]
    assert np.allclose(sent, (1 - 0.9**5) * own, atol=1e-9)  # a tenth of the way in each of 5 steps, from 0
    for record, steps in zip(records, (5, 10), strict=False):
        assert np.allclose(
            travels.split(record.after.model)["1.running_mean"], (1 - 0.9**steps) * own.mean(0), atol=1e-9
        )
        assert record.after.counters["1.num_batches_tracked"] == steps
    assert "private" not in records[0].after.memory


def test_local_statistics_stay_with_their_client_and_its_scale_and_shift_travel():
    records, travels, stays = train("local")
    own = means(records[0], travels)
    assert travels.names == ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")
    assert stays.names == ("1.running_mean", "1.running_var")
    for record, steps in zip(records, (5, 10), strict=False):
        assert record.reports.updates.shape == (2, 15)
        kept = stays.split(record.after.memory["private"])
        assert np.allclose(kept["1.running_mean"], (1 - 0.9**steps) * own, atol=1e-9)
        assert record.after.memory["1.num_batches_tracked"].tolist() == [steps, steps]


@pytest.mark.parametrize("way", ["average", "local"])
def test_a_client_is_measured_with_the_statistics_that_it_has(way):
    records, travels, stays = train(way, lr=0.3)
    last = records[-1]
    assert last.closing
    for k, shard in enumerate(SHARDS):
        state = travels.split(last.broadcast.model)
        if way == "local":
            state |= stays.split(last.after.memory["private"][k])
        net = normed().double().eval()
        net.load_state_dict({n: torch.tensor(a) for n, a in state.items()}, strict=False)
        yhat = net(torch.tensor(shard.x)).squeeze(1).detach().numpy() > 0
        assert np.array_equal(last.measured["received"][k], metrics.counts(shard.y, yhat, shard.group, 2))


def test_refused_statistics_are_named():
    with pytest.raises(BadInput, match=r"the model has the buffer '1\.running_mean'"):
        train("refuse")
