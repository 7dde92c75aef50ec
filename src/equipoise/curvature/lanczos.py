"""The eigenvalue at the end of a spectrum: Lanczos on S symmetric operators at once, or a dense solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..checks import BadInput, one_of
from ..rounds import stream
from ..types import Array

By = Literal["algebraic", "magnitude"]
Product = Callable[[Tensor], Tensor]
"""S symmetric operators, each times its own vector: (S, P) -> (S, P)."""


class Pair(NamedTuple):
    """``value`` (S,), its unit ``vector`` (S, P), and ``error`` (S,): an eigenvalue lies that near; NaN where lost."""

    value: Tensor
    vector: Tensor
    error: Tensor


def top_eigenvalue(
    hessian: Array | Tensor | Product,
    start: Tensor | None = None,
    *,
    by: By = "algebraic",
    budget: int = 100,
    tolerance: float = 1e-3,
    exact_below: int = 2000,
) -> Any:
    """Return the top eigenvalue of a symmetric matrix, or of an operator known by its products with vectors.

        lambda_max = max_v v'Hv / v'v   (algebraic),   the lambda of largest |lambda|, sign kept   (magnitude)

    Parameters
    ----------
    hessian : matrix (P, P), or S of them (S, P, P), or a product (S, P) -> (S, P)
    start : (S, P), needed with a product; where a row is near the eigenvector, few products are enough
    by : which end of the spectrum "top" means; they differ where the most negative eigenvalue is the largest in size
    budget : Hessian-vector products at most
    tolerance : stop where ``|Hv - lambda v| <= tolerance |lambda|``; then an eigenvalue lies that near
    exact_below : a matrix of fewer rows is solved exactly, by ``eigvalsh``

    Returns
    -------
    a float for one array (P, P); otherwise (S,), as the type that came in; NaN where the operator is not finite

    Raises
    ------
    BadInput : a matrix that is not square, or a product without a start

    Examples
    --------
    >>> saddle = np.diag([3.0, -5.0, 1.0])
    >>> top_eigenvalue(saddle), top_eigenvalue(saddle, by="magnitude")
    (3.0, -5.0)

    References
    ----------
    Golub and Van Loan, Matrix Computations, chapter 10.

    Notes
    -----
    FinP's authors stop power iteration where two estimates in a row are near each other, which also happens far from
    the eigenvalue. A small residual is a proof.
    """
    one_of("by", by, ("algebraic", "magnitude"))
    if callable(hessian) and not isinstance(hessian, Tensor):
        if start is None:
            raise BadInput("a Hessian-vector product needs a start; pass vectors (S, P), such as random_start(...)")
        return top_eigenpair(hessian, start, by=by, budget=budget, tolerance=tolerance).value
    given = torch.as_tensor(hessian)
    if given.dim() not in (2, 3) or given.shape[-1] != given.shape[-2]:
        raise BadInput(f"a Hessian must be square, (P, P) or (S, P, P), got shape {tuple(given.shape)}")
    matrix = given.double() if not given.is_floating_point() else given
    matrix = matrix.unsqueeze(0) if matrix.dim() == 2 else matrix
    if matrix.shape[-1] < exact_below:
        value = torch.cat([end(one.unsqueeze(0), by)[0] for one in matrix])  # alone: bits depend on place in memory
    else:
        keys = [(0, 0, s) for s in range(len(matrix))]
        first = random_start(keys, matrix.shape[-1]).to(matrix) if start is None else start
        value = top_eigenpair(lambda v: inner(matrix, v), first, by=by, budget=budget, tolerance=tolerance).value
    if given.dim() == 2:
        return value[0] if isinstance(hessian, Tensor) else value.item()
    return value if isinstance(hessian, Tensor) else value.numpy()


def top_eigenpair(
    product: Product, start: Tensor, *, by: By = "algebraic", budget: int = 100, tolerance: float = 1e-3
) -> Pair:
    """Run Lanczos with full reorthogonalisation on S operators at once, each from its own start.

    Parameters are those of ``top_eigenvalue``. A slot stops by itself: its figures do not depend on the others'.
    A start of 0 has no direction: its value is 0 and so is its vector.

    Examples
    --------
    >>> pair = top_eigenpair(lambda v: v * torch.tensor([[1.0, 2.0]]), torch.ones(1, 2))
    >>> pair.value, pair.vector.abs().round(decimals=3)
    (tensor([2.]), tensor([[0., 1.]]))
    """
    slots, size = start.shape
    most = min(max(budget, 1), size)
    start = whole_lines(start)
    basis = start.new_empty(slots, most, start.shape[1])  # pages that are never written cost nothing
    small = start.new_zeros(slots, most, most)
    value, error = start.new_zeros(slots), start.new_zeros(slots)
    weights = start.new_zeros(slots, most)
    running = torch.ones(slots, dtype=torch.bool)
    q, rest = unit(start)
    for m in range(most):
        basis[:, m] = q
        known = basis[:, : m + 1]
        w = whole_lines(product(q[:, :size]))
        small[:, m, m] = (q * w).sum(1)
        size_of_w = w.norm(dim=1)
        for _ in range(2):  # once is not enough in floating point
            w = w - combined(known, inner(known, w))
        q, rest = unit(w)
        # what is left of w is rounding: the space holds all that can be reached from the start
        spent = ~(rest > 16 * torch.finfo(w.dtype).eps * size_of_w)
        if m == most - 1 or tolerance > 0 or (spent & running).any():
            theta, s = end(small[:, : m + 1, : m + 1], by)
            off = rest * s[:, -1].abs()
            value, error = torch.where(running, theta, value), torch.where(running, off, error)
            weights[:, : m + 1] = torch.where(running.unsqueeze(1), s, weights[:, : m + 1])
            running = running & ~spent & (off > tolerance * theta.abs())
            if not running.any():
                break
        if m < most - 1:
            small[:, m, m + 1] = small[:, m + 1, m] = rest
    return Pair(value, combined(basis[:, : m + 1], weights[:, : m + 1])[:, :size], error)


def random_start(keys: Any, size: int) -> Tensor:
    """Draw a start for each (seed, round, client id) of ``keys``: signs, (S, P), float32.

    Examples
    --------
    >>> random_start([(42, 1, 0), (42, 1, 1)], 3).abs()
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    draws = [stream(seed, "curvature", t, client).integers(0, 2, size, np.int8) for seed, t, client in keys]
    return torch.from_numpy(np.stack(draws).astype(np.float32) * 2 - 1)


