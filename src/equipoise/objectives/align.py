"""FedAlign: a last block at reduced width that passes signals on as strongly as the whole one."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..checks import BadInput, between
from ..types import Local
from .task import Term, cross_entropy

__all__ = ["align"]


def align(module: nn.Module, *, width: float = 0.25) -> Term:
    """Make FedAlign's term for a model: its last block at reduced width should have the spectral norm of the whole one.

        T_i = A_i B_i^T / P;  s_i = top singular value of T_i
        CE / MSE * MSE,  MSE = mean over rows i of (s_i at width - s_i)^2;  CE / MSE and s_i are constants

    ``A_i`` and ``B_i`` (channels, P) are what the block reads and gives for row i, pooled to the same P places. Only
    what is left of the block at this width feels the term. Its value is the cross-entropy of the batch, and its
    coefficient is the source's mu = 0.45. Where all s_i agree it is 0 and so is its gradient.

    Parameters
    ----------
    module : has ``before(x)`` -> features and ``last_block(features, width)`` -> (read, given); see
        ``models.Slimmable``. It is copied; the term runs on the tensors of each ``Local``
    width : share of the channels, in 0..1; one is always left

    Returns
    -------
    The term; its attribute ``adapted`` says that the block is our choice: the source defines it for residual networks,
    whose last stage it is.

    Raises
    ------
    BadInput
        If the model has no last block that runs at reduced width, or has frozen parameters.

    References
    ----------
    FedAlign (Mendieta et al., CVPR 2022) and its code.

    Notes
    -----
    The singular value is found as there, by ten steps of power iteration on T T^T from a vector of ones, through which
    torch differentiates. The gradient is scale-free, ``CE grad log MSE``, and grows without bound as MSE nears 0; the
    source clips the norm of the whole gradient at 10, we do not.

    Examples
    --------
    >>> align(nn.Linear(3, 1))
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: align needs a model whose last block runs at reduced width, and a Linear has none; ...
    """
    between("width", width, 0, 1)
    if not (hasattr(module, "before") and hasattr(module, "last_block")):
        raise BadInput(
            f"align needs a model whose last block runs at reduced width, and a {type(module).__name__} has none; "
            "take mlp, tcn, cnn, femnist_cnn or resnet, or give yours the methods before and last_block"
        )
    if frozen := [n for n, p in module.named_parameters() if not p.requires_grad]:
        raise BadInput(f"align sees trained parameters only, and {frozen[0]!r} is frozen; unfreeze it")
    strengths = _Strengths(module, width)

    def term(local: Local) -> Tensor:
        real = (local.weight > 0).to(local.weight.dtype)
        errors = []
        for slot, mask in enumerate(real):
            tensors = {f"model.{name}": values[slot] for name, values in local.params.items()}
            part, whole = functional_call(strengths, tensors, (local.x[slot],))
            errors.append(((part - whole).square() * mask).sum() / mask.sum().clamp(min=1))
        mse = torch.stack(errors)
        ratio = (cross_entropy(local) / mse).detach()
        scaled: Tensor = torch.where(ratio.isfinite(), ratio, 0.0) * mse
        return scaled

    term.adapted = getattr(module, "adapted", True)  # type: ignore[attr-defined]
    return term


class _Strengths(nn.Module):
    """The top singular value of each row at reduced width and, as a constant, at full width: (B,) and (B,).

    A module, so that torch can run it on the tensors of a slot. Batch normalisation has the batch's own statistics.
    """

    def __init__(self, model: nn.Module, width: float) -> None:
        super().__init__()
        self.model, self.width = copy.deepcopy(model).train(), width
        for layer in self.model.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.running_mean = layer.running_var = layer.num_batches_tracked = None
                layer.track_running_stats = False

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            features = self.model.before(x)  # type: ignore[operator]
            whole = top_singular_value(transmitting(*self.model.last_block(features)))  # type: ignore[operator]
        return top_singular_value(transmitting(*self.model.last_block(features, self.width))), whole  # type: ignore[operator]


def transmitting(read: Tensor, given: Tensor) -> Tensor:
    """Return how what a block reads meets what it gives, ``A B^T / P`` of each row, over places pooled to be the same.

    Shapes: (B, C, ...) and (B, D, ...) -> (B, C, D). Rows without places, (B, C) and (B, D), have P = 1.

    Examples
    --------
    >>> transmitting(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[10.0], [20.0]]]))  # 2 places pooled to 1
    tensor([[[20., 40.]]])
    """
    if read.shape[2:] != given.shape[2:]:
        read = F.interpolate(read, given.shape[2:], mode="area")
    a, b = (t.reshape(*t.shape[:2], -1) for t in (read, given))
    return a @ b.mT / a.shape[2]


def top_singular_value(matrix: Tensor, steps: int = 10) -> Tensor:
    """Return the largest singular value of each matrix (B, C, D) by power iteration, (B,); 0 for a matrix of zeros.

    Examples
    --------
    >>> top_singular_value(torch.tensor([[[3.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    tensor([3., 0.])
    """
    v = matrix.new_ones(*matrix.shape[:2], 1)
    for _ in range(steps):
        v = matrix @ (matrix.mT @ v)
        length = torch.linalg.vector_norm(v, dim=1, keepdim=True)
        exists = length > 0  # of a matrix of zeros everything stays 0, gradients too
        length = torch.where(exists, length, 1.0)
        v = v / length
    return torch.where(exists, length.sqrt(), 0.0).flatten()
