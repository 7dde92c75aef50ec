"""The job in Equipoise, through its public interface: FedAvg with clipping, counts on all rows every round.

Batches and the first model come from its own keyed streams, so the figures at the end are near the peers', not equal.
"""

import sys

import numpy as np
import peer_torch
import task
import torch

import equipoise
from equipoise import aggregate, learners, models, objectives, weights
from equipoise.metrics import counts
from equipoise.simulate import simulate
from equipoise.types import Federation, Run, Shard

CLIENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])


def build():
    return models.mlp(task.FEATURES)


SHARED = models.shared_names(build(), None)
learner = learners.stacked(
    build,
    shared=SHARED,
    terms={"ce": objectives.cross_entropy},
    count=counts,
    steps=task.STEPS,
    batch=task.BATCH,
    lr=task.LR,
    keep_optimiser=False,
)
shards = [Shard(*shard) for shard in task.make(CLIENTS)]
federation = Federation(np.arange(CLIENTS), shards, {"ce": np.ones(CLIENTS)}, task.GROUPS)
server = aggregate.weighted(weights.fedavg, clip=task.CLIP)
run = Run("peer", federation, server, 42, ROUNDS, observes=lambda t: frozenset({"trained"} if t <= ROUNDS else ()))

marks, counted, last = [peer_torch.now()], 0, None
for step in simulate([run], learner):
    marks.append(peer_torch.now())
    last = step[0].after.model
    counted += len(step[0].measured["trained"])
model = build()
layout, _ = learners.layouts(build, SHARED)
model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in layout.split(last).items()})
peer_torch.report(model, marks, name=f"equipoise {equipoise.__version__}", counted=counted)
