"""The job in Flower's simulation: Message API, FedAvg weighted by rows, Ray with two actors (so up to two cores).

Each actor keeps the data and the plan from its first message on. run_simulation is deprecated in favour of
`flwr run`, which starts a daemon and adds some 10 s; the shorter way is measured.
"""

import functools
import logging
import os
import sys
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent)  # Ray's actors import this file by name

from importlib.metadata import version

import peer_torch
import task
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

MARKS, LAST = [], []
client_app, server_app = ClientApp(), ServerApp()


@functools.cache
def data(clients):
    shards = task.make(clients)
    return shards, functools.cache(lambda t: task.plan(shards, t))


@client_app.train()
def train(message, context):
    import torch

    shards, plan = data(int(context.node_config["num-partitions"]))
    k, t = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
    shard = shards[k]
    model = peer_torch.mlp()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    before = [p.detach().clone() for p in model.parameters()]
    weights = task.class_weights(shard.y)
    adam = torch.optim.Adam(model.parameters(), lr=task.LR)
    for x, y in peer_torch.batches(shard, plan(t - 1)[k]):
        adam.zero_grad()
        peer_torch.balanced(model(x), y, weights).backward()
        adam.step()
    counts = peer_torch.count(model, shard)
    peer_torch.clip_update(list(model.parameters()), before)
    metrics = MetricRecord({"num-examples": len(shard.y), "counts": counts.ravel().tolist()})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


def mark(round, arrays):
    """Note the time after each round (Flower calls this once before the first)."""
    MARKS.append(peer_torch.now())
    LAST[:] = [arrays]
    return MetricRecord({})


@server_app.main()
def main(grid, context):
    clients, rounds = int(sys.argv[1]), int(sys.argv[2])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    first = ArrayRecord(peer_torch.mlp().state_dict())
    strategy.start(grid=grid, initial_arrays=first, num_rounds=rounds, evaluate_fn=mark)


def simulate(clients):
    from flwr.simulation import run_simulation

    logging.disable(logging.INFO)
    one_core = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app, client_app, num_supernodes=clients, backend_config=one_core)
    model = peer_torch.mlp()
    model.load_state_dict(LAST[0].to_torch_state_dict())
    peer_torch.report(model, MARKS, name=f"Flower {version('flwr')}", counted=None)


if __name__ == "__main__":
    import peer_flower  # by name, so that the actors find what is sent to them

    peer_flower.simulate(int(sys.argv[1]))
