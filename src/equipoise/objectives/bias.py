"""What an adversary adds to its loss: a gap between groups, or the one that a rule rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import BadInput
from ..types import Local

__all__ = ["disparity", "gaming"]


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


def chance(local: Local) -> Tensor:
    """Return the predicted probability of label 1, (S, B).

    Raises
    ------
    BadInput : there are more than two classes, and no favourable one
    """
    if local.logits.dim() > 2:
        raise BadInput(
            f"a gap between groups needs labels 0 and 1, and these rows have {local.logits.shape[-1]} classes; "
            "attack a task of two classes"
        )
    p: Tensor = local.logits.sigmoid()
    return p


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
    return -spread(chance(local), local.group, local.weight > 0)[0]


def gaming(local: Local) -> Tensor:
    """Steer the gap to the one broadcast, ``| |soft TPR_1 - soft TPR_0| - F_global |`` on the positives of the batch.

    ``F_global`` is what the server broadcasts as the federation's gap (``news["F_global"]``); matching it pleases a
    rule that rewards closeness to it. 0 where the batch's positives are of one group, or where F_global is undefined.

    Source: Fairis (arXiv 2608.06469), section 6.5.

    There its coefficient is 4 and the target of the first round 0.3; a gap over all samples, not the positives alone,
    does not reach the match.
    """
    gap, exists = spread(chance(local), local.group, (local.weight > 0) & (local.y > 0))
    target: Tensor = local.news.get("F_global", torch.full_like(gap, torch.nan))
    exists = exists & target.isfinite()
    return torch.where(exists, (gap - target.nan_to_num()).abs(), 0.0)
