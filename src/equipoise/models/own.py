"""A user's own model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..checks import BadInput, nearest, outside
from .shapes import logits


def load_factory(
    where: str, *, classes: int = 2, shape: tuple[int, ...] | None = None, **own: Any
) -> Callable[[int], nn.Module]:
    """Import a user's model factory from ``"module:factory"``; it is called with the number of features.

    It is also given ``classes`` and ``shape``, the (channels, ...) of a row, if it has parameters of these names, and
    the parameters of its ``own``.
    Every module that it makes is checked: it must be a torch module that turns (B, features) into (B,) or (B, 1), or
    into (B, classes) where there are more than two.

    Raises
    ------
    BadInput
        If ``outside`` refuses it, it has no parameter of a name in ``own``, it fails or makes something else.

    Examples
    --------
    >>> load_factory("equipoise.models:logistic")(3)
    Sequential(
      (0): Linear(in_features=3, out_features=1, bias=True)
    )
    >>> load_factory("equipoise.models:cnn", classes=10, shape=(1, 28, 28))(784)[-1]
    Linear(in_features=128, out_features=10, bias=True)
    """
    factory = outside("model", where, "turns a number of features into a torch module")
    try:
        takes = list(inspect.signature(factory).parameters)
    except ValueError:  # some functions written in C do not tell
        takes = []
    if unknown := [name for name in own if name not in takes]:
        raise BadInput(f"{where!r} has no parameter {unknown[0]!r}; {nearest(unknown[0], takes)}")
    known = {name: value for name, value in (("classes", classes), ("shape", shape)) if name in takes}

    def build(features: int) -> nn.Module:
        return checked(where, factory(features, **known, **own), features, classes)

    return build


def checked(where: str, module: object, features: int, classes: int = 2) -> nn.Module:
    """Return ``module`` if it is a torch module that turns (B, features) into the logits of a row; otherwise refuse it.

    These are (B,) or (B, 1) for two classes and (B, classes) for more.
    """
    if not isinstance(module, nn.Module):
        raise BadInput(f"{where!r} made a {type(module).__name__}, not a torch.nn.Module")
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            trial = copy.deepcopy(module)  # a forward in training mode moves running means
            trial.train()(torch.zeros(3, features))
            out = trial.eval()(torch.zeros(3, features))
    except Exception as e:  # whatever the user's forward raises
        raise BadInput(f"{where!r} does not take rows of {features} features: {_line(e)}") from e
    wanted = [(3, classes)] if logits(classes) > 1 else [(3,), (3, 1)]
    if not isinstance(out, torch.Tensor) or tuple(out.shape) not in wanted:
        shape = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        many = "one logit a row" if classes == 2 else f"one logit a row for each of {classes} classes"
        raise BadInput(f"{where!r} gives {shape} for 3 rows; it must give {many}, {' or '.join(map(str, wanted))}")
    if not any(p.requires_grad for p in module.parameters()):
        raise BadInput(f"{where!r} made a module without a parameter to train; give it one, or unfreeze one")
    return module


def _line(e: Exception) -> str:
    """Return a message on one line; torch writes several."""
    return " ".join(str(e).split())
