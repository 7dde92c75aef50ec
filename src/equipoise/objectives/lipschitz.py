"""FinP's pull towards a model that moves little with its input, the stronger the more the client is at risk.

Both forms are made for a module, and read ``news["rho"]``, the risk that the server tells each client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..checks import BadInput
from ..curvature import layer_norms, linear_maps, spectral_norms
from ..curvature.layers import Maps
from ..types import Local
from .task import Term, cross_entropy

__all__ = ["lipschitz_code", "lipschitz_paper"]


def lipschitz_paper(module: nn.Module) -> Term:
    """Penalise the bound on the Jacobian, by the product of the layers' spectral norms.

        rho_k prod_l ||W_l||_2,   gradient rho_k Lip grad log Lip

    Parameters
    ----------
    module : a model; its Linear and convolutions count, as the linear maps that they are

    Returns
    -------
    term with beta as its coefficient; where a layer is 0 so are the product and its gradient

    Raises
    ------
    BadInput : from the term, a module without such a layer or with a frozen one, and clients that were not told rho

    Examples
    --------
    >>> net, x = nn.Linear(2, 1), torch.zeros(1, 1, 2)
    >>> params = {"weight": torch.tensor([[[3.0, 4.0]]])}
    >>> nothing = torch.zeros(1, 1)
    >>> told = {"rho": torch.tensor([0.5])}
    >>> lipschitz_paper(net)(Local(params, {}, x, nothing, nothing, nothing + 1, nothing, told))  # half of 5
    tensor([2.5000])

    References
    ----------
    FinP (arXiv 2502.17748), the client's loss L + beta rho_k ||J||.

    Notes
    -----
    Norms are found from below by Lanczos: of shared layers with four products a step, from the singular vectors of the
    received model and then of the step before; of private ones with twelve from a fixed start. Over FinP's schedule on
    UCI HAR the product lies a percent below the true one in the median step and at most a tenth with beta = 0.05.
    Nothing is kept from round to round. The product of many layers may be huge, and with it the gradient.
    """
    received: Mapping[str, Tensor] = {}
    fresh: list[Tensor] = []
    latest: list[Tensor] = []

    def norms(maps: Maps, local: Local) -> Tensor:
        nonlocal received, fresh, latest
        shared, private = (
            maps._replace(layers=tuple(layer for layer in maps.layers if (layer.name in local.anchor) is there))
            for there in (True, False)
        )
        found = []
        if shared.layers:
            if received is not local.anchor:  # it stays while the client trains; others mostly received the same
                names = [layer.name for layer in shared.layers]
                same = received and all(torch.equal(received[n], local.anchor[n]) for n in names)
                received = local.anchor
                fresh = fresh if same else spectral_norms(shared, received, budget=30, tolerance=1e-3)[1]
                latest = fresh
            norm, latest = spectral_norms(shared, local.params, latest, budget=4)
            found.append(norm)
        if private.layers:
            found.append(spectral_norms(private, local.params)[0])
        return torch.cat(found, 1)

    def bound(local: Local, log_lip: Tensor) -> Tensor:
        return log_lip.exp().clamp(max=torch.finfo(log_lip.dtype).max)

    return _pull(module, norms, bound)


def lipschitz_code(module: nn.Module) -> Term:
    """Scale the loss up by the client's risk, and turn down the largest row of every layer.

        rho_k sg(CE / Lip) Lip,   Lip = prod_l max_i |W_l,i|,   gradient rho_k CE grad log Lip

    The value is rho_k CE. The gradient knows no scale: weights twice as large feel half of it.

    Parameters
    ----------
    module : a model; its Linear and convolutions count, each row over all that feeds one output

    Returns
    -------
    term with beta as its coefficient; a layer that is 0, for which the source has 0/0, is left out

    Raises
    ------
    BadInput : as for ``lipschitz_paper``

    Examples
    --------
    >>> net, x = nn.Linear(2, 1), torch.zeros(1, 1, 2)
    >>> params = {"weight": torch.tensor([[[3.0, 4.0]]], requires_grad=True)}
    >>> nothing = torch.zeros(1, 1)
    >>> told = {"rho": torch.tensor([0.5])}
    >>> term = lipschitz_code(net)(Local(params, {}, x, nothing, nothing, nothing + 1, nothing, told))
    >>> term.detach().round(decimals=4)  # half of log 2
    tensor([0.3466])
    >>> torch.autograd.grad(term.sum(), params["weight"])[0].round(decimals=4)  # that times (3, 4) / 25
    tensor([[[0.0416, 0.0555]]])

    References
    ----------
    FinP's code (artifact of arXiv 2502.17748), which computes this and not the paper's bound.
    """

    def norms(maps: Maps, local: Local) -> Tensor:
        return layer_norms(maps, local.params, "finp_code")

    def cost(local: Local, log_lip: Tensor) -> Tensor:
        return cross_entropy(replace(local, logits=local.logits.detach()))

    return _pull(module, norms, cost)


def _pull(module: nn.Module, norms: Callable[[Maps, Local], Tensor], scale: Callable[[Local, Tensor], Tensor]) -> Term:
    """Return the term of value ``rho scale`` and gradient ``rho scale grad log Lip``, with ``scale`` (S,) held fixed.

    Logarithms, because the product of many norms (S, L) leaves the range of a float.
    """
    maps: Maps | None = None  # what a layer is fed is known when the first rows come

    def term(local: Local) -> Tensor:
        nonlocal maps
        if "rho" not in local.news:
            raise BadInput("the clients were not told rho, which scales this term; let the server tell it")
        if maps is None:
            maps = linear_maps(module, local.x.shape[2:])
        if frozen := [layer.name for layer in maps.layers if layer.name not in local.params]:
            raise BadInput(f"the norm of {frozen[0]!r}, which does not train, cannot be turned down; unfreeze it")
        found = norms(maps, local)
        log_lip = torch.where(found > 0, found, 1.0).log().sum(1) + math.log(maps.factor)
        with torch.no_grad():
            fixed = scale(local, torch.where((found == 0).any(1), -torch.inf, log_lip))
        value: Tensor = local.news["rho"] * fixed * (1 + log_lip - log_lip.detach())
        return value

    return term
