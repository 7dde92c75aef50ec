"""Forward and backward passes of many clients at once, and the check that they are the module's own.

``chain`` writes both out for plain stacks of Linear and ReLU; ``swap`` replaces each Linear by a batched product and
leaves the user's forward as it is; ``vmap`` lets torch lift any forward. All are believed only after they gave the
module's own logits and gradients, one client at a time, in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..checks import BadInput
from .parts import Parts

Name = Literal["auto", "chain", "swap", "vmap", "loop"]
Named = Mapping[str, Tensor]


class Passes(NamedTuple):
    """``forward``: x (S, B, f) -> logits; ``backward``: the gradient with respect to them -> the parameters'.

    Logits are (S, B), or (S, B, C) where there are more than two classes. Called in turn, under ``torch.no_grad``.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor], None]


class Stacking(NamedTuple):
    """``turned``: names kept as (in, out); ``bind(params, grads)`` -> passes that read the one and fill the other."""

    turned: frozenset[str]
    bind: Callable[[Named, Named], Passes]


def logits_of(module: nn.Module, tensors: Named, x: Tensor) -> Tensor:
    """Return the logits (B,) or (B, C) of one client: the module as the user wrote it, on these tensors."""
    out: Tensor = functional_call(module, dict(tensors), (x,))
    return out.squeeze(-1) if out.dim() == 2 else out


class _Batched(nn.Module):
    """A Linear of S clients with weights (S, in, out) set from outside; it remembers what came in and what went out."""

    weight: Any = None
    bias: Any = None
    taken: Any = None
    given: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.given is not None:
            raise BadInput("engine 'swap' takes each Linear once in a forward; use engine 'auto'")
        self.taken = x.detach()
        out = torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)
        self.given = out if out.requires_grad else out.requires_grad_()
        return self.given  # type: ignore[no-any-return]


def swap(module: nn.Module) -> Stacking:
    """Replace every Linear by ``baddbmm`` with weights kept (S, in, out).

    torch differentiates down to the layers' outputs; the weights' gradients are written into their places from there.
    """
    twin = copy.deepcopy(module).train()
    layers: dict[str, _Batched] = {}
    if isinstance(twin, nn.Linear):
        twin = layers[""] = _Batched()
    for path, layer in list(twin.named_modules()):
        if type(layer) is nn.Linear:
            parent, _, name = path.rpartition(".")
            layers[f"{path}."] = _Batched()
            setattr(twin.get_submodule(parent), name, layers[f"{path}."])
        elif list(layer.parameters(recurse=False)):
            raise BadInput(f"engine 'swap' knows Linear layers only, not {type(layer).__name__}; use engine 'auto'")

    def bind(params: Named, grads: Named) -> Passes:
        last: list[Tensor] = []

        def forward(x: Tensor) -> Tensor:
            for path, layer in layers.items():
                bias = params.get(path + "bias")
                layer.weight, layer.bias = params[path + "weight"].detach(), None if bias is None else bias.unsqueeze(1)
                layer.given = None
            with torch.enable_grad():
                out: Tensor = twin(x)
                last[:] = [out.squeeze(-1) if out.dim() == 3 else out]
            return last[0].detach()

        def backward(slope: Tensor) -> None:
            outs = [layer.given for layer in layers.values()]
            for (path, layer), back in zip(layers.items(), torch.autograd.grad(last.pop(), outs, slope), strict=True):
                torch.bmm(layer.taken.mT, back, out=grads[path + "weight"])
                if layer.bias is not None:
                    torch.sum(back, 1, out=grads[path + "bias"])

        return Passes(forward, backward)

    return Stacking(frozenset(path + "weight" for path in layers), bind)


def vmap(module: nn.Module) -> Stacking:
    """Let torch lift the module's forward over the slot axis; the gradient stays plain autograd."""
    twin = copy.deepcopy(module).train()

    def one(tensors: Named, x: Tensor) -> Tensor:
        return logits_of(twin, tensors, x)

    lifted = torch.vmap(one)

    def bind(params: Named, grads: Named) -> Passes:
        leaves = {n: p.detach().requires_grad_() for n, p in params.items()}
        filled, listed = [grads[n] for n in params], list(leaves.values())
        last: list[Tensor] = []

        def forward(x: Tensor) -> Tensor:
            with torch.enable_grad():
                last[:] = [lifted(leaves, x)]
            return last[0].detach()

        def backward(slope: Tensor) -> None:
            torch._foreach_copy_(filled, torch.autograd.grad(last.pop(), listed, slope, materialize_grads=True))

        return Passes(forward, backward)

    return Stacking(frozenset(), bind)


def whole_lines(parts: Parts) -> bool:
    """Say whether all matrices of a client fill whole cache lines.

    torch lays gradients of S clients side by side, and a product's last bits depend on how its result is aligned in
    memory: with odd sizes they would depend on a client's place among the others.
    """
    return all(prod(shape) % 16 == 0 for shape in parts.whole.shapes if len(shape) > 1)


def linear_names(module: nn.Module) -> list[str]:
    """Return what the tensors' names of each Linear begin with, in Linear, ReLU, Linear, ..., Linear.

    Raises
    ------
    BadInput : the module is something else
    """
    layers = {path: m for path, m in module.named_modules() if not isinstance(m, nn.Sequential)}
    kinds = [type(m) for m in layers.values()]
    if kinds != ([nn.Linear, nn.ReLU] * len(kinds))[: len(kinds)] or len(kinds) % 2 == 0:
        raise BadInput("engine 'chain' knows Linear, ReLU, Linear, ... only; use engine 'auto'")
    return [f"{path}." if path else "" for path, m in layers.items() if isinstance(m, nn.Linear)]


