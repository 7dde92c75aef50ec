"""Residual networks for small images."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from torch import nn

from ..checks import BadInput, one_of
from .shapes import logits, suited
from .slimmable import Residual, Slimmable

__all__ = ["resnet"]

Norm = Literal["batch", "group"]
Block = Literal["basic", "bottleneck"]
CONVOLUTIONS = {"basic": 2, "bottleneck": 3}
EXPANSION = {"basic": 1, "bottleneck": 4}


def resnet(
    features: int,
    *,
    classes: int = 2,
    shape: tuple[int, ...] | None = None,
    depth: int = 56,
    norm: Norm = "batch",
    block: Block = "basic",
) -> nn.Module:
    """Build a residual network for small images: three stages of 16, 32 and 64 channels, the later two halving.

        depth = 6 n + 2 with basic blocks, 9 n + 2 with bottlenecks; n blocks a stage

    Parameters
    ----------
    norm : "batch", or "group" with 8 groups, which has no running statistics and trains on one row too
    block : "basic" is two 3 x 3 convolutions; "bottleneck" is 1 x 1, 3 x 3, 1 x 1 with four times as many channels
        going out, which is the ResNet-56 of FedAlign and of FinP

    References
    ----------
    He, Zhang, Ren and Sun, Deep residual learning for image recognition (CVPR 2016), section 4.2.

    Notes
    -----
    Where the size changes, the shortcut is a 1 x 1 convolution, as in FedAlign's code; the paper pads with zeros.

    Examples
    --------
    >>> sum(p.numel() for p in resnet(3072, classes=10, shape=(3, 32, 32)).parameters())
    855770
    >>> sum(p.numel() for p in resnet(784, classes=10, shape=(1, 28, 28), depth=8).parameters())
    77754
    >>> sum(p.numel() for p in resnet(3072, classes=10, shape=(3, 32, 32), block="bottleneck").parameters())
    591322
    >>> resnet(3072, shape=(3, 32, 32), depth=18)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: a ResNet of basic blocks has depth 6 n + 2, got 18; take 8, 14, 20, ..., 56
    """
    per_block = CONVOLUTIONS[one_of("block", block, CONVOLUTIONS)]
    one_of("norm", norm, ("batch", "group"))
    blocks, rest = divmod(depth - 2, 3 * per_block)
    if rest or blocks < 1:
        some = ", ".join(str(3 * per_block * n + 2) for n in (1, 2, 3))
        raise BadInput(f"a ResNet of {block} blocks has depth {3 * per_block} n + 2, got {depth}; take {some}, ..., 56")
    shape = suited("resnet", features, shape, (3, 32, 32), 1)
    widths = [16 * EXPANSION[block], 32 * EXPANSION[block], 64 * EXPANSION[block]]
    made = Slimmable(
        nn.Unflatten(1, shape),
        *(*_normed(shape[0], 16, 3, norm), nn.ReLU()),
        _stage(16, 16, widths[0], 1, blocks, norm, per_block),
        _stage(widths[0], 32, widths[1], 2, blocks, norm, per_block),
        _stage(widths[1], 64, widths[2], 2, blocks, norm, per_block),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[2], logits(classes))),
        block=range(6, 7),
        adapted=False,
    )
    for layer in made.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return made


def _stage(
    entering: int, inner: int, leaving: int, stride: int, blocks: int, norm: Norm, convolutions: int
) -> nn.Module:
    """Return blocks one after another, the first of which may halve height and width."""
    return nn.Sequential(
        _block(entering, inner, leaving, stride, norm, convolutions),
        *(_block(leaving, inner, leaving, 1, norm, convolutions) for _ in range(blocks - 1)),
    )


def _block(entering: int, inner: int, leaving: int, stride: int, norm: Norm, convolutions: int) -> nn.Module:
    kernels = [3, 3] if convolutions == 2 else [1, 3, 1]
    strides = [stride, 1] if convolutions == 2 else [1, stride, 1]
    channels = [entering, *[inner] * (convolutions - 1), leaving]
    layers: list[nn.Module] = []
    for (a, b), kernel, step in zip(pairwise(channels), kernels, strides, strict=True):
        layers += [*_normed(a, b, kernel, norm, step), nn.ReLU()]
    same = entering == leaving and stride == 1
    shortcut = nn.Identity() if same else nn.Sequential(*_normed(entering, leaving, 1, norm, stride))
    return Residual(nn.Sequential(*layers[:-1]), shortcut)


def _normed(entering: int, leaving: int, kernel: int, norm: Norm, stride: int = 1) -> list[nn.Module]:
    """Return a convolution without bias and its normalisation."""
    return [
        nn.Conv2d(entering, leaving, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(leaving) if norm == "batch" else nn.GroupNorm(8, leaving),
    ]
