"""The laboratory's eyes: what trained models do on given records. No server and no client looks through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import BadInput
from ..types import Array
from .forwards import Named, logits_of
from .measuring import blocks
from .parts import Build, Parts, parts_of, split

NUMBERS = 2**24
"""Gradients of so many numbers are held at a time."""


def losses(build: Build, shared: Sequence[str], models: Array, x: Array, y: Array) -> Array:
    """Return the cross-entropy of each model on each row, in eval mode and unweighted.

        l[i, k] = -log p_k(y_i | x_i)

    Parameters
    ----------
    build, shared : as in ``stacked``
    models : (K, P) whole models, shared part first, such as ``Done.models``
    x, y : (n, f) and (n,) labels in {0, 1}, or in 0..C-1 where the model has C logits

    Returns
    -------
    (n, K) float64, NaN where a model's output is no number

    Examples
    --------
    >>> models = np.array([[0.0, 0.0], [0.0, 3.0]])  # weight and bias: both say the same of every row
    >>> losses(lambda: nn.Linear(1, 1), (), models, np.ones((2, 1)), np.array([1, 0])).round(3)
    array([[0.693, 0.049],
           [0.693, 3.049]])

    Notes
    -----
    Logits have the models' precision; the logarithm is taken in float64, which still tells very small losses apart.
    """
    module, parts = _built(build, tuple(shared), models.dtype.name)
    truth, out = torch.from_numpy(np.array(y)), np.empty((len(x), len(models)))
    with torch.inference_mode():
        for k, tensors in enumerate(_each(parts, models)):
            z = [logits_of(module, tensors, rows) for rows in blocks(module, _rows(x, models))]
            out[:, k] = _cross_entropy(torch.cat(z).double(), truth).numpy()
    return out


def features(build: Build, shared: Sequence[str], models: Array, x: Array) -> Array:
    """Return what comes out of each model's last shared layer, flattened and before any activation.

    That is what a server sees of a record in SplitML. The last shared layer is the one that holds the last shared
    tensor in the order of the module; of a layer that is called several times it is the last call.

    Parameters
    ----------
    build, shared, models, x : as in ``losses``

    Returns
    -------
    (K, n, h), in the models' precision

    Raises
    ------
    BadInput : nothing is shared, or the forward does not call that layer

    Examples
    --------
    >>> build = lambda: nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    >>> features(build, ("0.weight", "0.bias"), np.array([[2.0, -5.0, 1.0, 1.0]]), np.array([[1.0], [4.0]]))
    array([[[-3.],
            [ 3.]]])
    """
    module, parts = _built(build, tuple(shared), models.dtype.name)
    if not parts.shared.names:
        raise BadInput("no layer is shared, so that a server sees nothing of a record; share one, or look at losses")
    path = parts.shared.names[-1].rpartition(".")[0]
    given: list[Tensor] = []
    out = []
    hook = module.get_submodule(path).register_forward_hook(lambda layer, taken, gives: given.append(gives.flatten(1)))
    try:
        with torch.inference_mode():
            for tensors in _each(parts, models):
                seen = []
                for rows in blocks(module, _rows(x, models)):
                    given.clear()
                    logits_of(module, tensors, rows)
                    if not given:
                        raise BadInput(f"the model does not call its shared layer {path!r}; share another")
                    seen.append(given[-1])
                out.append(torch.cat(seen).numpy())
    finally:
        hook.remove()
    return np.stack(out)


def cosines(build: Build, shared: Sequence[str], model: Array, updates: Array, x: Array, y: Array) -> Array:
    """Return the cosine between each record's gradient at the received model and each client's update, layer by layer.

        c[i, k, l] = <grad_l loss(model; x_i, y_i), update_k,l> / (|grad_l| |update_k,l|)

    Parameters
    ----------
    build, shared, x, y : as in ``losses``
    model : (P,) the whole model that the clients started from, shared part first
    updates : (K, d) trained minus received, shared part

    Returns
    -------
    (n, K, L) float64 over the L layers with a shared parameter (weight and bias are one layer), in the module's order;
    NaN where one of the two is 0 and has no direction. A step down the record's own gradient gives -1

    Raises
    ------
    BadInput : the model is a part only, as where private layers are not given

    Examples
    --------
    >>> record = np.array([[3.0, 4.0]]), np.array([1])
    >>> updates = np.array([[3.0, 4.0], [-4.0, 3.0], [0.0, 0.0]])
    >>> cosines(lambda: nn.Linear(2, 1, bias=False), ("weight",), np.zeros(2), updates, *record)[0, :, 0]
    array([-1.,  0., nan])

    References
    ----------
    FinP (arXiv 2502.17748), artifact: white-box membership inference.
    """
    module, parts = _built(build, tuple(shared), updates.dtype.name)
    if len(model) != parts.whole.size:
        raise BadInput(
            f"a record's gradient needs a whole model of {parts.whole.size} numbers, got {len(model)}; "
            "append the private layers of the client, or share all"
        )
    tensors = next(_each(parts, np.asarray(model, updates.dtype)[None]))
    leaves = {n: t.clone().requires_grad_() for n, t in tensors.items() if n in parts.trained}
    learned = [n for n in parts.shared.names if n in parts.trained]
    layers = list(dict.fromkeys(n.rpartition(".")[0] for n in learned))
    sent = split(parts.shared, torch.from_numpy(np.array(updates)))
    truth, rows = torch.from_numpy(np.array(y)), _rows(x, updates)
    out = np.empty((len(rows), len(updates), len(layers)))
    some = max(1, NUMBERS // parts.whole.size)
    for at in range(0, len(rows), some):
        records = zip(torch.split(rows[at : at + some], 1), torch.split(truth[at : at + some], 1), strict=True)
        grads = [_gradient(module, tensors, leaves, learned, *record) for record in records]
        for j, layer in enumerate(layers):
            names = [n for n in learned if n.rpartition(".")[0] == layer]
            mine = torch.stack([torch.cat([g[n].flatten() for n in names]) for g in grads])
            theirs = torch.cat([sent[n].flatten(1) for n in names], 1)
            lengths = mine.norm(dim=1, keepdim=True) * theirs.norm(dim=1)
            out[at : at + some, :, j] = (mine @ theirs.T / lengths).numpy()
    return out


def _gradient(
    module: nn.Module, tensors: Named, leaves: Named, names: Sequence[str], x: Tensor, y: Tensor
) -> dict[str, Tensor]:
    """Return the gradient of the loss on one record with respect to these tensors."""
    loss = _cross_entropy(logits_of(module, {**tensors, **leaves}, x), y).sum()
    found = torch.autograd.grad(loss, [leaves[n] for n in names], materialize_grads=True)
    return dict(zip(names, found, strict=True))


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each row, (n,)."""
    if logits.dim() > 1:
        return F.cross_entropy(logits, y.long(), reduction="none")
    return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")


@lru_cache(maxsize=8)
def _built(build: Build, shared: tuple[str, ...], dtype: str) -> tuple[nn.Module, Parts]:
    """Return the module in eval mode, and its parts; the rounds of a run look through the same one."""
    with torch.random.fork_rng(devices=[]):
        module = build()
    return module.to(torch.float64 if dtype == "float64" else torch.float32).eval(), parts_of(module, shared)


def _rows(x: Array, like: Array) -> Tensor:
    return torch.from_numpy(np.array(x, like.dtype))


def _each(parts: Parts, models: Array) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors of each model."""
    for vector in torch.from_numpy(np.array(models)):
        yield {n: t[0] for n, t in split(parts.whole, vector[None]).items()}
