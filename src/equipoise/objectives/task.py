"""The task itself: what every client learns."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from ..types import Local

__all__ = ["cross_entropy"]

Term = Callable[[Local], Tensor]


def cross_entropy_slope(local: Local) -> Tensor:
    """Return the derivative of ``cross_entropy`` with respect to the logits, ``w (p - y) / sum w``, (S, B)."""
    error = local.logits.sigmoid().sub_(local.y)
    slope: Tensor = error.mul_(local.weight).div_(local.weight.sum(1, keepdim=True))
    return slope


def with_slope(slope: Term) -> Callable[[Term], Term]:
    """Give a term its own derivative with respect to the logits, which the stacked engine uses instead of autograd."""

    def mark(term: Term) -> Term:
        term.slope = slope  # type: ignore[attr-defined]
        return term

    return mark


@with_slope(cross_entropy_slope)
def cross_entropy(local: Local) -> Tensor:
    """Weighted binary cross-entropy, ``sum_i w_i BCE(z_i, y_i) / sum_i w_i`` over the batch.

    The weights carry the class balance, 0.5 / share of the row's class at the client, and are 0 on padding.

    Examples
    --------
    >>> import torch
    >>> nothing = torch.zeros(1, 2)
    >>> batch = Local({}, {}, None, torch.tensor([[1.0, 0.0]]), nothing.long(), torch.ones(1, 2), nothing, {})
    >>> cross_entropy(batch)  # log 2 at logit 0
    tensor([0.6931])
    """
    each = F.binary_cross_entropy_with_logits(local.logits, local.y, local.weight, reduction="none")
    mean: Tensor = each.sum(1) / local.weight.sum(1)
    return mean
