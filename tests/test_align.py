"""FedAlign's term: what it compares, which way it pulls, and on which tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from equipoise import learners, metrics, models, objectives
from equipoise.checks import BadInput
from equipoise.objectives.align import align, top_singular_value, transmitting
from equipoise.types import Broadcast, Federation, Local, Shard, Work

torch.set_num_threads(1)
F64 = torch.float64


def perceptron():
    return models.mlp(6, classes=3, hidden=(16, 8)).double()


def residual():
    return models.resnet(48, classes=3, shape=(3, 4, 4), depth=8).double()


def convolutional():
    return models.cnn(256, classes=3, shape=(1, 16, 16)).double()


BUILDERS = [perceptron, residual, convolutional]


def batch(build, slots=1, rows=12, seed=0):
    """S differently initialised modules and their rows, with gradients on the parameters."""
    torch.manual_seed(seed)
    nets = [build() for _ in range(slots)]
    params = {
        n: torch.stack([dict(net.named_parameters())[n].detach() for net in nets])
        for n, _ in nets[0].named_parameters()
    }
    params = {n: p.requires_grad_() for n, p in params.items()}
    width = {perceptron: 6, residual: 48, convolutional: 256}[build]
    x, y = torch.randn(slots, rows, width, dtype=F64), torch.randint(0, 3, (slots, rows))
    logits = torch.stack([net(r) for net, r in zip(nets, x, strict=True)]).detach()
    return nets, Local(params, {}, x, y, y * 0, torch.rand(slots, rows, dtype=F64) + 0.5, logits, {})


def strengths(net, x, width):
    """The largest singular value of each row's matrix, place by place and by full decomposition."""
    read, given = net.last_block(net.before(x), width)
    if read.dim() == 4:
        read = F.adaptive_avg_pool2d(read, given.shape[2:])
    read, given = read.reshape(*read.shape[:2], -1), given.reshape(*given.shape[:2], -1)
    matrix = sum(a.unsqueeze(2) * b.unsqueeze(1) for a, b in zip(read.unbind(2), given.unbind(2), strict=True))
    return torch.linalg.svdvals(matrix / read.shape[2])[:, 0]


def error(net, x, target=None):
    """MSE of the strengths at a quarter of the width and those at full width, as they are or were."""
    target = strengths(net, x, 1.0).detach() if target is None else target
    return (strengths(net, x, 0.25) - target).square().mean()


def gradients(term, local):
    value = term(local)
    found = torch.autograd.grad(value.sum(), list(local.params.values()), materialize_grads=True)
    return value.detach(), dict(zip(local.params, found, strict=True))


@pytest.mark.parametrize("build", BUILDERS)
def test_its_value_is_the_cross_entropy(build):
    nets, local = batch(build, slots=3)
    assert torch.allclose(align(nets[0])(local), objectives.cross_entropy(local), rtol=1e-12)


@pytest.mark.parametrize("build", BUILDERS)
def test_its_gradient_is_that_of_the_logarithm_of_the_error_times_the_cross_entropy(build):
    (net,), local = batch(build)
    _, found = gradients(align(net), local)
    features = net.before(local.x[0]).detach()
    net.before = lambda x: features  # what enters the block is a constant
    loss = error(net, local.x[0]).log() * objectives.cross_entropy(local)[0]
    right = torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True)
    for name, wanted in zip(found, right, strict=True):
        assert torch.allclose(found[name][0], wanted, rtol=1e-3, atol=1e-4 * max(w.abs().max() for w in right)), name


@pytest.mark.parametrize("build", BUILDERS)
def test_a_step_against_the_gradient_brings_the_strengths_closer(build):
    (net,), local = batch(build)
    target = strengths(net, local.x[0], 1.0).detach()
    before = error(net, local.x[0], target)
    _, slope = gradients(align(net), local)
    length = sum(g.square().sum() for g in slope.values()).sqrt()
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.sub_(1e-3 * slope[name][0] / length)
    assert error(net, local.x[0], target) < before


