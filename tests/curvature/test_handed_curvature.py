"""The handed cases of curvature and of Jacobian norms, all their parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from equipoise.curvature import exact, hutchinson, jacobian_norm, spectral_norm, top_eigenvalue

from .problems import together


def test_h15_norm_of_an_affine_map(handed):
    case, expected = handed["h15"]["input"]["cases"][0], handed["h15"]["expected"]["cases"][0]
    w, b = torch.tensor(case["W"], dtype=torch.float64), torch.tensor(case["b"], dtype=torch.float64)
    batch = torch.tensor(case["batch"], dtype=torch.float64)
    assert jacobian_norm(lambda x: x @ w.T + b, batch).item() == pytest.approx(expected["batch_mean"])
    for row in batch:
        each = jacobian_norm(lambda x: x @ w.T + b, row[None]).item()
        assert each == pytest.approx(expected["frobenius_squared_per_example"])
    assert spectral_norm(np.array(case["W"], float)) == pytest.approx(expected["spectral_norm"])
    assert spectral_norm(np.array(case["W"])) == pytest.approx(expected["spectral_norm"])  # of integers, too


def test_h15_random_directions_agree_in_the_mean(handed):
    case, expected = handed["h15"]["input"]["cases"][0], handed["h15"]["expected"]["cases"][0]
    w, batch = torch.tensor(case["W"], dtype=torch.float64), torch.tensor(case["batch"], dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    drawn = np.array([jacobian_norm(lambda x: x @ w.T, batch, 1, generator).item() for _ in range(400)])
    error = drawn.std(ddof=1) / 20
    assert error > 0
    assert abs(drawn.mean() - expected["batch_mean"]) < 3 * error


def test_h15_relu(handed):
    case, expected = handed["h15"]["input"]["cases"][1], handed["h15"]["expected"]["cases"][1]
    batch = torch.tensor(case["batch"])
    assert torch.func.jacrev(torch.relu)(batch[0]).tolist() == expected["jacobian"]
    assert jacobian_norm(torch.relu, batch).item() == expected["frobenius_squared_per_example"]


def test_h15_leaves_input_and_mode_as_they_are():
    net, x = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train(), torch.ones(3, 2)
    jacobian_norm(net, x).backward()
    assert not x.requires_grad and x.grad is None
    assert net.training and net[1].training
    assert net[0].weight.grad is not None  # it can be a term of a loss


def test_h21_quadratic(handed):
    expected = handed["h21"]["expected"]["cases"][0]
    at = torch.tensor(handed["h21"]["input"]["cases"][0]["at"], dtype=torch.float64)

    def loss(w):
        return 0.5 * (3 * w[0] ** 2 - 5 * w[1] ** 2 + w[2] ** 2)

    def product(v):
        return torch.stack([torch.autograd.functional.hvp(loss, at, row)[1] for row in v])

    near, start = pytest.approx, torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    for hessian, first in ((np.diag([3.0, -5.0, 1.0]), None), (product, start)):
        top = [float(top_eigenvalue(hessian, first, by=by)) for by in ("algebraic", "magnitude")]
        assert top == near([expected["top_algebraic"], expected["top_by_magnitude"]], abs=expected["tolerance"])
    found = hutchinson(product, [(1, 1, 1)], start)
    assert found.value.item() == near(expected["trace"], abs=expected["tolerance"])
    assert found.error.item() == near(0, abs=1e-12)


@pytest.mark.parametrize("settings", [{}, {"exact_below": 0}, {"exact_below": 0, "trace": "hutchinson"}])
def test_h21_logistic_regression_has_the_mean_and_not_the_sum(handed, settings):
    case, expected = handed["h21"]["input"]["cases"][1], handed["h21"]["expected"]["cases"][1]
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    x, y = torch.tensor(case["x"], dtype=torch.float64), torch.tensor(case["y"])
    figures, _ = exact(**settings).measure(together([net], [x], [y]), {})
    assert figures["eigenvalue"].item() == pytest.approx(expected["top"])
    assert figures["trace"].item() == pytest.approx(expected["trace"])
    assert figures["trace_error"].item() == pytest.approx(0, abs=1e-12)
