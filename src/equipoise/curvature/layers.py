"""The linear maps of a network: their true norms, convolutions included, and the product of these.

maps = linear_maps(module, (features,))              once
layer_norms(maps, params, how="spectral")            (S, L), differentiable, for stacked parameters
lipschitz_of(maps, params, how="finp_code")          (S,), their product
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import BadInput, one_of
from ..rounds import stream
from ..types import Array
from .lanczos import inner, top_eigenpair, unit

How = Literal["spectral", "finp_code"]


class Map(NamedTuple):
    """One layer as a linear map, bias left out.

    ``name`` of its weight among the parameters; ``apply``: (weight (S, *shape), v (S, *start.shape)) -> (S, ...);
    ``start``: a vector of the layer's input shape, from which its norm is looked for.
    """

    name: str
    apply: Callable[[Tensor, Tensor], Tensor]
    start: Tensor


class Maps(NamedTuple):
    """``layers`` in the order in which they are called, and the ``factor`` of the sigmoids between them, 0.25 each."""

    layers: tuple[Map, ...]
    factor: float


def linear_maps(module: nn.Module, input_shape: Sequence[int]) -> Maps:
    """Find the Linear, Conv1d, Conv2d and ConvTranspose layers of a module, and what each of them is fed.

    Parameters
    ----------
    module : it is left as it is, its training mode too
    input_shape : of one row, without the batch: ``(features,)``

    Raises
    ------
    BadInput : no such layer, or one that pads with anything but zeros

    Examples
    --------
    >>> maps = linear_maps(nn.Sequential(nn.Linear(3, 2), nn.Sigmoid(), nn.Linear(2, 1)), (3,))
    >>> [layer.name for layer in maps.layers], maps.factor
    (['0.weight', '2.weight'], 0.25)
    """
    twin = copy.deepcopy(module).eval()
    layers: list[Map] = []
    sigmoids = 0

    def see(layer: nn.Module, taken: Any, path: str) -> None:
        nonlocal sigmoids
        sigmoids += isinstance(layer, nn.Sigmoid)
        if not isinstance(layer, (nn.Linear, nn.modules.conv._ConvNd)):
            return
        shape = taken[0].shape[-1:] if isinstance(layer, nn.Linear) else taken[0].shape[1:]
        start = torch.from_numpy(stream(0, "spectral norm", len(layers)).standard_normal(tuple(shape)))
        layers.append(Map(f"{path}.weight" if path else "weight", _apply(layer), start))

    for path, layer in twin.named_modules():
        layer.register_forward_pre_hook(partial(see, path=path))
    first = next(iter(twin.parameters()), torch.zeros(()))
    with torch.no_grad():
        twin(torch.zeros(1, *input_shape, dtype=first.dtype, device=first.device))
    if not layers:
        raise BadInput("this module has no Linear or convolution whose norm could be taken; use another model or term")
    return Maps(tuple(layers), 0.25**sigmoids)


def layer_norms(maps: Maps, params: Mapping[str, Tensor], how: How = "spectral") -> Tensor:
    """Return a norm of every layer of S models, differentiable with respect to their parameters.

        spectral:  ||W||_2 = max_v |W v| / |v|;      finp_code:  max_i |W_i|, the largest norm of a row

    Parameters
    ----------
    maps : of ``linear_maps``
    params : name -> (S, *shape)
    how : "spectral" within about 1 % (``spectral_norms`` goes further); "finp_code" takes rows along the first axis

    Returns
    -------
    (S, L)

    Examples
    --------
    >>> net = nn.Linear(2, 2)
    >>> params = {"weight": torch.tensor([[[3.0, 0.0], [4.0, 0.0]]])}
    >>> maps = linear_maps(net, (2,))
    >>> layer_norms(maps, params).round(decimals=3), layer_norms(maps, params, "finp_code")
    (tensor([[5.]]), tensor([[4.]]))
    """
    one_of("how", how, ("spectral", "finp_code"))
    if how == "spectral":
        return spectral_norms(maps, params)[0]
    return torch.stack([params[layer.name].flatten(2).norm(dim=2).amax(1) for layer in maps.layers], 1)


def spectral_norms(
    maps: Maps,
    params: Mapping[str, Tensor],
    starts: Sequence[Tensor] | None = None,
    *,
    budget: int = 12,
    tolerance: float = 0.0,
) -> tuple[Tensor, list[Tensor]]:
    """Return the spectral norms (S, L) of all layers, and the right singular vectors to start from next time.

        sigma = <u, W v>  with u = W v / |W v| and v held fixed, so that d sigma / dW = u v'

    Parameters
    ----------
    maps, params : as in ``layer_norms``
    starts : vectors (S, *input shape) of each layer, such as those returned for almost the same weights
    budget, tolerance : of Lanczos on ``W'W``, as in ``top_eigenvalue``; tolerance 0 uses the whole budget, which keeps
        the work the same at every step; budget 1 takes the starts for the singular vectors

    Notes
    -----
    The value is never above the true norm. A layer of weights 0 has norm 0 and gradient 0.
    """
    norms, vectors = [], []
    for i, layer in enumerate(maps.layers):
        weight = params[layer.name]
        start = layer.start.to(weight).expand(len(weight), *layer.start.shape) if starts is None else starts[i]
        v = _leading(layer, weight.detach(), start, budget, tolerance)
        u = layer.apply(weight, v).flatten(1)
        norms.append((unit(u.detach())[0] * u).sum(1))
        vectors.append(v)
    return torch.stack(norms, 1), vectors


def spectral_norm(weight: Array | Tensor | nn.Module, input_shape: Sequence[int] | None = None) -> Any:
    """Return the largest singular value of a matrix, or of a layer as the linear map that it is.

        ||W||_2 = max_v |W v| / |v|

    Parameters
    ----------
    weight : matrix (out, in), NumPy or torch; or a layer, such as Conv2d, whose stride, padding and size of input count
    input_shape : of a layer's input without the batch, ``(channels, height, width)``; not needed for Linear

    Returns
    -------
    a float for a NumPy matrix, else a tensor (), differentiable with respect to the weight

    Raises
    ------
    BadInput : not a matrix, a convolution without its input shape

    Examples
    --------
    A difference filter lets a line of alternating signs through at almost twice its size.

    >>> spectral_norm(torch.tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    4.0
    >>> layer = nn.Conv1d(1, 1, 2, bias=False)
    >>> layer.weight = nn.Parameter(torch.tensor([[[1.0, -1.0]]]))
    >>> round(spectral_norm(layer, (1, 100)).item(), 2)
    2.0
    """
    if isinstance(weight, nn.Module):
        if input_shape is None and isinstance(weight, nn.Linear):
            input_shape = (weight.in_features,)
        if input_shape is None:
            raise BadInput("the norm of a convolution depends on the size of its input; pass input_shape")
        maps = linear_maps(weight, input_shape)
        stacked = {n: p.unsqueeze(0) for n, p in weight.named_parameters()}
        return spectral_norms(maps, stacked, budget=200, tolerance=1e-4)[0].prod()
    matrix = torch.as_tensor(weight)
    if matrix.dim() != 2:
        raise BadInput(f"a matrix has two axes, (out, in), got shape {tuple(matrix.shape)}; pass the layer itself")
    sigma = torch.linalg.matrix_norm(matrix if matrix.is_floating_point() else matrix.double(), 2)
    return sigma if isinstance(weight, Tensor) else sigma.item()


def lipschitz_of(maps: Maps, params: Mapping[str, Tensor], how: How = "spectral") -> Tensor:
    """Return the product of the layers' norms and the sigmoids' 1/4, (S,), differentiable; see ``lipschitz``."""
    product: Tensor = maps.factor * layer_norms(maps, params, how).prod(1)
    return product


def lipschitz(module: nn.Module, input_shape: Sequence[int], how: How = "spectral") -> float:
    """Return the product of a module's layer norms, which bounds how far its output moves with its input.

        spectral:  prod_l ||W_l||_2;      finp_code:  prod_l max_i |W_l,i|

    Parameters
    ----------
    module : Linear and convolutions count; ReLU, pooling and dropout have slope 1 at most, a sigmoid module 1/4
    input_shape : of one row, without the batch
    how : "finp_code" is the authors' product of largest row norms, a figure that bounds nothing

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> for p in net.parameters():
    ...     _ = nn.init.constant_(p, 1.0)
    >>> round(lipschitz(net, (2,)), 4), round(lipschitz(net, (2,), "finp_code"), 4)  # 2 times 2**0.5; 2**0.5 twice
    (2.8284, 2.0)

    References
    ----------
    FinP (arXiv 2502.17748); Szegedy et al. (ICLR 2014), section 4.3.

    Notes
    -----
    Normalisation layers and residual sums are passed over, as in the source: with them "spectral" is no bound either.
    A layer that is called twice counts twice.
    """
    maps = linear_maps(module, input_shape)
    stacked = {n: p.detach().unsqueeze(0) for n, p in module.named_parameters()}
    if how == "spectral":
        norms = spectral_norms(maps, stacked, budget=200, tolerance=1e-4)[0]
        return float(maps.factor * norms.prod())
    return float(lipschitz_of(maps, stacked, how))


def _apply(layer: nn.Linear | nn.modules.conv._ConvNd) -> Callable[[Tensor, Tensor], Tensor]:
    """Return (weight (S, *shape), v (S, *in)) -> (S, *out) of this layer without its bias."""
    if isinstance(layer, nn.Linear):
        return inner
    if layer.padding_mode != "zeros":
        raise BadInput(
            f"the norm of a convolution that pads with {layer.padding_mode!r} is not offered; pad with 'zeros'"
        )
    turned = isinstance(layer, nn.modules.conv._ConvTransposeNd)
    axes = len(layer.kernel_size)
    convolve = getattr(F, f"conv_transpose{axes}d" if turned else f"conv{axes}d")
    settings = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    if turned:
        settings["output_padding"] = layer.output_padding

    def apply(weight: Tensor, v: Tensor) -> Tensor:
        # S layers side by side are one layer in groups
        groups = layer.groups * len(v)
        out: Tensor = convolve(v.flatten(0, 1).unsqueeze(0), weight.flatten(0, 1), groups=groups, **settings)
        return out.view(len(v), -1, *out.shape[2:])

    return apply


def _leading(layer: Map, weight: Tensor, start: Tensor, budget: int, tolerance: float) -> Tensor:
    """Return the right singular vector (S, *in) of the largest singular value."""

    def squared(v: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = v.detach().view(start.shape).requires_grad_()
            out = layer.apply(weight, leaf)
            (back,) = torch.autograd.grad(out, leaf, out.detach())  # the transpose of a linear map is its gradient
        return back.flatten(1)

    flat = start.detach().flatten(1)
    return top_eigenpair(squared, flat, budget=budget, tolerance=tolerance).vector.view(start.shape)