def test_only_what_is_left_of_the_last_block_feels_it():
    (net,), local = batch(residual)
    _, slope = gradients(align(net), local)
    left = {"6.0.body.0.weight": (16, 8), "6.0.body.3.weight": (16, 16), "6.0.shortcut.0.weight": (16, 8)}
    left |= {f"6.0.{norm}.{name}": (16,) for norm in ("body.1", "body.4", "shortcut.1") for name in ("weight", "bias")}
    assert {n for n, g in slope.items() if g.any()} == left.keys()
    for name, sizes in left.items():
        inside = slope[name][0][tuple(slice(n) for n in sizes)]
        assert inside.count_nonzero() == slope[name].count_nonzero(), name


@pytest.mark.parametrize("build", BUILDERS)
def test_where_strengths_agree_there_is_no_loss_and_no_gradient(build):
    nets, local = batch(build, slots=2)
    value, slope = gradients(align(nets[0], width=1.0), local)  # the same block twice
    assert value.tolist() == [0, 0] and not any(g.any() for g in slope.values())
    for p in local.params.values():
        p.data[1].zero_()  # nothing gets through at any width
    value, slope = gradients(align(nets[0]), local)
    assert value[0] > 0 and value[1] == 0
    assert all(g.isfinite().all() and not g[1].any() for g in slope.values())


def test_padding_and_company_change_nothing():
    nets, local = batch(perceptron, slots=2)
    value, slope = gradients(align(nets[0]), local)
    padded = Local(
        local.params,
        {},
        torch.cat([local.x, local.x[:, :1].expand(2, 5, 6)], 1),
        torch.cat([local.y, local.y[:, :1].expand(2, 5)], 1),
        torch.cat([local.y, local.y[:, :1].expand(2, 5)], 1) * 0,
        torch.cat([local.weight, torch.zeros(2, 5, dtype=F64)], 1),
        torch.cat([local.logits, local.logits[:, :1].expand(2, 5, 3)], 1),
        {},
    )
    same, its = gradients(align(nets[0]), padded)
    assert torch.allclose(value, same, rtol=1e-12)
    assert all(torch.allclose(slope[n], its[n], rtol=1e-10, atol=1e-14) for n in slope)
    alone = Local(
        {n: p[1:] for n, p in local.params.items()},
        {},
        local.x[1:],
        local.y[1:],
        local.group[1:],
        local.weight[1:],
        local.logits[1:],
        {},
    )
    assert align(nets[0])(alone)[0] == value[1]


def test_power_iteration_finds_the_largest_singular_value():
    torch.manual_seed(1)
    matrix = torch.rand(40, 8, 16, dtype=F64)  # of features after ReLU: no negative entry, one value far above the rest
    assert torch.allclose(top_singular_value(matrix), torch.linalg.svdvals(matrix)[:, 0], rtol=1e-9)
    signed = torch.randn(40, 8, 16, dtype=F64)
    right = torch.linalg.svdvals(signed)[:, 0]
    assert (top_singular_value(signed) <= right * (1 + 1e-12)).all()  # approached from below
    assert torch.allclose(top_singular_value(signed, 3000), right, rtol=1e-6)


def test_the_transmitting_matrix_is_the_mean_outer_product_over_places():
    torch.manual_seed(1)
    a, b = torch.randn(2, 3, 4, 6), torch.randn(2, 5, 2, 3)
    pooled = a.reshape(2, 3, 2, 2, 3, 2).mean((3, 5))
    right = torch.stack(
        [sum(torch.outer(pooled[i, :, r, c], b[i, :, r, c]) for r in range(2) for c in range(3)) / 6 for i in range(2)]
    )
    assert torch.allclose(transmitting(a, b), right, atol=1e-6)
    assert torch.allclose(transmitting(a[..., 0, 0], b[..., 0, 0])[1], torch.outer(a[1, :, 0, 0], b[1, :, 0, 0]))


def test_records_can_tell_the_sources_definition_from_ours():
    assert not align(residual()).adapted
    assert align(perceptron()).adapted and align(convolutional()).adapted


