"""Terms of the local loss: values by hand, gradients against torch, finite where nothing exists."""

from __future__ import annotations

import inspect
import math

import pytest
import torch

from equipoise import objectives
from equipoise.checks import BadInput
from equipoise.types import Local

torch.set_num_threads(1)


def local(p, y, group, weight=None, target=0.3, **more):
    """Lay out a batch of S slots from probabilities."""
    p = torch.tensor(p, dtype=torch.float64)
    y, group = torch.tensor(y, dtype=torch.float64), torch.tensor(group)
    w = torch.ones_like(p) if weight is None else torch.tensor(weight, dtype=torch.float64)
    news = {"F_global": torch.full((len(p),), target, dtype=torch.float64)}
    return Local(more.get("params", {}), more.get("anchor", {}), None, y, group, w, p.logit(), news)


def test_cross_entropy_is_the_weighted_mean_and_ignores_padding():
    batch = local([[0.9, 0.2, 0.5]], [[1, 0, 1]], [[0, 1, 0]], [[2.0, 1.0, 0.0]])
    right = -(2 * math.log(0.9) + math.log(0.8)) / 3
    assert objectives.cross_entropy(batch).item() == pytest.approx(right)


def test_its_closed_slope_is_torchs():
    batch = local(
        [[0.9, 0.2, 0.5], [0.3, 0.1, 0.7]], [[1, 0, 1], [0, 0, 1]], [[0, 1, 0]] * 2, [[2.0, 1.0, 0.0], [1, 1, 5]]
    )
    batch.logits.requires_grad_()
    (right,) = torch.autograd.grad(objectives.cross_entropy(batch).sum(), batch.logits)
    with torch.no_grad():
        assert torch.allclose(objectives.cross_entropy_slope(batch), right, atol=1e-14)


def test_disparity_of_two_and_of_three_groups():
    two = local([[0.1, 0.3, 0.9]], [[0, 1, 1]], [[0, 0, 1]])
    assert objectives.disparity(two).item() == pytest.approx(-0.7)
    three = local([[0.1, 0.3, 0.9, 0.5]], [[0, 1, 1, 1]], [[0, 0, 2, 1]])
    assert objectives.disparity(three).item() == pytest.approx(-0.7)  # 0.9 - 0.2; the group between does not matter
    masked = local([[0.1, 0.3, 0.9, 0.99]], [[0, 1, 1, 1]], [[0, 0, 1, 1]], [[1, 1, 1, 0]])
    assert objectives.disparity(masked).item() == pytest.approx(-0.7)


def test_gaming_is_the_distance_to_the_target_on_positives_only():
    batch = local([[0.9, 0.3, 0.5, 0.99]], [[1, 1, 1, 0]], [[0, 0, 1, 1]], target=0.3)
    assert objectives.gaming(batch).item() == pytest.approx(abs(0.1 - 0.3))
    assert objectives.gaming(local([[0.9, 0.3, 0.5]], [[1, 1, 1]], [[0, 0, 1]], target=0.05)).item() == pytest.approx(
        0.05
    )


@pytest.mark.parametrize("term", ["disparity", "gaming"])
@pytest.mark.parametrize(
    ("group", "y", "weight", "target"),
    [
        ([[0, 0, 0]], [[1, 1, 0]], None, 0.3),
        ([[0, 1, 1]], [[0, 0, 0]], None, 0.3),
        ([[0, 1, 1]], [[1, 0, 0]], None, 0.3),
        ([[0, 1, 1]], [[1, 1, 1]], [[1, 0, 0]], 0.3),
        ([[0, 1, 1]], [[1, 1, 1]], None, math.nan),
    ],
    ids=["one group", "no positives", "positives of one group", "other group is padding", "no target"],
)
def test_what_does_not_exist_is_0_with_gradient_0(term, group, y, weight, target):
    """Beside a slot where it does exist."""
    full = [[0, 1, 1]], [[1, 1, 0]], [[1.0, 1.0, 1.0]]
    w = [[1.0, 1.0, 1.0]] if weight is None else weight
    batch = local([[0.2, 0.7, 0.6]] * 2, y + full[1], group + full[0], w + full[2])
    batch.news["F_global"][0] = target
    batch.logits.requires_grad_()
    value = getattr(objectives, term)(batch)
    (slope,) = torch.autograd.grad(value.sum(), batch.logits)
    exists = term == "disparity" and (y == [[0, 0, 0]] or y == [[1, 0, 0]] or math.isnan(target))
    assert value.isfinite().all() and slope.isfinite().all() and slope[1].abs().max() > 0
    assert exists or (value[0] == 0 and not slope[0].any())


@pytest.mark.parametrize("term", objectives.bias.__all__)
def test_a_gap_of_many_classes_is_refused(term):
    batch = local([[0.2, 0.7]], [[1, 2]], [[0, 1]])
    batch.logits = torch.zeros(1, 2, 3)
    with pytest.raises(BadInput, match="these rows have 3 classes; attack a task of two"):
        getattr(objectives, term)(batch)


def test_proximal_is_half_the_squared_distance_of_shared_layers():
    params = {"a": torch.tensor([[1.0, 2.0], [0.0, 0.0]]), "b": torch.ones(2, 3)}
    anchor = {"a": torch.zeros(2, 2)}
    batch = local([[0.5], [0.5]], [[1], [1]], [[0], [0]], params=params, anchor=anchor)
    assert objectives.proximal(batch).tolist() == [2.5, 0]


MADE_FOR_A_MODULE = {n for n in objectives.__all__ if "module" in inspect.signature(getattr(objectives, n)).parameters}


@pytest.mark.parametrize("name", [n for n in objectives.__all__ if n not in MADE_FOR_A_MODULE])
def test_every_term_treats_slots_alone(name):
    """A slot's value is the same with another slot beside it, whatever groups that one has."""
    a = local([[0.2, 0.7, 0.6]], [[1, 1, 0]], [[0, 1, 1]])
    b = local([[0.2, 0.7, 0.6], [0.5, 0.9, 0.1]], [[1, 1, 0], [0, 1, 1]], [[0, 1, 1], [3, 0, 2]])
    assert getattr(objectives, name)(a)[0] == getattr(objectives, name)(b)[0]
