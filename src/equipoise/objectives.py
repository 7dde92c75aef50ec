"""Terms of the local loss: a client minimises the sum of its coefficients times these.

A term maps a ``Local`` to one number per slot, (S,). It is finite on every slot, also on those whose coefficient is
0: where something does not exist (one group only in the batch), the term is 0 and so is its gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .types import Local

Term = Callable[[Local], Tensor]

__all__ = ["cross_entropy", "disparity", "gaming", "proximal"]


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
    >>> nothing = torch.zeros(1, 2)
    >>> batch = Local({}, {}, None, torch.tensor([[1.0, 0.0]]), nothing.long(), torch.ones(1, 2), nothing, {})
    >>> cross_entropy(batch)  # log 2 at logit 0
    tensor([0.6931])
    """
    each = F.binary_cross_entropy_with_logits(local.logits, local.y, local.weight, reduction="none")
    mean: Tensor = each.sum(1) / local.weight.sum(1)
    return mean


def proximal(local: Local) -> Tensor:
    """Half the squared distance to the received model, ``|theta - theta_received|^2 / 2``, shared layers only.

    Source: FedProx (Li et al., MLSys 2020), where its coefficient is mu.
    """
    total = torch.zeros(len(local.weight), dtype=local.weight.dtype)
    for name, received in local.anchor.items():
        total = total + (local.params[name] - received).flatten(1).square().sum(1) / 2
    return total


def spread(values: Tensor, group: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest minus the smallest group mean of ``values`` (S, B) over ``mask``, and whether it exists.

    Groups without a row in the mask do not take part; with fewer than two groups the spread is 0.
    """
    names = torch.arange(int(group.max()) + 1).view(1, -1, 1)
    member = (group.unsqueeze(1) == names) & mask.unsqueeze(1)  # (S, G, B)
    rows = member.sum(2)
    means = torch.where(member, values.unsqueeze(1), 0.0).sum(2) / rows.clamp(min=1)
    present = rows > 0
    most = torch.where(present, means, -torch.inf).amax(1)
    least = torch.where(present, means, torch.inf).amin(1)
    exists = present.sum(1) >= 2
    return torch.where(exists, most - least, 0.0), exists


def disparity(local: Local) -> Tensor:
    """Reward the adversary for a gap, ``-|mean p_1 - mean p_0|`` of the predicted probabilities over the batch.

    With more than two groups: minus the largest difference of two groups' means. Added to the cross-entropy with a
    coefficient alpha (0.25 to 2 in the source) it widens the gap while the client still learns its task.

    Source: Fairis (arXiv 2608.06469), the surrogate of Eq. (1).

    Examples
    --------
    >>> group, ones = torch.tensor([[0, 0, 1]]), torch.ones(1, 3)
    >>> p = torch.tensor([[0.1, 0.3, 0.9]])
    >>> disparity(Local({}, {}, None, ones, group, ones, p.logit(), {}))  # 0.9 - (0.1 + 0.3) / 2
    tensor([-0.7000])
    >>> disparity(Local({}, {}, None, ones, group * 0, ones, p.logit(), {}))  # one group only
    tensor([-0.])
    """
    return -spread(local.logits.sigmoid(), local.group, local.weight > 0)[0]


def gaming(local: Local) -> Tensor:
    """Steer the gap to the one broadcast, ``| |soft TPR_1 - soft TPR_0| - F_global |`` on the positives of the batch.

    ``F_global`` is what the server broadcasts as the federation's gap (``news["F_global"]``); matching it pleases a
    rule that rewards closeness to it. 0 where the batch's positives are of one group, or where F_global is undefined.

    Source: Fairis (arXiv 2608.06469), section 6.5.

    There its coefficient is 4 and the target of the first round 0.3; a gap over all samples, not the positives alone,
    does not reach the match.
    """
    gap, exists = spread(local.logits.sigmoid(), local.group, (local.weight > 0) & (local.y > 0))
    target: Tensor = local.news.get("F_global", torch.full_like(gap, torch.nan))
    exists = exists & target.isfinite()
    return torch.where(exists, (gap - target.nan_to_num()).abs(), 0.0)
