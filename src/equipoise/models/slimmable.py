"""Stacks of layers whose last hidden block also runs on the first few of its channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import BadInput


class Slimmable(nn.Sequential):
    """Layers one after another, some of which are the last hidden block: what FedAlign looks at.

    ``before(x)`` gives the features that enter the block, ``last_block(features, width)`` what it reads and what it
    gives when each of its layers has only that share of its channels, the first ones. ``adapted`` says that the
    choice of the block is ours; FedAlign defines it for residual networks, as their last stage.

    References
    ----------
    Yu et al., Slimmable neural networks (ICLR 2019), for layers that run at several widths.
    """

    def __init__(self, *layers: Any, block: Sequence[int] = (), adapted: bool = True) -> None:
        super().__init__(*layers)
        self.places, self.adapted = tuple(block), adapted

    def before(self, x: Tensor) -> Tensor:
        """Return the features (B, channels, ...) that enter the last hidden block."""
        if not self.places:
            raise BadInput("this part of a model has no last hidden block; take the whole model")
        for layer in list(self)[: self.places[0]]:
            x = layer(x)
        return x

    def last_block(self, features: Tensor, width: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return what the block reads and what it gives at a share ``width`` of its channels, at least one.

        Batch normalisation uses the batch's own statistics and leaves the running ones as they are.
        """
        entering = features[:, : _share(features.shape[1], width)]
        leaving = entering
        for place in self.places:
            leaving = slim(self[place], leaving, width)
        return entering, leaving


class Residual(nn.Module):
    """A block added to its shortcut, ``ReLU(body(x) + shortcut(x))``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return ``ReLU(body(x) + shortcut(x))``."""
        return F.relu(self.body(x) + self.shortcut(x))


def slim(layer: nn.Module, x: Tensor, width: float) -> Tensor:
    """Run a layer, or layers one after another, on as many input channels as ``x`` has and a share of its outputs.

    Examples
    --------
    >>> import torch
    >>> slim(nn.Linear(8, 12), torch.zeros(5, 2), 0.25).shape
    torch.Size([5, 3])
    """
    match layer:
        case nn.Sequential():
            for one in layer:
                x = slim(one, x, width)
            return x
        case Residual():
            return F.relu(slim(layer.body, x, width) + slim(layer.shortcut, x, width))
        case nn.Linear() | nn.Conv1d() | nn.Conv2d():
            some = _share(len(layer.weight), width)
            weight, bias = layer.weight[:some, : x.shape[1]], None if layer.bias is None else layer.bias[:some]
            if isinstance(layer, nn.Linear):
                return F.linear(x, weight, bias)
            convolve = F.conv1d if isinstance(layer, nn.Conv1d) else F.conv2d
            return convolve(x, weight, bias, layer.stride, layer.padding)
        case nn.BatchNorm2d():
            some = x.shape[1]
            return F.batch_norm(x, None, None, layer.weight[:some], layer.bias[:some], training=True, eps=layer.eps)
        case nn.GroupNorm():  # groups stay as large as they are; there are fewer
            some, size = x.shape[1], layer.num_channels // layer.num_groups
            return F.group_norm(x, some // size, layer.weight[:some], layer.bias[:some], layer.eps)
        case _:  # ReLU, pooling: what treats every channel alike
            out: Tensor = layer(x)
            return out


def _share(channels: int, width: float) -> int:
    """Return how many channels are left, at least one."""
    return max(1, round(width * channels))
