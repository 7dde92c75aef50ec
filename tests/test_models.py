"""Models, which of their layers travel, and factories of users."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from equipoise import models
from equipoise.checks import BadInput

torch.set_num_threads(1)

FACTORIES = """
from torch import nn
def plain(features): return nn.Linear(features, 1)
def flat(features): return nn.Sequential(nn.Flatten(1), nn.Linear(features, 4), nn.Linear(4, 1), nn.Flatten(0))
def normed(features): return nn.Sequential(nn.Linear(features, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
def two(features): return nn.Linear(features, 2)
def narrow(features): return nn.Linear(3, 1)
def text(features): return "a model"
def pair(features):
    class Pair(nn.Module):
        def forward(self, x): return x, x
    return Pair()
def fails(features): raise KeyError(features)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_nets", None)


@pytest.mark.parametrize("name", models.__all__)
def test_every_model_gives_one_logit_a_row(name):
    module = getattr(models, name)(9)
    assert module(torch.zeros(5, 9)).shape == (5, 1)


def test_the_papers_network_has_its_four_layers():
    assert [tuple(p.shape) for p in models.mlp(20).parameters()][::2] == [(64, 20), (32, 64), (16, 32), (1, 16)]
    assert len(models.shared_names(models.mlp(20), 2)) == 4
    assert models.shared_names(models.mlp(20), None) == models.shared_names(models.mlp(20), 4)


def test_float_buffers_travel_with_their_layer_and_integers_do_not():
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    assert models.shared_names(net, 2)[2:] == ("1.weight", "1.bias", "1.running_mean", "1.running_var")
    assert models.shared_names(net, 1) == ("0.weight", "0.bias")


def test_a_layer_used_twice_and_constants_are_counted_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
            self.b.weight = self.a.weight
            self.register_buffer("shift", torch.zeros(1), persistent=False)

    assert models.shared_names(Tied(), None) == ("a.weight", "a.bias", "b.bias", "c.weight", "c.bias")


@pytest.mark.parametrize("shared", [-1, 5])
def test_too_many_layers_are_refused(shared):
    with pytest.raises(BadInput, match=f"cannot share {shared} layers of a model that has 4; use 0..4"):
        models.shared_names(models.mlp(3), shared)


@pytest.mark.parametrize("name", ["plain", "flat", "normed"])
def test_a_users_factory_is_found_and_checked(mine, name):
    before = torch.get_rng_state()
    build = models.load_factory(f"my_nets:{name}")
    assert torch.equal(torch.get_rng_state(), before)
    module = build(6)
    assert module.training and module.eval()(torch.zeros(4, 6)).shape in ((4,), (4, 1))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("my_nets:plane", "model 'my_nets:plane': my_nets has no function 'plane'"),
        ("my_nets:fails", r"model 'my_nets:fails' failed \(KeyError: 6\)"),
        ("my_nets:text", "made a str, not a torch.nn.Module"),
        ("my_nets:two", r"gives \(3, 2\) for 3 rows"),
        ("my_nets:pair", "gives tuple for 3 rows"),
        ("my_nets:narrow", "does not take rows of 6 features"),
    ],
)
def test_what_is_no_model_is_named(mine, where, message):
    with pytest.raises(BadInput, match=message):
        models.load_factory(where)(6)
