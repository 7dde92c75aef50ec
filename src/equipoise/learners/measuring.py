"""Counting what a model does on rows: the module as the user wrote it, one client at a time, for every engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..checks import BadInput
from ..types import Array, Federation, Shard, Work
from .batches import Pool
from .forwards import convolves, logits_of
from .parts import Parts, split

BLOCK, CONVOLVED = 4096, 128
"""Rows measured at a time, few enough for their activations to stay in the cache; those of convolutions are larger."""

Count = Callable[[Array, Array, Array, int], Array]
"""(y, yhat, group, G) -> (G, 4) integers, columns tp fp tn fn."""


def rows_of(federation: Federation, moment: str, figures: Collection[str] = ()) -> tuple[str, list[Shard]]:
    """Split "received@test" into when and on which rows of each client; ``figures`` could have been meant too.

    Raises
    ------
    BadInput
        If it is no moment, or the federation has no such view.
    """
    when, _, view = moment.partition("@")
    if when not in ("received", "trained"):
        others = f", and the figures are {', '.join(figures)}" if figures else ""
        raise BadInput(f"cannot measure {moment!r}; a moment is 'received' or 'trained', alone or with '@view'{others}")
    if not view:
        return when, list(federation.shards)
    if view not in federation.views:
        raise BadInput(f"the federation has no view {view!r}; it has {sorted(federation.views)}")
    return when, list(federation.views[view])


def blocks(module: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Cut rows into as many as this module is measured on at a time."""
    return iter(torch.split(x, CONVOLVED if convolves(module) else BLOCK))


def outputs_of(module: nn.Module, x: Tensor) -> int:
    """Return the logits a row of a module in eval mode; ``x`` (1, f)."""
    with torch.inference_mode():
        out = logits_of(module, {}, x.expand(2, -1))  # two: a forward may squeeze all axes of one
    return 1 if out.dim() == 1 else out.shape[1]


def fits(works: Sequence[Work], outputs: int) -> None:
    """Refuse labels of other classes than the model has logits for."""
    for w in works:
        needed = 1 if w.federation.classes == 2 else w.federation.classes
        if outputs != needed:
            raise BadInput(
                f"the model gives {outputs} logits a row, and labels of {w.federation.classes} classes need {needed}; "
                "change its last layer"
            )


def counts_of(
    work: Work,
    moments: Collection[str],
    models: Mapping[str, Tensor],
    module: nn.Module,
    parts: Parts,
    pool: Pool,
    count: Count,
) -> dict[str, Array]:
    """Return moment -> (K, G, 4) for these moments; ``models``: "received", "trained" -> (K, P).

    A model that gives a NaN on any row has counts of 0.
    """
    tables: dict[str, Array] = {}
    alike = parts.private.size == 0  # then everyone receives the same model, and a shared pool is counted once
    for moment in sorted(moments):
        when, shards = rows_of(work.federation, moment)
        seen: dict[int, Array] = {}
        table = []
        for k, shard in enumerate(shards):
            once = alike and when == "received"
            if once and id(shard) in seen:
                table.append(seen[id(shard)])
                continue
            rows = pool.place(shard)
            tensors = {n: t[0] for n, t in split(parts.whole, models[when][k : k + 1]).items()}
            with torch.inference_mode():
                logits = [logits_of(module, tensors, x) for x in blocks(module, pool.x[rows])] if len(shard.y) else []
            found = _count(shard, torch.cat(logits) if logits else torch.zeros(0), work.federation.groups, count)
            table.append(found)
            if once:
                seen[id(shard)] = found
        tables[moment] = np.stack(table)
    return tables


def _count(shard: Shard, logits: Tensor, groups: int, count: Count) -> Array:
    """Return (G, 4) counts; none at all for a model whose output is no number, as it predicts neither class."""
    y, group = np.asarray(shard.y), np.asarray(shard.group)
    if logits.isnan().any():
        y, group, logits = y[:0], group[:0], logits[:0]
    yhat = logits > 0 if logits.dim() == 1 else logits.argmax(1)
    return count(y, yhat.numpy(), group, groups)
