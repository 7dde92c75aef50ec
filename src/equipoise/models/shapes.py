"""What a flat row is made of, and how many logits it gets."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..checks import BadInput


def logits(classes: int) -> int:
    """Return how many logits a row has: one for two classes, else one for each class.

    Examples
    --------
    >>> logits(2), logits(10)
    (1, 10)
    """
    if classes < 2:
        raise BadInput(f"a model needs at least 2 classes, got {classes}; give the data two kinds of label")
    return 1 if classes == 2 else classes


def suited(
    model: str, features: int, shape: Sequence[int] | None, example: tuple[int, ...], least: int
) -> tuple[int, ...]:
    """Return the shape of a row if the model can take it.

    Parameters
    ----------
    model : its name, for messages
    features : numbers in a flat row
    shape : (channels, length) of a signal or (channels, height, width) of an image
    example : a shape that suits the model
    least : smallest length, height and width that it can take

    Raises
    ------
    BadInput
        If there is no shape, it has another number of axes, it is too small, or it does not hold ``features`` numbers.

    Examples
    --------
    >>> suited("cnn", 784, [1, 28, 28], (3, 32, 32), 16)
    (1, 28, 28)
    >>> suited("cnn", 561, None, (3, 32, 32), 16)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: model cnn needs rows of a shape such as (3, 32, 32), and these 561 features have ...
    """
    if shape is None:
        raise BadInput(
            f"model {model} needs rows of a shape such as {example}, and these {features} features have none; take mlp"
        )
    shape = tuple(shape)
    if len(shape) != len(example) or shape[0] < 1 or min(shape[1:]) < least:
        raise BadInput(
            f"model {model} cannot take rows of shape {shape}; it needs {len(example)} axes such as {example}, "
            f"each but the first at least {least}"
        )
    if prod(shape) != features:
        raise BadInput(
            f"rows have {features} features, and shape {shape} holds {prod(shape)}; give the rows' own shape"
        )
    return shape
