"""Models of rows that are plain lists of features."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ..checks import BadInput
from .shapes import logits
from .slimmable import Slimmable

__all__ = ["logistic", "mlp"]


def mlp(features: int, *, classes: int = 2, hidden: Sequence[int] = (64, 32, 16)) -> nn.Module:
    """Build a multilayer perceptron with ReLU, features -> 64 -> 32 -> 16 -> 1 as in Fairis.

    Without hidden layers it is ``logistic``.

    Source: Fairis (arXiv 2608.06469).

    Raises
    ------
    BadInput
        If a width is no whole number of at least 1.

    Examples
    --------
    >>> sum(p.numel() for p in mlp(100).parameters())
    9089
    >>> sum(p.numel() for p in mlp(64, classes=10, hidden=(32,)).parameters())  # 64 x 32 + 32 + 32 x 10 + 10
    2410
    """
    if bad := [w for w in hidden if not isinstance(w, int) or w < 1]:
        raise BadInput(f"hidden holds {bad[0]!r}; give the width of every hidden layer, a whole number of at least 1")
    if not len(hidden):
        return logistic(features, classes=classes)
    layers: list[nn.Module] = []
    width = features
    for wide in hidden:
        layers += [nn.Linear(width, wide), nn.ReLU()]
        width = wide
    last = range(len(layers) - 2, len(layers))
    return Slimmable(*layers, nn.Linear(width, logits(classes)), block=last)


def logistic(features: int, *, classes: int = 2) -> nn.Module:
    """Build a logistic regression: logits that are linear in the features.

    Examples
    --------
    >>> sum(p.numel() for p in logistic(3).parameters())
    4
    """
    return nn.Sequential(nn.Linear(features, logits(classes)))