def whole_lines(rows: Tensor) -> Tensor:
    """Fill the last axis up with zeros to whole cache lines, so that no row's products depend on where it lies.

    Examples
    --------
    >>> whole_lines(torch.ones(2, 3)).shape
    torch.Size([2, 16])
    """
    line = 64 // rows.element_size()
    spare = -rows.shape[-1] % line
    return torch.nn.functional.pad(rows, (0, spare)) if spare else rows


def inner(rows: Tensor, v: Tensor) -> Tensor:
    """Return the products of rows (S, m, P) with a vector (S, P) each, (S, m)."""
    return (v.unsqueeze(1) @ rows.mT).squeeze(1)  # the vector in front: batched torch is ten times faster than behind


def combined(rows: Tensor, c: Tensor) -> Tensor:
    """Return the rows (S, m, P) times numbers c (S, m) and added up, (S, P)."""
    return (c.unsqueeze(1) @ rows).squeeze(1)


def unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors at length 1, 0 where there is no direction, and their lengths."""
    length = v.norm(dim=1)
    return v / torch.where(length > 0, length, 1).unsqueeze(1), length


def end(matrices: Tensor, by: By) -> tuple[Tensor, Tensor]:
    """Return the top eigenvalue (S,) and eigenvector (S, m) of dense matrices, NaN where one is not finite."""
    lost = ~matrices.isfinite().all(2).all(1)
    values, vectors = torch.linalg.eigh(torch.where(lost[:, None, None], 0, matrices))
    at = (values.abs() if by == "magnitude" else values).argmax(1, keepdim=True)
    value = values.gather(1, at).squeeze(1)
    vector = vectors.gather(2, at.unsqueeze(1).expand(-1, vectors.shape[1], 1)).squeeze(2)
    return value.masked_fill(lost, torch.nan), vector.masked_fill(lost.unsqueeze(1), torch.nan)
