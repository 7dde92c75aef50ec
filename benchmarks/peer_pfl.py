"""The job in pfl-research: FederatedAveraging on a SimulatedBackend, clipped by NormClippingOnly, weighted by rows.

pfl evaluates each user before and after local training when asked to evaluate at all; to count once a round, as the
others do, the count is taken where a user's training batches end.
"""

import sys
from importlib.metadata import version

import peer_torch
import task
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, NormClippingOnly

CLIENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])


class Job(torch.nn.Module):
    """The model, with the two methods that pfl asks for."""

    def __init__(self):
        super().__init__()
        self.layers = peer_torch.mlp()

    def forward(self, x):
        return self.layers(x)

    def loss(self, x, y, weights):
        return peer_torch.balanced(self(x), y, weights)

    def metrics(self, x, y):
        return {}


class Planned(Dataset):
    """A user whose training batches are those of the plan; the counting follows the last of them."""

    def __init__(self, shard, rows):
        super().__init__((shard.x, shard.y), train_kwargs={"weights": task.class_weights(shard.y)})
        self.shard, self.rows = shard, rows

    def iter(self, batch_size):
        if batch_size != task.BATCH:  # pfl's own evaluation, which it makes in the first round whatever it is told
            yield self.raw_data
            return
        yield from peer_torch.batches(self.shard, self.rows)
        COUNTS.append(peer_torch.count(job, self.shard))


class Clock(TrainingProcessCallback):
    def on_train_begin(self, *, model):
        MARKS.append(peer_torch.now())
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        MARKS.append(peer_torch.now())
        return False, Metrics()


MARKS, COUNTS = [], []
shards = task.make(CLIENTS)
plans = [task.plan(shards, t) for t in range(ROUNDS)]
seen = dict.fromkeys(range(CLIENTS), -1)


def user(k):
    seen[k] += 1
    return Planned(shards[k], plans[seen[k]][k])


job = Job()
federation = FederatedDataset(user, MinimizeReuseUserSampler(list(range(CLIENTS))))
clip = CentrallyAppliedPrivacyMechanism(NormClippingOnly(2, task.CLIP))
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=ROUNDS, evaluation_frequency=ROUNDS + 1, train_cohort_size=CLIENTS, val_cohort_size=0
    ),
    SimulatedBackend(training_data=federation, val_data=federation, postprocessors=[clip, WeightByDatapoints()]),
    PyTorchModel(job, torch.optim.Adam, torch.optim.SGD(job.parameters(), 1.0)),
    NNTrainHyperParams(local_batch_size=task.BATCH, local_num_epochs=1, local_learning_rate=task.LR),
    NNEvalHyperParams(local_batch_size=None),
    callbacks=[Clock()],
    send_metrics_to_platform=False,
)
peer_torch.report(job, MARKS, name=f"pfl {version('pfl')}", counted=len(COUNTS))
