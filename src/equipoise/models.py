"""Models as functions that build a torch module; the catalogue is ``__all__``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import nn

from .checks import BadInput, outside

__all__ = ["logistic", "mlp"]


def mlp(features: int, *, hidden: Sequence[int] = (64, 32, 16)) -> nn.Module:
    """Build a multilayer perceptron with ReLU and one logit, features -> 64 -> 32 -> 16 -> 1 as in Fairis.

    Examples
    --------
    >>> sum(p.numel() for p in mlp(100).parameters())
    9089
    """
    layers: list[nn.Module] = []
    width = features
    for wide in hidden:
        layers += [nn.Linear(width, wide), nn.ReLU()]
        width = wide
    return nn.Sequential(*layers, nn.Linear(width, 1))


def logistic(features: int) -> nn.Module:
    """Build a logistic regression: one logit, linear in the features.

    Examples
    --------
    >>> sum(p.numel() for p in logistic(3).parameters())
    4
    """
    return nn.Sequential(nn.Linear(features, 1))


def shared_names(module: nn.Module, shared: int | None) -> tuple[str, ...]:
    """Name the tensors of the first ``shared`` layers: those that travel in SplitML.

    A layer is a module with tensors of its own, in the order in which they were registered. ``None`` shares all of
    them (full-model federated learning), 0 none (a silo). Float buffers travel with their layer.

    Raises
    ------
    BadInput
        If the module has fewer layers.

    Examples
    --------
    >>> shared_names(mlp(3, hidden=(2,)), 1)
    ('0.weight', '0.bias')
    >>> shared_names(mlp(3, hidden=(2,)), 0)
    ()
    >>> shared_names(mlp(3, hidden=(2,)), 5)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: cannot share 5 layers of a model that has 2; use 0..2, or leave it out to share all
    """
    floats = {n for n, t in module.state_dict().items() if t.is_floating_point()}
    layers: list[list[str]] = []
    taken: set[int] = set()
    for path, layer in module.named_modules():
        own = [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]
        names = [f"{path}.{n}" if path else n for n, t in own if id(t) not in taken]
        taken |= {id(t) for _, t in own}
        if names := [n for n in names if n in floats]:
            layers.append(names)
    if shared is not None and not 0 <= shared <= len(layers):
        raise BadInput(
            f"cannot share {shared} layers of a model that has {len(layers)}; "
            f"use 0..{len(layers)}, or leave it out to share all"
        )
    return tuple(name for layer in layers[:shared] for name in layer)


def load_factory(where: str) -> Callable[[int], nn.Module]:
    """Import a user's model factory from ``"module:factory"``; it is called with the number of features.

    Every module that it makes is checked: it must be a torch module that turns (B, features) into (B,) or (B, 1).

    Raises
    ------
    BadInput
        If ``outside`` refuses it, or it fails or makes something else.

    Examples
    --------
    >>> load_factory("equipoise.models:logistic")(3)
    Sequential(
      (0): Linear(in_features=3, out_features=1, bias=True)
    )
    """
    factory = outside("model", where, "turns a number of features into a torch module")

    def build(features: int) -> nn.Module:
        return checked(where, factory(features), features)

    return build


def checked(where: str, module: object, features: int) -> nn.Module:
    """Return ``module`` if it is a torch module that turns (B, features) into one logit a row; otherwise refuse it."""
    if not isinstance(module, nn.Module):
        raise BadInput(f"{where!r} made a {type(module).__name__}, not a torch.nn.Module")
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            trial = copy.deepcopy(module)  # a forward in training mode moves running means
            trial.train()(torch.zeros(3, features))
            out = trial.eval()(torch.zeros(3, features))
    except Exception as e:  # whatever the user's forward raises
        raise BadInput(f"{where!r} does not take rows of {features} features: {_line(e)}") from e
    if not isinstance(out, torch.Tensor) or tuple(out.shape) not in ((3,), (3, 1)):
        shape = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise BadInput(f"{where!r} gives {shape} for 3 rows; it must give one logit a row, (3,) or (3, 1)")
    if not any(p.requires_grad for p in module.parameters()):
        raise BadInput(f"{where!r} made a module without a parameter to train; give it one, or unfreeze one")
    return module


def _line(e: Exception) -> str:
    """Return a message on one line; torch writes several."""
    return " ".join(str(e).split())
