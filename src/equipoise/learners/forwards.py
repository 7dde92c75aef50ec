"""One forward pass of many clients at once, and the check that it is the module's own.

``swap`` replaces each Linear by a batched product and leaves the user's forward as it is; ``vmap`` lets torch lift
any forward. Both are believed only after they gave the module's own results, one client at a time, in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..checks import BadInput
from .parts import Parts

Name = Literal["auto", "swap", "vmap", "loop"]
Bound = Callable[[Tensor], Tensor]
"""x (S, B, f) -> logits (S, B) of the parameters it was bound to."""


class Forward(NamedTuple):
    """``turned``: names kept as (in, out); ``bind(params name -> (S, *kept shape))`` -> the forward of these slots."""

    turned: frozenset[str]
    bind: Callable[[Mapping[str, Tensor]], Bound]


def logits_of(module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the logits (B,) of one client: the module as the user wrote it, on these tensors."""
    out: Tensor = functional_call(module, dict(tensors), (x,))
    return out.squeeze(-1) if out.dim() == 2 else out


class _Stacked(nn.Module):
    """A Linear of S clients; its tensors are set from outside."""

    weight: Any = None
    bias: Any = None

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)


def swap(module: nn.Module) -> Forward:
    """Replace every Linear by ``baddbmm`` with weights kept (S, in, out)."""
    twin = copy.deepcopy(module)
    layers: dict[str, _Stacked] = {}
    if isinstance(twin, nn.Linear):
        twin = layers[""] = _Stacked()
    for path, layer in list(twin.named_modules()):
        if type(layer) is nn.Linear:
            parent, _, name = path.rpartition(".")
            layers[path] = _Stacked()
            setattr(twin.get_submodule(parent), name, layers[path])
        elif list(layer.parameters(recurse=False)):
            raise BadInput(f"engine 'swap' knows Linear layers only, not {type(layer).__name__}; use engine 'auto'")
    twin.train()
    dot = {path: f"{path}." if path else "" for path in layers}

    def bind(params: Mapping[str, Tensor]) -> Bound:
        for path, layer in layers.items():
            layer.weight = params[dot[path] + "weight"]
            bias = params.get(dot[path] + "bias")
            layer.bias = None if bias is None else bias.unsqueeze(1)

        def forward(x: Tensor) -> Tensor:
            out: Tensor = twin(x)
            return out.squeeze(-1) if out.dim() == 3 else out

        return forward

    return Forward(frozenset(dot[path] + "weight" for path in layers), bind)


def vmap(module: nn.Module) -> Forward:
    """Let torch lift the module's forward over the slot axis; the gradient stays plain autograd."""
    twin = copy.deepcopy(module).train()

    def one(tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return logits_of(twin, tensors, x)

    lifted = torch.vmap(one)

    def bind(params: Mapping[str, Tensor]) -> Bound:
        given = dict(params)

        def forward(x: Tensor) -> Tensor:
            out: Tensor = lifted(given, x)
            return out

        return forward

    return Forward(frozenset(), bind)


def agrees(module: nn.Module, forward: Forward, x: Tensor) -> bool:
    """Compare logits and gradients with the module's own, on two different clients in float64."""
    module = copy.deepcopy(module).double().train()
    x = x[:2].double()
    given = {n: p.detach() for n, p in module.named_parameters()}
    mine = [{n: (p * (1 + k / 8) + k / 64).requires_grad_() for n, p in given.items()} for k in range(2)]
    right = torch.stack([logits_of(module, p, rows) for p, rows in zip(mine, x, strict=True)])
    both = {n: torch.stack([p[n].detach() for p in mine]) for n in given}
    kept = {n: (b.mT.contiguous() if n in forward.turned else b).requires_grad_() for n, b in both.items()}
    got = forward.bind(kept)(x)
    if got.shape != right.shape or not torch.allclose(got, right, rtol=1e-9, atol=1e-12):
        return False
    pull = torch.linspace(-1, 1, got.numel(), dtype=got.dtype).view_as(got)
    grads = torch.autograd.grad((got * pull).sum(), list(kept.values()))
    for k, p in enumerate(mine):
        own = torch.autograd.grad((right[k] * pull[k]).sum(), list(p.values()))
        for n, a, b in zip(kept, grads, own, strict=True):
            if not torch.allclose(a[k].mT if n in forward.turned else a[k], b, rtol=1e-9, atol=1e-12):
                return False
    return True


def choose(engine: Name, module: nn.Module, parts: Parts, x: Tensor) -> Forward | None:
    """Return the first stacked forward that agrees with the module on ``x`` (S >= 2, B, f); None means the loop.

    Convolutions take the loop: on a CPU stacking them is 1.5 to 2 times slower. So do modules with buffers or frozen
    parameters, and all whose forward draws random numbers (they never agree with themselves).
    """
    plain = set(parts.whole.names) == parts.trained and not parts.counters
    convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in module.modules())
    if engine == "loop" or (engine == "auto" and (convolves or not plain)):
        return None
    if not plain:
        raise BadInput(f"engine {engine!r} cannot train a module with buffers or frozen parameters; use engine 'loop'")
    for make in {"swap": (swap,), "vmap": (vmap,), "auto": (swap, vmap)}[engine]:
        try:
            forward = make(module)
            if agrees(module, forward, x):
                return forward
        except Exception:  # whatever the user's forward raises on stacked input: this way is closed
            if engine != "auto":
                raise
    if engine != "auto":
        raise BadInput(f"engine {engine!r} does not give this module's own results; use engine 'auto'")
    return None
