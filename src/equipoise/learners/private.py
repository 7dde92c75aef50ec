"""DP-SGD: every record's own gradient is clipped, and their sum gets Gaussian noise. A gradient stage of the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..checks import BadInput, above, between
from ..rounds import stream
from ..types import Array, Local, Shard
from .chunks import Term
from .forwards import Named, logits_of
from .parts import Build, Parts, first_vector, parts_of, split

RECORDS = "cross_entropy"
"""The term that reads rows: a mean over records, so that each record has its own part of it."""

NUMBERS = 2**23
"""Gradients of so many numbers are held at a time; a batch of more is clipped in parts."""


class Private(NamedTuple):
    """How a client keeps its records to itself while it trains.

        g  =  ( sum_i g_i min(1, clip / |g_i|)  +  noise clip N(0, 1) )  /  E[batch]

    ``clip``: longest gradient of one record, over all trained parameters together, > 0; inf clips nothing.
    ``noise``: standard deviation of the noise over the clip, >= 0; see ``accounting.epsilon`` for what it buys.

    The sum is divided by the rows that a step expects and not by those it got, which would tell who was among them.
    Noise is drawn for a step without rows too. A record whose gradient is not finite counts as 0: it has no length
    that could be cut.

    References
    ----------
    Abadi et al., Deep learning with differential privacy (CCS 2016), Algorithm 1.
    """

    clip: float
    noise: float


def check(
    private: Private, module: nn.Module, parts: Parts, balance: str = "none", poisson: bool = True, engine: str = "loop"
) -> None:
    """Refuse what would make a client's updates tell more than the noise covers.

    Raises
    ------
    BadInput
        For a clip or noise out of range, batches that are not drawn by Poisson sampling, row weights that are made
        from labels, a layer that mixes records, and buffers, which are sent without noise.
    """
    between("noise", private.noise, 0, inf, "its standard deviation over the clip")
    if private.noise > 0 or private.clip != inf:
        above("clip", private.clip, 0, "the longest gradient of one record; inf without noise only")
    if engine not in ("auto", "loop"):
        raise BadInput(f"engine {engine!r} keeps no gradient of each record; private training needs 'auto' or 'loop'")
    if not poisson:
        raise BadInput("private training needs sampling 'poisson' or batch 'full', whose epsilon is known")
    if balance != "none":
        raise BadInput(
            f"balance {balance!r} makes every row's weight from the labels of all rows, which no noise covers; "
            "private training needs balance 'none'"
        )
    for path, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise BadInput(
                f"layer {path!r} ({type(layer).__name__}) mixes the records of a batch, so that none of them can be "
                "clipped on its own; use GroupNorm or LayerNorm for private training"
            )
    parameters = {n for n, _ in module.named_parameters()}
    if buffers := [n for n in (*parts.whole.names, *parts.counters) if n not in parameters]:
        raise BadInput(f"buffer {buffers[0]!r} would be sent without noise; private training takes none")


def generator(seed: int, t: int, client: int) -> torch.Generator:
    """Return the source of a client's noise in one round."""
    return torch.Generator().manual_seed(int(stream(seed, "dp noise", t, client).integers(2**62)))