def test_models_without_such_a_block_are_refused_by_name():
    with pytest.raises(BadInput, match="a Sequential has none; take mlp, tcn, cnn, femnist_cnn or resnet"):
        align(models.logistic(3))
    with pytest.raises(BadInput, match="a Sequential has none"):
        align(models.mlp(3, hidden=()))
    frozen = perceptron()
    frozen[0].bias.requires_grad_(False)
    with pytest.raises(BadInput, match=r"'0\.bias' is frozen"):
        align(frozen)
    with pytest.raises(BadInput, match=r"width must lie in 0\.\.1"):
        align(perceptron(), width=2)


def train(build, coefficient, engine="auto", steps=10, lr=1e-3):
    """Train three clients for a round; return what they report and their memory."""
    rng = np.random.default_rng(0)
    width = {perceptron: 6, residual: 48}[build]
    shards = [
        Shard(rng.standard_normal((n, width)), rng.integers(0, 3, n), np.zeros(n, np.int64)) for n in (30, 20, 25)
    ]
    ones = np.ones(3)
    fed = Federation(np.arange(3), shards, {"cross_entropy": ones, "align": coefficient * ones}, 1, classes=3)
    terms = {"cross_entropy": objectives.cross_entropy, "align": align(build())}
    names = models.shared_names(build(), None)
    options = {"steps": steps, "batch": 16, "optimiser": "sgd", "lr": lr, "dtype": "float64", "balance": "none"}
    who = learners.stacked(build, shared=names, terms=terms, count=metrics.hits, engine=engine, **options)
    model, memory = who.init(fed, 1)
    (done,) = who.work([Work(fed, Broadcast(1, fed.clients, model, {}), memory, 1, frozenset())])
    layout = learners.layouts(build, names)[0]
    nets = []
    for row in model + done.reports.updates:
        nets.append(build())
        nets[-1].load_state_dict({n: torch.tensor(a) for n, a in layout.split(row).items()}, strict=False)
    return nets, layout.split(done.reports.updates), [torch.tensor(s.x) for s in shards]


def test_engines_agree():
    alike = [train(perceptron, 0.45, engine)[1] for engine in ("loop", "chain", "swap")]
    without = train(perceptron, 0.0)[1]
    assert max(np.abs(alike[0][n] - without[n]).max() for n in without) > 1e-4
    for other in alike[1:]:
        assert max(np.abs(alike[0][n] - other[n]).max() for n in other) < 1e-10


def test_clients_that_train_with_it_align_their_last_blocks():
    (with_it, _, rows), (without, _, _) = train(residual, 0.45), train(residual, 0.0)
    for mine, plain, x in zip(with_it, without, rows, strict=True):
        assert error(mine, x) < error(plain, x)


def test_it_leaves_the_running_statistics_to_the_forward_pass_that_learns():
    _, moved, _ = train(residual, 0.45, steps=1)
    _, plain, _ = train(residual, 0.0, steps=1)
    names = [n for n in moved if "running" in n]
    assert len(names) == 18 and all(np.abs(plain[n]).max() > 0 for n in names)
    assert all(np.array_equal(moved[n], plain[n]) for n in names)
    assert not np.array_equal(moved["6.0.body.0.weight"], plain["6.0.body.0.weight"])


def test_a_users_model_with_the_two_methods_can_be_aligned():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def before(self, x):
            return self.a(x).relu()

        def last_block(self, features, width=1.0):
            n = round(4 * width)
            return features[:, :n], F.linear(features[:, :n], self.b.weight[:n, :n], self.b.bias[:n]).relu()

        def forward(self, x):
            return self.c(self.last_block(self.before(x))[1])

    own = Own().double()
    _, local = batch(perceptron)
    params = {n: p.detach()[None] for n, p in own.named_parameters()}
    local.params, local.logits = params, functional_call(own, {n: p[0] for n, p in params.items()}, (local.x[0],))[None]
    assert torch.allclose(align(own, width=0.5)(local), objectives.cross_entropy(local))
    assert align(own).adapted
