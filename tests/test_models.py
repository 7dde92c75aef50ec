"""Models, which of their layers travel, and factories of users."""

from __future__ import annotations

import math
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from equipoise import models
from equipoise.checks import BadInput
from equipoise.models.slimmable import slim

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
def many(features, *, classes): return nn.Linear(features, classes)
def image(features, shape=None, classes=2):
    return nn.Sequential(nn.Unflatten(1, shape), nn.Flatten(), many(features, classes=classes))
"""

SHAPES = {"tcn": (9, 128), "cnn": (3, 32, 32), "femnist_cnn": (1, 28, 28), "resnet": (3, 8, 8)}


def sample(name, classes=2, **options):
    """Build a model of the catalogue for rows that suit it."""
    if name in SHAPES:
        options = {"shape": SHAPES[name], **options}
    if name == "resnet":
        options = {"depth": 8, **options}
    return getattr(models, name)(math.prod(options.get("shape", (9,))), classes=classes, **options)


def weights(module):
    return [tuple(p.shape) for p in module.parameters() if p.dim() > 1]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_nets", None)


@pytest.mark.parametrize("name", models.__all__)
def test_two_classes_have_one_logit_a_row_and_more_have_one_each(name):
    rows = torch.zeros(5, math.prod(SHAPES.get(name, (9,))))
    assert sample(name)(rows).shape == (5, 1)
    assert sample(name, classes=7)(rows).shape == (5, 7)
    with pytest.raises(BadInput, match="a model needs at least 2 classes, got 1"):
        sample(name, classes=1)


def test_the_convolutions_of_finp_have_the_published_widths():
    assert weights(sample("tcn", 6)) == [(64, 9, 3), (64, 64, 3), (6, 1920)]
    assert weights(sample("cnn", 10)) == [(32, 3, 5, 5), (64, 32, 5, 5), (512, 1600), (128, 512), (10, 128)]
    assert weights(sample("cnn", 10, shape=(1, 28, 28)))[2] == (512, 1024)
    first, second = [(32, 1, 3, 3), (32, 32, 2, 2)], [(64, 32, 3, 3), (64, 64, 2, 2)]
    assert weights(sample("femnist_cnn", 62)) == [*first, *second, (256, 3136), (62, 256)]
    assert [m.num_groups for m in sample("femnist_cnn").modules() if isinstance(m, nn.GroupNorm)] == [8, 16]


def test_a_signal_is_channels_by_time_and_an_image_channels_by_height_by_width():
    x = torch.randn(4, 1152)
    net = sample("tcn", 6)
    (a, b), (c, d), (e, f) = ((m.weight, m.bias) for m in net if hasattr(m, "weight"))
    inner = F.max_pool1d(F.conv1d(x.reshape(4, 9, 128), a, b).relu(), 2)
    by_hand = F.linear(F.max_pool1d(F.conv1d(inner, c, d).relu(), 2).reshape(4, -1), e, f)
    assert torch.allclose(net(x), by_hand, atol=1e-6)
    tall = sample("cnn", shape=(1, 20, 30))
    bright = torch.zeros(1, 1, 20, 30)
    bright[..., -1] = 1  # the last column
    stem = tall[1](tall[0](bright.reshape(1, -1)))
    assert (stem[..., -1] != stem[..., 0]).any() and torch.equal(stem[..., 0, :], stem[..., 1, :])


@pytest.mark.parametrize(
    ("block", "depth"), [("basic", 8), ("basic", 20), ("basic", 56), ("bottleneck", 11), ("bottleneck", 56)]
)
def test_a_resnets_depth_counts_its_layers_with_weights_on_the_longest_way(block, depth):
    net = sample("resnet", 10, depth=depth, block=block)
    shortcuts = {m for r in net.modules() if hasattr(r, "shortcut") for m in r.shortcut.modules()}
    assert len([m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear) and m not in shortcuts]) == depth
    assert net[-1].in_features == {"basic": 64, "bottleneck": 256}[block]
    assert net.before(torch.zeros(2, 192)).shape[2:] == (4, 4)  # the second stage halves, and so does the third
    assert net.last_block(net.before(torch.zeros(2, 192)))[1].shape[2:] == (2, 2)


def test_resnet_parameters_counted_by_hand():
    stem, head = 3 * 16 * 9 + 2 * 16, 64 * 10 + 10
    first = 2 * (16 * 16 * 9 + 2 * 16)
    second = 16 * 32 * 9 + 32 * 32 * 9 + 4 * 32 + 16 * 32 + 2 * 32
    third = 32 * 64 * 9 + 64 * 64 * 9 + 4 * 64 + 32 * 64 + 2 * 64
    more = [2 * (c * c * 9 + 2 * c) for c in (16, 32, 64)]
    for n in (1, 9):
        found = sum(p.numel() for p in sample("resnet", 10, depth=6 * n + 2).parameters())
        assert found == stem + first + second + third + (n - 1) * sum(more) + head


def test_group_normalisation_has_no_buffers_and_trains_on_one_row():
    assert not list(sample("resnet", norm="group").buffers())
    assert sample("resnet", norm="group").train()(torch.randn(1, 192)).isfinite().all()
    assert len(list(sample("resnet").buffers())) == 3 * 9  # mean, variance and counter of nine normalisations


@pytest.mark.parametrize(
    ("name", "features", "options", "message"),
    [
        (
            "cnn",
            561,
            {},
            r"cnn needs rows of a shape such as \(3, 32, 32\), and these 561 features have none; take mlp",
        ),
        ("tcn", 1152, {"shape": (3, 32, 12)}, r"tcn cannot take rows of shape \(3, 32, 12\); it needs 2 axes"),
        ("cnn", 64, {"shape": (1, 8, 8)}, "each but the first at least 16"),
        ("tcn", 27, {"shape": (3, 9)}, "each but the first at least 10"),
        ("femnist_cnn", 0, {"shape": (0, 28, 28)}, r"cannot take rows of shape \(0, 28, 28\)"),
        ("femnist_cnn", 784, {"shape": (3, 28, 28)}, r"784 features, and shape \(3, 28, 28\) holds 2352"),
        ("resnet", 192, {"shape": (3, 8, 8), "depth": 2}, r"depth 6 n \+ 2, got 2; take 8, 14, 20, ..., 56"),
        ("resnet", 192, {"shape": (3, 8, 8), "block": "bottleneck", "depth": 50}, "take 11, 20, 29, ..., 56"),
        ("resnet", 192, {"shape": (3, 8, 8), "norm": "layer"}, "norm 'layer' is unknown"),
        ("resnet", 192, {"shape": (3, 8, 8), "block": "wide"}, "block 'wide' is unknown"),
    ],
)
def test_what_a_model_cannot_take_is_refused(name, features, options, message):
    with pytest.raises(BadInput, match=message):
        getattr(models, name)(features, **options)


def test_the_smallest_rows_that_are_allowed_work():
    for name, shape in {"tcn": (1, 10), "cnn": (2, 16, 16), "femnist_cnn": (1, 4, 4), "resnet": (1, 1, 1)}.items():
        assert sample(name, 3, shape=shape)(torch.zeros(2, math.prod(shape))).shape == (2, 3)


SLIM = [
    ("mlp", {}),
    *((name, {}) for name in SHAPES),
    ("resnet", {"norm": "group"}),
    ("resnet", {"block": "bottleneck", "depth": 11}),
]


@pytest.mark.parametrize(("name", "options"), SLIM, ids=str)
def test_a_last_block_at_full_width_is_the_models_own(name, options):
    net = sample(name, **options).double().train()
    x = torch.randn(4, math.prod(SHAPES.get(name, (9,))), dtype=torch.float64)
    entering, leaving = net.last_block(net.before(x))
    out = leaving
    for layer in list(net)[net.places[-1] + 1 :]:
        out = layer(out)
    assert torch.allclose(out, net(x), rtol=1e-12)
    some, fewer = net.last_block(net.before(x), 0.25)
    assert (some.shape[1] / entering.shape[1], fewer.shape[1] / leaving.shape[1]) == (0.25, 0.25)
    assert some.shape[2:] == entering.shape[2:] and fewer.shape[2:] == leaving.shape[2:]


def test_a_slim_block_is_the_block_of_a_smaller_network():
    net = sample("resnet").double().train()
    before = {n: b.clone() for n, b in net.named_buffers()}
    features = torch.randn(4, 32, 4, 4, dtype=torch.float64)
    small = nn.ModuleDict(
        {
            "body": nn.Sequential(
                nn.Conv2d(8, 16, 3, 2, 1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, 1, 1, bias=False),
                nn.BatchNorm2d(16),
            ),
            "shortcut": nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16)),
        }
    ).double()
    large = dict(net[6][0].named_parameters())
    with torch.no_grad():
        for name, p in small.named_parameters():
            p.copy_(large[name][tuple(slice(n) for n in p.shape)])
    some = features[:, :8]
    right = (small["body"](some) + small["shortcut"](some)).relu()
    assert torch.allclose(net.last_block(features, 0.25)[1], right, rtol=1e-12)
    assert all(torch.equal(b, before[n]) for n, b in net.named_buffers())  # running statistics stay as they are


def test_group_normalisation_of_fewer_channels_keeps_the_size_of_its_groups():
    norm = nn.GroupNorm(4, 16)
    x = torch.randn(2, 16, 3, 3)
    assert torch.allclose(slim(norm, x[:, :8], 0.5), norm(x)[:, :8], atol=1e-6)


def test_a_part_of_a_model_has_no_last_block():
    part = models.mlp(3)[:2]
    assert part(torch.zeros(2, 3)).shape == (2, 64)
    with pytest.raises(BadInput, match="no last hidden block"):
        part.before(torch.zeros(2, 3))


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


def test_buffers_travel_stay_or_are_refused_and_the_layers_keep_their_numbers():
    net = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    buffers = {"0.running_mean", "0.running_var", "2.running_mean", "2.running_var"}
    for shared in (0, 1, 2, 3, 4, None):
        travel, stay = (models.shared_names(net, shared, way) for way in ("average", "local"))
        assert tuple(n for n in travel if n not in buffers) == stay
    assert set(models.shared_names(net, None)) - set(models.shared_names(net, None, "local")) == buffers
    with pytest.raises(BadInput, match=r"has the buffer '0\.running_mean', and buffers = \"refuse\""):
        models.shared_names(net, 1, "refuse")
    assert models.shared_names(net[1:], 1, "refuse") == ("1.weight", "1.bias")  # the one it has does not travel
    with pytest.raises(BadInput, match=r"has the buffer '2\.running_mean'"):
        models.shared_names(net[1:], None, "refuse")
    with pytest.raises(BadInput, match="buffers 'drop' is unknown"):
        models.shared_names(net, None, "drop")


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


def test_a_users_factory_is_told_classes_and_shape_if_it_has_such_parameters(mine):
    build = models.load_factory("my_nets:image", classes=4, shape=(2, 3))
    assert build(6)(torch.zeros(5, 6)).shape == (5, 4) and build(6)[0].unflattened_size == (2, 3)
    assert models.load_factory("my_nets:many", classes=4, shape=(2, 3))(6)(torch.zeros(5, 6)).shape == (5, 4)
    assert models.load_factory("my_nets:plain", classes=2, shape=(2, 3))(6).out_features == 1


@pytest.mark.parametrize(("name", "classes"), [("plain", 4), ("two", 3), ("many", 2)])
def test_as_many_logits_as_classes_are_wanted(mine, name, classes):
    wanted = (
        r"one logit a row, \(3,\) or \(3, 1\)" if classes == 2 else rf"one logit a row for each of {classes} classes"
    )
    with pytest.raises(BadInput, match=wanted):
        models.load_factory(f"my_nets:{name}", classes=classes)(6)
