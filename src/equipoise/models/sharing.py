"""Which tensors of a model travel."""

from __future__ import annotations

from typing import Literal

from torch import nn

from ..checks import BadInput, one_of

Buffers = Literal["average", "local", "refuse"]


def shared_names(module: nn.Module, shared: int | None, buffers: Buffers = "average") -> tuple[str, ...]:
    """Name the tensors of the first ``shared`` layers: those that travel in SplitML.

    A layer is a module with tensors of its own, in the order in which they were registered. ``None`` shares all of
    them (full-model federated learning), 0 none (a silo).

    Parameters
    ----------
    buffers : what becomes of float buffers in these layers, such as the running mean and variance of BatchNorm.
        "average": they travel with their layer. "local": they stay with the client and only its parameters travel.
        "refuse": a model that has one is refused.

    Raises
    ------
    BadInput
        If the module has fewer layers, or a buffer is refused.

    References
    ----------
    Andreux et al., Siloed federated learning for multi-centric histopathology datasets (SiloBN, DCL 2020), for "local".

    Examples
    --------
    >>> from .dense import mlp
    >>> shared_names(mlp(3, hidden=(2,)), 1)
    ('0.weight', '0.bias')
    >>> shared_names(mlp(3, hidden=(2,)), 0)
    ()
    >>> shared_names(mlp(3, hidden=(2,)), 5)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: cannot share 5 layers of a model that has 2; use 0..2, or leave it out to share all
    >>> normed = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    >>> shared_names(normed, None, "local")
    ('0.weight', '0.bias', '1.weight', '1.bias')
    >>> shared_names(normed, None, "refuse")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: the model has the buffer '1.running_mean', and buffers = "refuse"; ...
    """
    one_of("buffers", buffers, ("average", "local", "refuse"))
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
    names = [name for layer in layers[:shared] for name in layer]
    if buffers == "average":
        return tuple(names)
    kept = {n for n, _ in module.named_buffers()}
    if buffers == "refuse" and (found := [n for n in names if n in kept]):
        raise BadInput(
            f'the model has the buffer {found[0]!r}, and buffers = "refuse"; take "average", "local", or a model '
            "without batch normalisation"
        )
    return tuple(n for n in names if n not in kept)
