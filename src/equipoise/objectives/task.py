"""The task itself: what every client learns."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from ..types import Local

__all__ = ["cross_entropy"]

Term = Callable[[Local], Tensor]


def cross_entropy_slope(local: Local) -> Tensor:
    """Return the derivative of ``cross_entropy`` with respect to the logits, ``w (p - y) / sum w`` in their shape.

    With more than two classes y is 1 at the row's class and 0 elsewhere, and p the softmax.
    """
    if local.logits.dim() > 2:
        slope: Tensor = local.logits.softmax(-1)
        slope.scatter_add_(-1, local.y.long().unsqueeze(-1), slope.new_full((*local.y.shape, 1), -1))
        return slope.mul_((local.weight / local.weight.sum(1, keepdim=True)).unsqueeze(-1))
    slope = local.logits.sigmoid().sub_(local.y)
    return slope.mul_(local.weight).div_(local.weight.sum(1, keepdim=True))


def with_slope(slope: Term) -> Callable[[Term], Term]:
    """Give a term its own derivative with respect to the logits, which the stacked engine uses instead of autograd."""

    def mark(term: Term) -> Term:
        term.slope = slope  # type: ignore[attr-defined]
        return term

    return mark


@with_slope(cross_entropy_slope)
def cross_entropy(local: Local) -> Tensor:
    """Weighted cross-entropy, ``sum_i w_i CE(z_i, y_i) / sum_i w_i`` over the batch.

    CE is the binary one of a logit, or with logits (S, B, C) minus the log-softmax at the row's class. The weights
    carry the class balance and are 0 on padding.

    Source: what classifiers are usually trained with; the class balance as in Fairis (arXiv 2608.06469).

    Examples
    --------
    >>> import torch
    >>> nothing = torch.zeros(1, 2)
    >>> batch = Local({}, {}, None, torch.tensor([[1.0, 0.0]]), nothing.long(), torch.ones(1, 2), nothing, {})
    >>> cross_entropy(batch)  # log 2 at logit 0
    tensor([0.6931])
    >>> batch.y, batch.logits = 2 * batch.y, torch.zeros(1, 2, 3)
    >>> cross_entropy(batch)  # log 3
    tensor([1.0986])
    """
    if local.logits.dim() > 2:
        chances = local.logits.log_softmax(-1)
        each = -local.weight * chances.gather(-1, local.y.long().unsqueeze(-1)).squeeze(-1)
    else:
        each = F.binary_cross_entropy_with_logits(local.logits, local.y, local.weight, reduction="none")
    mean: Tensor = each.sum(1) / local.weight.sum(1)
    return mean
