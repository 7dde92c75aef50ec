"""The job in fluke: FedAVG with size weights; a client that clips its update and counts; forgotten between rounds.

fluke imports torchvision for data sets and nets that this job does not touch. Where its wheel does not fit the torch
beside it (a CPU build), empty modules stand in for it.
"""

import sys
import types
from importlib.metadata import version

import peer_torch
import task
import torch

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):

    class Absent(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    for gone in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[gone]
    for part in ("", ".models", ".datasets", ".datasets.utils", ".transforms"):
        sys.modules["torchvision" + part] = Absent("torchvision" + part)

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from fluke.utils import FederationObserver

CLIENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
MARKS, COUNTS = [], []


class Planned(FastDataLoader):
    """A client's rows, given out in the plan's batches: the next round's at each pass."""

    def __init__(self, shard, rounds):
        x, y = torch.from_numpy(shard.x), torch.from_numpy(shard.y)
        super().__init__(x, y, num_labels=2, batch_size=task.BATCH)
        self.shard, self.rounds = shard, iter(rounds)

    def __iter__(self):
        return peer_torch.batches(self.shard, next(self.rounds))

    def __len__(self):
        return task.STEPS


class Balanced(torch.nn.Module):
    def __init__(self, y):
        super().__init__()
        self.weights = task.class_weights(y)

    def forward(self, logits, y):
        return peer_torch.balanced(logits, y, self.weights)


class Member(Client):
    def fit(self, override_local_epochs=0):
        before = [p.detach().clone() for p in self.model.parameters()]
        loss = super().fit(override_local_epochs)
        COUNTS.append(peer_torch.count(self.model, self.train_set.shard))
        peer_torch.clip_update(list(self.model.parameters()), before)
        return loss


class Clock(FederationObserver):
    def start_round(self, round, global_model):
        if round == 1:
            MARKS.append(peer_torch.now())

    def end_round(self, round):
        MARKS.append(peer_torch.now())


FlukeENV().set_eval_cfg(server=False)
shards = task.make(CLIENTS)
plans = [task.plan(shards, t) for t in range(ROUNDS)]
adam = OptimizerConfigurator(DDict(name="Adam", lr=task.LR))
members = [
    Member(k, Planned(s, [p[k] for p in plans]), None, adam, Balanced(s.y), local_epochs=1, persistency=False)
    for k, s in enumerate(shards)
]
server = Server(peer_torch.mlp(), None, members, weighted=True)
federation = FedAVG(CLIENTS, None, DDict(), clients=members, server=server)
federation.set_callbacks([Clock()])
federation.run(ROUNDS, 1.0, finalize=False)
peer_torch.report(server.model, MARKS, name=f"fluke {version('fluke-fl')}", counted=len(COUNTS))
