"""Norms of layers as linear maps, against the dense matrix of the same map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from equipoise.checks import BadInput
from equipoise.curvature import jacobian_norm, layer_norms, linear_maps, lipschitz, spectral_norm, spectral_norms
from equipoise.models import mlp, tcn

torch.set_num_threads(1)

LAYERS = {
    "linear": (nn.Linear(7, 4), (7,)),
    "conv1d": (nn.Conv1d(3, 5, 3), (3, 11)),
    "strided": (nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), (3, 12)),
    "same": (nn.Conv1d(2, 3, 3, padding="same"), (2, 9)),
    "conv2d": (nn.Conv2d(2, 3, 3, stride=(2, 1), padding=1), (2, 6, 5)),
    "groups": (nn.Conv2d(4, 6, 2, groups=2), (4, 4, 5)),
    "transposed": (nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1), (3, 4, 3)),
    "transposed groups": (nn.ConvTranspose2d(4, 2, 2, groups=2, bias=False), (4, 3, 3)),
}


def double(name, seed=0):
    torch.manual_seed(seed)
    layer, shape = LAYERS[name]
    layer.reset_parameters()
    return layer.double(), shape


def matrix(layer, shape):
    """Column j is what the layer makes of unit vector j, its bias taken off."""
    size = int(np.prod(shape))
    units = torch.eye(size, dtype=torch.float64).view(size, *shape)
    with torch.no_grad():
        return (layer(units) - layer(torch.zeros_like(units))).flatten(1).T


@pytest.mark.parametrize("name", LAYERS)
def test_the_norm_is_that_of_the_dense_matrix(name):
    layer, shape = double(name)
    right = np.linalg.norm(matrix(layer, shape).numpy(), 2)
    assert spectral_norm(layer, shape).item() == pytest.approx(right, rel=1e-4)
    assert lipschitz(layer, shape) == pytest.approx(right, rel=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_the_gradient_is_that_of_the_dense_matrix(name):
    layer, shape = double(name)
    (found,) = torch.autograd.grad(spectral_norm(layer, shape), layer.weight)
    ramp = torch.randn(layer.weight.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    here, ends = layer.weight.detach().clone(), []
    for step in (1e-5, -1e-5):
        layer.weight.data = here + step * ramp
        ends.append(np.linalg.norm(matrix(layer, shape).numpy(), 2))
    assert (found * ramp).sum().item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-2)


@pytest.mark.parametrize("name", LAYERS)
def test_stacked_is_the_loop(name):
    weights = []
    for seed in range(3):
        layer, shape = double(name, seed)
        weights.append(layer.weight.detach().clone())
    maps = linear_maps(layer, shape)
    both = layer_norms(maps, {"weight": torch.stack(weights)})
    for s, weight in enumerate(weights):
        assert both[s].item() == pytest.approx(layer_norms(maps, {"weight": weight[None]}).item(), rel=1e-9)


def test_a_matrix_has_its_largest_singular_value():
    w = np.random.default_rng(0).standard_normal((5, 8))
    assert spectral_norm(w) == pytest.approx(np.linalg.svd(w)[1][0])
    assert isinstance(spectral_norm(w), float)
    leaf = torch.from_numpy(w).requires_grad_()
    spectral_norm(leaf).backward()
    u, _, v = np.linalg.svd(w)
    assert np.allclose(leaf.grad, np.outer(u[:, 0], v[0]))


def test_few_products_come_near_and_from_the_last_vectors_nearer():
    torch.manual_seed(0)
    net = tcn(1152, classes=6, shape=(9, 128))
    maps = linear_maps(net, (1152,))
    params = {n: p.detach()[None] for n, p in net.named_parameters()}
    right, vectors = spectral_norms(maps, params, budget=200, tolerance=1e-4)
    assert torch.allclose(layer_norms(maps, params), right, rtol=0.02)
    assert (layer_norms(maps, params) <= right * 1.00001).all()
    moved = {n: p + 0.02 * p.abs().mean() * torch.randn_like(p) for n, p in params.items()}
    right = spectral_norms(maps, moved, budget=200, tolerance=1e-4)[0]
    for budget, error in ((0, 1e-2), (4, 1e-3)):
        assert torch.allclose(spectral_norms(maps, moved, vectors, budget=budget)[0], right, rtol=error)


def test_finp_code_multiplies_the_largest_rows():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 2), nn.Sigmoid(), nn.Flatten(), nn.BatchNorm1d(15), nn.Linear(15, 2)
    )
    rows = [p.detach().flatten(1).norm(dim=1).max().item() for p in (net[1].weight, net[5].weight)]
    assert lipschitz(net, (6,), "finp_code") == pytest.approx(0.25 * rows[0] * rows[1])
    with pytest.raises(BadInput, match="how"):
        lipschitz(net, (6,), "guess")


def test_the_product_of_norms_bounds_the_jacobian_and_the_row_product_does_not():
    torch.manual_seed(0)
    net, x = mlp(10, hidden=(8, 8)).double(), torch.randn(50, 10, dtype=torch.float64)
    steepest = max(jacobian_norm(net, row[None]).item() for row in x) ** 0.5  # of one output: its spectral norm
    assert steepest <= lipschitz(net, (10,))
    wide = nn.Sequential(nn.Linear(1, 9, bias=False), nn.Linear(9, 1, bias=False))
    for p in wide.parameters():
        nn.init.ones_(p)
    assert lipschitz(wide, (1,)) == pytest.approx(9)
    assert lipschitz(wide, (1,), "finp_code") == pytest.approx(3)


def test_the_module_is_left_as_it_is():
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1)).train()
    before = {n: t.clone() for n, t in net.state_dict().items()}
    lipschitz(net, (6,))
    assert all(m.training for m in net.modules())
    assert all(torch.equal(t, before[n]) for n, t in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert not any(m._forward_pre_hooks for m in net.modules())


def test_a_layer_of_zeros_has_norm_0_and_a_lost_one_nan():
    maps = linear_maps(nn.Linear(3, 2), (3,))
    weight = torch.zeros(2, 2, 3, requires_grad=True)
    norms = layer_norms(maps, {"weight": weight})
    norms.sum().backward()
    assert norms.tolist() == [[0], [0]] and not weight.grad.any()
    lost = torch.stack([torch.full((2, 3), torch.nan), torch.ones(2, 3)])
    found = layer_norms(maps, {"weight": lost})
    assert found[0].isnan().all() and found[1].item() == pytest.approx(6**0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: spectral_norm(np.zeros(3)),
        lambda: spectral_norm(nn.Conv1d(1, 1, 2)),
        lambda: spectral_norm(nn.Conv1d(1, 1, 2, padding=1, padding_mode="circular"), (1, 4)),
        lambda: linear_maps(nn.ReLU(), (3,)),
        lambda: jacobian_norm(torch.relu, torch.zeros(0, 2)),
        lambda: jacobian_norm(torch.relu, torch.zeros(1, 2), draws=3),
        lambda: jacobian_norm(torch.relu, torch.zeros(1, 2), 0, torch.Generator()),
    ],
)
def test_what_cannot_be_used_is_refused(call):
    with pytest.raises(BadInput):
        call()
