"""Convolutional networks of the FinP experiments, for signals and small images."""

from __future__ import annotations

from math import prod

from torch import nn

from .shapes import logits, suited
from .slimmable import Slimmable

__all__ = ["cnn", "femnist_cnn", "tcn"]


def tcn(features: int, *, classes: int = 2, shape: tuple[int, ...] | None = None) -> nn.Module:
    """Build FinP's network of signals: twice a convolution of 64 channels, ReLU and pooling, then one linear layer.

    A signal of (9, 128), as in UCI HAR, has 64 x 30 = 1920 numbers before the linear layer.

    References
    ----------
    FinP (arXiv 2502.17748), the authors' code.

    Notes
    -----
    The authors' network has 10 outputs for the 6 activities of UCI HAR; ours has one for each class.

    Examples
    --------
    >>> sum(p.numel() for p in tcn(1152, classes=6, shape=(9, 128)).parameters())
    25670
    """
    channels, length = shape = suited("tcn", features, shape, (9, 128), 10)
    kept = ((length - 2) // 2 - 2) // 2
    return Slimmable(
        nn.Unflatten(1, shape),
        *(nn.Conv1d(channels, 64, 3), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(64, 64, 3), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Flatten(), nn.Linear(64 * kept, logits(classes))),
        block=range(4, 7),
    )


def cnn(features: int, *, classes: int = 2, shape: tuple[int, ...] | None = None) -> nn.Module:
    """Build FinP's network of small images: convolutions of 32 and 64 channels (5 x 5, pooled), then 512, 128, logits.

    An image of (3, 32, 32) has 64 x 5 x 5 = 1600 numbers before the linear layers, one of (1, 28, 28) has 1024.

    References
    ----------
    FinP (arXiv 2502.17748), the authors' code.

    Examples
    --------
    >>> sum(p.numel() for p in cnn(3072, classes=10, shape=(3, 32, 32)).parameters())
    940362
    """
    channels, *sides = shape = suited("cnn", features, shape, (3, 32, 32), 16)
    kept = prod(((side - 4) // 2 - 4) // 2 for side in sides)
    return Slimmable(
        nn.Unflatten(1, shape),
        *(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * kept, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU()),
        nn.Linear(128, logits(classes)),
        block=range(4, 7),
    )


def femnist_cnn(features: int, *, classes: int = 2, shape: tuple[int, ...] | None = None) -> nn.Module:
    """Build FinP's network of handwriting: two convolutions with GroupNorm and GELU, each halved by a strided one.

    An image of (1, 28, 28) has 64 x 7 x 7 = 3136 numbers before the linear layers of 256 and of one logit a class.

    References
    ----------
    FinP (arXiv 2502.17748), the authors' code.

    Examples
    --------
    >>> sum(p.numel() for p in femnist_cnn(784, classes=62, shape=(1, 28, 28)).parameters())
    858590
    """
    channels, *sides = shape = suited("femnist_cnn", features, shape, (1, 28, 28), 4)
    kept = prod(side // 2 // 2 for side in sides)
    return Slimmable(
        nn.Unflatten(1, shape),
        *(nn.Conv2d(channels, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.GELU(), nn.Conv2d(32, 32, 2, stride=2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(16, 64), nn.GELU(), nn.Conv2d(64, 64, 2, stride=2)),
        *(nn.Flatten(), nn.Linear(64 * kept, 256), nn.GELU(), nn.Linear(256, logits(classes))),
        block=range(5, 9),
    )
