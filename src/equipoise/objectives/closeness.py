"""Staying near the model that was received."""

from __future__ import annotations

import torch
from torch import Tensor

from ..types import Local

__all__ = ["proximal"]


def proximal(local: Local) -> Tensor:
    """Half the squared distance to the received model, ``|theta - theta_received|^2 / 2``, shared layers only.

    Source: FedProx (Li et al., MLSys 2020), where its coefficient is mu.
    """
    total = torch.zeros(len(local.weight), dtype=local.weight.dtype)
    for name, received in local.anchor.items():
        total = total + (local.params[name] - received).flatten(1).square().sum(1) / 2
    return total
