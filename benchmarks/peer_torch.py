"""What the peers' scripts share: the job's model, loss, clip and counting in plain torch, and the line they print.

Runs in each peer's own environment: needs torch, numpy and task.py only.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import task
import torch

torch.set_num_threads(1)


def mlp() -> torch.nn.Sequential:
    """Return the job's first model: 100-64-32-16-1 with ReLU between, 9,089 parameters."""
    layers: list[torch.nn.Module] = []
    for weight, bias in task.initial():
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def balanced(logits: torch.Tensor, y: torch.Tensor, weights: tuple[float, float]) -> torch.Tensor:
    """Return the cross-entropy in which both classes of the client count one half."""
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits.squeeze(-1), y.float(), reduction="none")
    return (each * torch.where(y > 0, weights[1], weights[0])).mean()


def batches(shard: task.Shard, rows: task.Array) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the planned batches of one client and one round; ``shard`` holds arrays or tensors."""
    x, y = torch.as_tensor(shard.x), torch.as_tensor(shard.y)
    for at in torch.as_tensor(rows):
        yield x[at], y[at]


@torch.no_grad()
def clip_update(now: list[torch.Tensor], before: list[torch.Tensor]) -> None:
    """Bring the update ``now - before`` to at most CLIP in norm, in place."""
    norm = float(torch.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(now, before, strict=True))))
    if norm > task.CLIP:
        for a, b in zip(now, before, strict=True):
            a.copy_(b + (a - b) * (task.CLIP / norm))


@torch.no_grad()
def count(model: torch.nn.Module, shard: task.Shard) -> task.Array:
    """Return the (2, 4) counts of a model on all rows of a client."""
    positive = model(torch.as_tensor(shard.x)).squeeze(-1) > 0
    return task.count(np.asarray(shard.y), positive.numpy(), np.asarray(shard.group))


def report(model: torch.nn.Module, marks: list[float], **said: Any) -> None:
    """Print one JSON line: milliseconds of each round, and what the final model does on the test rows."""
    test = task.test()
    counts = count(model, test)
    print(
        json.dumps(
            {
                "round_ms": [1000 * (b - a) for a, b in itertools.pairwise(marks)],
                "accuracy": float(counts[:, [0, 2]].sum() / counts.sum()),
                "gap": task.gap(counts),
                **said,
            }
        ),
        flush=True,
    )


now = time.perf_counter
