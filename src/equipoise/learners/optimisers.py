"""Adam and SGD on the stacked parameters of many clients: lists of (S, numbers) matrices, changed in place.

torch.optim is not used: its first import takes more than a second, and it knows one parameter set only. Stacked
matrices have rows of whole ``LANES``: a vector kernel treats the last few numbers of an array by other instructions,
whose bits differ, so that a client's result would depend on where it stands among the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LANES = 64
"""Numbers per slot are padded to a multiple of this; at least twice the widest vector register."""

Tensors = Sequence[Tensor]


def padded(size: int) -> int:
    """Return ``size`` rounded up to whole lanes."""
    return -(-size // LANES) * LANES


class Optimiser(NamedTuple):
    """``state``: what it remembers per parameter; ``step(params, grads, state, t)``, t = 1, 2, ..., changes in place.

    ``counts``: t matters. Gradients must be contiguous: torch's fused kernel silently reads others in the wrong order.
    """

    state: tuple[str, ...]
    step: Callable[[Tensors, Tensors, Sequence[Tensors], int], None]
    counts: bool = False


def sgd(lr: float, momentum: float = 0.0) -> Optimiser:
    """Stochastic gradient descent: ``m = momentum m + g``, ``p = p - lr m``."""

    def step(params: Tensors, grads: Tensors, state: Sequence[Tensors], t: int) -> None:
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            p.add_(state[0][i].mul_(momentum).add_(g) if state else g, alpha=-lr)

    return Optimiser(("m",) if momentum else (), step)


def adam(lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> Optimiser:
    """Adam (Kingma and Ba, 2015) as torch.optim.Adam computes it, in one fused kernel where torch has it."""
    fused = getattr(torch, "_fused_adam_", None)

    def step(params: Tensors, grads: Tensors, state: Sequence[Tensors], t: int) -> None:
        if fused is None:
            return adam_plain(params, grads, state, t, lr, betas, eps)
        grads = [g.contiguous() for g in grads]
        fused(
            params, grads, state[0], state[1], [], [torch.tensor(float(t))] * len(params),
            lr=lr, beta1=betas[0], beta2=betas[1], weight_decay=0.0, eps=eps, amsgrad=False, maximize=False,
        )  # fmt: skip

    return Optimiser(("m", "v"), step, counts=True)


def adam_plain(
    params: Tensors,
    grads: Tensors,
    state: Sequence[Tensors],
    t: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One step of Adam written out: the oracle of the fused kernel, and the fallback without it."""
    for p, g, m, v in zip(params, grads, *state, strict=True):
        m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
        v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        scale = v.sqrt().div_((1 - betas[1] ** t) ** 0.5).add_(eps)
        p.addcdiv_(m, scale, value=-lr / (1 - betas[0] ** t))
