"""What clients report of their curvature: ``exact``, and ``fast`` for every round."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

import torch
from torch import Tensor

from ..checks import BadInput, one_of
from ..types import Measure, Problem
from .lanczos import By, random_start, top_eigenpair, top_eigenvalue
from .products import dense, hessian_product, subsample
from .records import bends, directions, grouped, pulled, signs
from .sketch import corrected_trace, sketched_trace, top_by_sketch
from .traces import Trace, hutchinson

__all__ = ["exact", "fast"]

NAMES = ("eigenvalue", "trace", "trace_error")
Kept = Mapping[str, Tensor]


def exact(
    *,
    by: By = "algebraic",
    budget: int = 100,
    tolerance: float = 1e-3,
    trace: Literal["auto", "records", "hutchinson"] = "auto",
    exact_below: int = 200,
    rows: int | None = None,
    warm: bool = False,
) -> Measure:
    """Measure the top Hessian eigenvalue by Lanczos and the trace, both as near as ``tolerance`` asks.

        lambda_max(H), tr H;   H = Hessian of the mean cross-entropy over the client's training rows

    Parameters
    ----------
    by : "algebraic": the largest eigenvalue; "magnitude": the largest in size, with its sign
    budget, tolerance : Hessian-vector products for the eigenvalue at most, and its relative residual; see
        ``top_eigenvalue``. The same limits hold for ``hutchinson``
    trace : "records" adds up what every record and class contributes, without error, where the network is piecewise
        linear in each of its tensors (ReLU, pooling, Linear, convolutions); it refuses other networks. "hutchinson"
        works for all, with a standard error. "auto" takes the first that works
    exact_below : networks of fewer parameters get their whole Hessian, and both figures from it
    rows : of each client, drawn anew every round; None takes all
    warm : start from the last round's eigenvector

    Returns
    -------
    a measure of the figures "eigenvalue", "trace" and "trace_error", the standard error of the trace

    Raises
    ------
    BadInput : trace "records" of a network that bends within a tensor, at the first measurement

    References
    ----------
    FinP (arXiv 2502.17748), whose authors allow 100 products and a tolerance of 0.001 for each figure.

    Notes
    -----
    A measure belongs to one network: whether it bends is looked at once.
    """
    one_of("trace", trace, ("auto", "records", "hutchinson"))
    looked: list[bool] = []

    def measure(problem: Problem, kept: Kept) -> tuple[Kept, Kept]:
        problem = subsample(problem, rows)
        size, (product, logits) = _size(problem), hessian_product(problem)
        if size < exact_below:
            matrix = dense(product, len(problem.weight), size, problem.weight)
            whole = matrix.diagonal(dim1=1, dim2=2).sum(1)
            return _figures(top_eigenvalue(matrix, by=by), Trace(whole, torch.zeros_like(whole))), kept
        start = _start(problem, kept)
        pair = top_eigenpair(product, start, by=by, budget=budget, tolerance=tolerance)
        if trace == "hutchinson" or not _straight(problem, looked):
            if trace == "records":
                raise BadInput(
                    "this network bends within a tensor (GELU, sigmoid, normalisation, shared weights), so its records "
                    "do not give the Hessian's trace; use trace 'hutchinson'"
                )
            found = hutchinson(product, problem.keys, start, budget=budget, tolerance=tolerance)
        else:
            root = directions(logits, problem.weight)
            each = torch.stack([pulled(problem, r).flatten(1).norm(dim=1).square() for r in root.unbind(-1)])
            found = Trace(each.sum(0), torch.zeros_like(each[0]))
        return _figures(pair.value, found), _kept(kept, pair.vector)

    return Measure(NAMES, measure, ("eigenvector",) if warm else ())


def fast(
    *, budget: int = 3, tolerance: float = 0.05, sketch: int = 256, probes: int = 4, rows: int | None = None
) -> Measure:
    """Measure the top Hessian eigenvalue and the trace at the price of a few gradients, for every round.

        B = one row J'Rz a record;   tr H = |B|^2;   lambda_max of H where known, of B'B elsewhere

    One backward pass gives B, a sketch of the Gauss-Newton matrix. Its squared norm is the trace (``records``). A few
    Hessian-vector products, the first along the last round's eigenvector, make B'B exact where it counts (``sketch``).

    Parameters
    ----------
    budget : Hessian-vector products for the eigenvalue at most
    tolerance : stop where the sketch promises less than this share of the eigenvalue on top of what is certain; the
        error is then a fraction of it, as the sketch is mostly right
    sketch : rows of B at most; where a client has more records, neighbours share one
    probes : products more, for the trace of a network that bends within a tensor (see ``exact``): B'B alone is not
        enough there. At least 2
    rows : of each client, drawn anew every round; None takes all

    Returns
    -------
    a measure of "eigenvalue", "trace" and "trace_error", which without probes is an upper estimate: it takes the
    records' differences for noise. It keeps an "eigenvector"

    References
    ----------
    Davidson, Journal of Computational Physics 17 (1975), for eigenvalues by an approximate matrix; Schraudolph (2002),
    for the Gauss-Newton matrix of a softmax.

    Notes
    -----
    A measure belongs to one network: whether it bends is looked at once.
    """
    if budget < 1 or probes < 2 or sketch < 1:
        raise BadInput(f"budget and sketch must be >= 1 and probes >= 2, got {budget}, {sketch} and {probes}")
    looked: list[bool] = []

    def measure(problem: Problem, kept: Kept) -> tuple[Kept, Kept]:
        problem = subsample(problem, rows)
        product, logits = hessian_product(problem)
        root = directions(logits, problem.weight)
        rough = pulled(problem, (root * signs(problem, root.shape[-1]).unsqueeze(-2)).sum(-1), sketch)
        start = kept["eigenvector"].to(rough) if "eigenvector" in kept else torch.zeros_like(rough[:, 0])
        pair = top_by_sketch(product, rough, start, problem.keys, budget=budget, tolerance=tolerance)
        if _straight(problem, looked):
            found = sketched_trace(rough, grouped(root.square().sum((2, 3)), sketch).sum(2))
        else:
            found = corrected_trace(product, rough, problem.keys, probes)
        return _figures(pair.value, found), _kept(kept, pair.vector)

    return Measure(NAMES, measure, ("eigenvector",), alone=True)


def _size(problem: Problem) -> int:
    return sum(prod(p.shape[1:]) for p in problem.params.values())


def _start(problem: Problem, kept: Kept) -> Tensor:
    """Return what the clients remember, and signs for those who remember nothing, (S, P)."""
    drawn = random_start(problem.keys, _size(problem)).to(problem.weight)
    if "eigenvector" not in kept:
        return drawn
    remembered = kept["eigenvector"].to(problem.weight)
    return torch.where(remembered.any(1, keepdim=True), remembered, drawn)


def _kept(kept: Kept, vector: Tensor) -> Kept:
    """Remember the eigenvectors where that is asked for; one that is not finite is forgotten."""
    whole = torch.where(vector.isfinite().all(1, keepdim=True), vector, 0)
    return dict.fromkeys(kept, whole)


def _figures(value: Tensor, trace: Trace) -> Kept:
    return dict(zip(NAMES, (value, trace.value, trace.error), strict=True))


def _straight(problem: Problem, looked: list[bool]) -> bool:
    """Say whether the network is piecewise linear in each of its tensors; it is looked at the first time only."""
    if not looked:
        looked.append(not bends(problem))
    return looked[0]
