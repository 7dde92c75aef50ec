"""How far a network's output moves with its input, at given rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import BadInput


def jacobian_norm(
    f: Callable[[Tensor], Tensor], x: Tensor, draws: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Return the squared Frobenius norm of the Jacobian of f, averaged over the rows.

        (1/B) sum_i |J_i|_F^2;   drawn:  E |J'z|^2 over random signs z

    Parameters
    ----------
    f : (B, ...) -> (B, m) or (B,), every row by itself; a module keeps its training mode
    x : (B, ...) rows; no gradient is left on it
    draws : random directions of the output, whose average tends to the norm; None takes all m, which is exact
    generator : of the draws

    Returns
    -------
    a tensor (), differentiable with respect to what f depends on

    Raises
    ------
    BadInput : draws without a generator, or less than 1; no rows

    Examples
    --------
    The norm of an affine map is that of its matrix, wherever it is taken: 1 + 4 + 9 + 16.

    >>> w = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> jacobian_norm(lambda x: x @ w.T + 7, torch.zeros(3, 2))
    tensor(30.)

    References
    ----------
    Hoffman, Roberts and Yaida (arXiv 1908.02729), who draw directions from the sphere.
    """
    if not len(x):
        raise BadInput("a mean Jacobian norm needs a row at least, got none")
    if draws is not None and (draws < 1 or generator is None):
        raise BadInput(f"random directions need draws >= 1 and a generator, got {draws} and {generator}")
    rows = x.detach().requires_grad_()
    with torch.enable_grad():
        out = f(rows).reshape(len(rows), -1)
        count = out.shape[1] if draws is None else draws
        total = out.new_zeros(())
        for j in range(count):
            if draws is None:
                z = torch.zeros_like(out)
                z[:, j] = 1
            else:
                z = torch.randint(0, 2, out.shape, generator=generator).to(out) * 2 - 1
            (pulled,) = torch.autograd.grad(out, rows, z, create_graph=True, materialize_grads=True)
            total = total + pulled.square().sum() / len(rows)
    return total if draws is None else total / draws