def per_record(
    module: nn.Module, trained: Named, fixed: Named, rows: Local, term: Term
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield some records at a time: the gradients of each, (b, *shape) for every tensor, and their lengths (b,).

    Every record is the only row of a slot of its own: the parameters are repeated, the forward is lifted over them, and
    the sum of the records' losses has each record's gradient at its own copy.

    Parameters
    ----------
    trained, fixed : name -> (*shape)
    rows : a batch of one slot, S = 1; its params, anchor and logits are not looked at
    """
    lifted = torch.vmap(lambda own, x: logits_of(module, {**own, **fixed}, x), randomness="different")
    columns = [c[0].unsqueeze(1) for c in (rows.x, rows.y, rows.group, rows.weight)]
    some = max(1, NUMBERS // sum(t.numel() for t in trained.values()))
    for at in range(0, len(columns[0]), some):
        x, y, group, weight = (c[at : at + some] for c in columns)
        own = {n: t.detach().expand(len(x), *t.shape).requires_grad_() for n, t in trained.items()}
        alone = Local(own, {}, x, y, group, weight, lifted(own, x), {})
        grads = list(torch.autograd.grad(term(alone).sum(), list(own.values()), materialize_grads=True))
        lengths = [torch.linalg.vector_norm(g.unsqueeze(-1), dim=tuple(range(1, g.dim() + 1))) for g in grads]
        yield grads, torch.linalg.vector_norm(torch.stack(lengths), dim=0)


def clipped_sum(records: Iterator[tuple[list[Tensor], Tensor]], clip: float, like: list[Tensor]) -> list[Tensor]:
    """Return the sum over records of ``g_i min(1, clip / |g_i|)``, one tensor for each of ``like``."""
    total = [torch.zeros_like(t) for t in like]
    for grads, norms in records:
        finite = norms.isfinite()
        scale = torch.where(finite, (clip / norms).clamp(max=1), 0.0)
        for i, g in enumerate(grads):
            cut = (g if finite.all() else g.nan_to_num(0, 0, 0)) * scale.view(-1, *[1] * (g.dim() - 1))
            total[i] += torch.sum(cut, 0, out=torch.empty_like(cut[0]))  # some lie by columns; so does their sum then
    return total


def gradient(
    private: Private,
    module: nn.Module,
    terms: Mapping[str, Term],
    expected: int,
    random: torch.Generator,
    trained: Named,
    fixed: Named,
    rows: Local,
    coefficients: Mapping[str, Tensor],
) -> list[Tensor]:
    """Return one step's gradient, a tensor for each trained one.

    Cross-entropy is clipped and covered by noise. Other terms may depend on parameters only, such as the pull towards
    the received model: their gradient is added afterwards and spends nothing.

    Raises
    ------
    BadInput
        If another term cannot be computed without rows.
    """
    total = [torch.zeros_like(t) for t in trained.values()]
    if RECORDS in coefficients:
        share, term = coefficients[RECORDS], terms[RECORDS]
        records = per_record(module, trained, fixed, rows, lambda alone: share * term(alone))
        total = clipped_sum(records, private.clip, total)
        if private.noise:
            spread = private.noise * private.clip
            total = [t + spread * torch.randn(t.shape, generator=random, dtype=t.dtype) for t in total]
        total = [t / expected for t in total]
    width, weight = rows.x.new_empty(1, 1, rows.x.shape[2], device="meta"), rows.weight.new_ones(1, 1)
    blind = Local(rows.params, rows.anchor, width, None, None, weight, None, rows.news)  # a row without its values
    for name, c in coefficients.items():
        if name != RECORDS:
            try:
                value = (c * terms[name](blind)).sum()
            except BadInput:
                raise
            except Exception as e:  # whatever a term raises that finds no rows
                raise BadInput(
                    f"loss term {name!r} cannot be computed without the client's rows, and the noise of private "
                    f"training covers {RECORDS!r} only; leave it out"
                ) from e
            if value.requires_grad:  # not so for a pull towards the shared part where nothing is shared
                extra = torch.autograd.grad(value, list(trained.values()), materialize_grads=True)
                total = [t + g for t, g in zip(total, extra, strict=True)]
    return total


def gradient_norms(build: Build, shard: Shard, term: Term, *, seed: int = 0) -> Array:
    """Return the length (n,) of every row's own gradient at the module's first values, in float64 and eval mode.

        |g_i|,  g_i = gradient of the term on row i alone, over all trained parameters together

    FinP's authors clip at the 90th percentile of 200 such lengths: ``np.quantile(lengths, 0.9)``. That clip is a
    function of the rows. Over a client's rows it is *not* private, and no epsilon covers it; public rows cost nothing.

    Examples
    --------
    >>> def build():
    ...     layer = nn.Linear(2, 1, bias=False)
    ...     nn.init.zeros_(layer.weight)
    ...     return layer
    >>> def squares(local):
    ...     return (local.logits - local.y).square().sum(1) / 2
    >>> rows = Shard(np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 1.0]]), np.array([1, 1, 0]), np.zeros(3, int))
    >>> gradient_norms(build, rows, squares)  # |w.x - y| |x| with w = 0
    array([5., 2., 0.])
    """
    with torch.random.fork_rng(devices=[]):
        module = build().double().eval()
    parts = parts_of(module, ())
    check(Private(inf, 0), module, parts)
    vector = torch.from_numpy(first_vector(build, parts, seed, np.dtype("float64")))
    tensors = {n: t[0] for n, t in split(parts.whole, vector[None]).items()}
    trained = {n: t for n, t in tensors.items() if n in parts.trained}
    fixed = {n: t for n, t in tensors.items() if n not in parts.trained}
    x, y = (torch.from_numpy(np.asarray(a)).double()[None] for a in (shard.x, shard.y))
    group = torch.from_numpy(np.asarray(shard.group)).long()[None]
    rows = Local({}, {}, x, y, group, torch.ones_like(y), None, {})
    return torch.cat([torch.zeros(0), *(norms for _, norms in per_record(module, trained, fixed, rows, term))]).numpy()