def chain(module: nn.Module) -> Stacking:
    """Write out both passes of Linear, ReLU, Linear, ..., Linear, with buffers that all steps use again."""
    names = linear_names(module)
    rectify_back = torch.ops.aten.threshold_backward.grad_input

    def bind(params: Named, grads: Named) -> Passes:
        weights, biases = [params[n + "weight"] for n in names], [params.get(n + "bias") for n in names]
        biases = [None if b is None else b.unsqueeze(1) for b in biases]
        slopes, lifts = [grads[n + "weight"] for n in names], [grads.get(n + "bias") for n in names]
        outs: list[Tensor] = []
        backs: list[Tensor] = []
        ins: list[Tensor] = []

        def forward(x: Tensor) -> Tensor:
            if not outs or outs[0].shape[1] != x.shape[1]:
                outs[:] = [x.new_empty(*x.shape[:2], w.shape[2]) for w in weights]
                backs[:] = [torch.empty_like(o) for o in outs]
            ins[:] = [x, *outs[:-1]]
            for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                if bias is None:
                    torch.bmm(ins[i], weight, out=outs[i])
                else:
                    torch.baddbmm(bias, ins[i], weight, out=outs[i])
                if i < len(weights) - 1:
                    outs[i].relu_()
            return outs[-1].squeeze(-1)

        def backward(slope: Tensor) -> None:
            back = slope.view(outs[-1].shape)
            for i in reversed(range(len(weights))):
                torch.bmm(ins[i].mT, back, out=slopes[i])
                if (lift := lifts[i]) is not None:
                    torch.sum(back, 1, out=lift)
                if i:
                    torch.bmm(back, weights[i].mT, out=backs[i - 1])
                    back = rectify_back(backs[i - 1], outs[i - 1], 0, grad_input=backs[i - 1])

        return Passes(forward, backward)

    return Stacking(frozenset(n + "weight" for n in names), bind)


def agrees(module: nn.Module, stacking: Stacking, x: Tensor) -> bool:
    """Compare logits and gradients with the module's own, on two different clients in float64.

    The module sees each client's rows in two parts, so that one whose rows see each other does not agree: in a stacked
    batch they would see the padding too.
    """
    module = copy.deepcopy(module).double().train()
    x = x.expand(2, *x.shape[1:])[:2].double() if len(x) == 1 else x[:2].double()
    given = {n: p.detach() for n, p in module.named_parameters()}
    mine = [{n: (p * (1 + k / 8) + k / 64).requires_grad_() for n, p in given.items()} for k in range(2)]
    cut = (x.shape[1] + 1) // 2
    right = torch.stack(
        [
            torch.cat([logits_of(module, p, part) for part in torch.split(rows, cut)])
            for p, rows in zip(mine, x, strict=True)
        ]
    )
    pull = torch.linspace(-1, 1, right.numel(), dtype=right.dtype).view_as(right)
    own = [
        torch.autograd.grad((z * w).sum(), list(p.values()), materialize_grads=True)
        for z, w, p in zip(right, pull, mine, strict=True)
    ]
    both = {n: torch.stack([p[n].detach() for p in mine]) for n in given}
    kept = {n: b.mT.contiguous() if n in stacking.turned else b for n, b in both.items()}
    grads = {n: torch.zeros_like(b) for n, b in kept.items()}
    passes = stacking.bind(kept, grads)
    with torch.no_grad():
        got = passes.forward(x)
        if got.shape != right.shape:
            return False
        passes.backward(pull)
    found = [g.mT if n in stacking.turned else g for n, g in grads.items()]
    pairs = [(got, right), *((f, torch.stack(o)) for f, o in zip(found, zip(*own, strict=True), strict=True))]
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in pairs)


def convolves(module: nn.Module) -> bool:
    """Say whether there is a convolution in the module."""
    return any(isinstance(m, nn.modules.conv._ConvNd) for m in module.modules())


def choose(engine: Name, module: nn.Module, parts: Parts, x: Tensor) -> Stacking | None:
    """Return the first stacking that agrees with the module on ``x`` (S, B, f); None means the loop.

    Convolutions take the loop: on a CPU stacking them is 1.5 to 2 times slower. So do modules with buffers or frozen
    parameters, all whose forward draws random numbers (they never agree with themselves), and those that only ``vmap``
    could take but whose matrices do not fill whole cache lines.
    """
    plain = set(parts.whole.names) == parts.trained and not parts.counters
    if engine == "loop" or (engine == "auto" and (convolves(module) or not plain)):
        return None
    if not plain:
        raise BadInput(f"engine {engine!r} cannot train a module with buffers or frozen parameters; use engine 'loop'")
    ways = {"chain": chain, "swap": swap, "vmap": vmap}
    if engine == "auto" and not whole_lines(parts):
        del ways["vmap"]
    for make in ways.values() if engine == "auto" else (ways[engine],):
        try:
            stacking = make(module)
            if agrees(module, stacking, x):
                return stacking
        except BadInput:
            if engine != "auto":
                raise
        except Exception as e:  # whatever the user's forward raises on stacked input: this way is closed
            if engine != "auto":
                why = " ".join(str(e).split())
                raise BadInput(f"engine {engine!r} cannot train this module ({why}); use engine 'auto'") from e
    if engine != "auto":
        raise BadInput(f"engine {engine!r} does not give this module's own results; use engine 'auto'")
    return None
