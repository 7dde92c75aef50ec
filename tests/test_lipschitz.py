"""FinP's pull on the client: values and gradients against plain torch, and what it must leave alone."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from equipoise import metrics, models, objectives
from equipoise.checks import BadInput
from equipoise.learners import stacked
from equipoise.types import Broadcast, Federation, Local, Shard, Work

torch.set_num_threads(1)
FORMS = ["lipschitz_code", "lipschitz_paper"]
RHO = (0.25, 1.0)


def perceptron():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))


def convolutional():
    body = nn.Unflatten(1, (1, 12)), nn.Conv1d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(3, 2, 2)
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(10, 1))


def net_and_batch(build=perceptron, slots=2, moved=0.05, shared=True):
    """A module in float64, and a batch of as many clients whose models differ and have moved since they came."""
    torch.manual_seed(3)
    net = build().double()
    features = 12 if build is convolutional else 4
    params = {
        n: torch.stack([p.detach() * (1 + k / 4) + 0.1 * k * torch.randn_like(p) for k in range(slots)])
        for n, p in net.named_parameters()
    }
    anchor = {n: p + moved * torch.randn_like(p) for n, p in params.items()} if shared else {}
    params = {n: p.requires_grad_() for n, p in params.items()}
    x, y = torch.randn(slots, 8, features, dtype=torch.float64), torch.randint(0, 2, (slots, 8)).double()
    weight = torch.rand(slots, 8, dtype=torch.float64)
    told = {"rho": torch.tensor(RHO[:slots], dtype=torch.float64)}
    return net, Local(params, anchor, x, y, y.long(), weight, logits(net, params, x), told)


def logits(net, params, x):
    each = [functional_call(net, {n: p[k] for n, p in params.items()}, (x[k],)) for k in range(len(x))]
    return torch.stack(each).squeeze(-1)


def weights_of(local):
    return [p for n, p in local.params.items() if n.endswith("weight")]


def gradient(value, local):
    return torch.autograd.grad(value.sum(), list(local.params.values()), materialize_grads=True, retain_graph=True)


def rows_product(local, k):
    """The product over layers of the largest norm of a row, in plain words."""
    return torch.stack([max(row.norm() for row in w[k].flatten(1)) for w in weights_of(local)]).prod()


def operator(layer, weight, shape):
    """A layer without its bias as a dense matrix, one unit vector after another."""
    twin = copy.deepcopy(layer).requires_grad_(False)
    twin.bias = None
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64).view(-1, *shape)
    return functional_call(twin, {"weight": weight}, (units,)).flatten(1).T


@pytest.mark.parametrize("build", [perceptron, convolutional])
def test_the_codes_form_is_its_authors_loss(build):
    """CE + beta rho sg(CE / Lip) Lip, value and gradient; so the gradient is grad CE + beta rho CE grad log Lip."""
    beta = 0.7
    net, local = net_and_batch(build)
    found = objectives.cross_entropy(local) + beta * objectives.lipschitz_code(net)(local)
    slopes = gradient(found, local)
    cost, values, identity = objectives.cross_entropy(local), [], 0
    for k, rho in enumerate(RHO):
        lip = rows_product(local, k)
        values.append(cost[k] + beta * rho * (cost[k] / lip).detach() * lip)
        identity = identity + cost[k] + beta * rho * cost[k].detach() * lip.log()
    torch.testing.assert_close(found, torch.stack(values))
    torch.testing.assert_close(found, cost * (1 + beta * local.news["rho"]))
    torch.testing.assert_close(slopes, gradient(torch.stack(values), local))
    torch.testing.assert_close(slopes, gradient(identity, local))


def test_the_codes_form_knows_no_scale_and_moves_one_row_of_a_layer():
    net, local = net_and_batch()
    slopes = dict(zip(local.params, gradient(objectives.lipschitz_code(net)(local), local), strict=True))
    twice = replace(local, params={n: (2 * p.detach()).requires_grad_() for n, p in local.params.items()})
    smaller = gradient(objectives.lipschitz_code(net)(twice), twice)
    torch.testing.assert_close([2 * g for g in smaller], list(slopes.values()))
    for name, slope in slopes.items():
        touched = slope.flatten(2).abs().sum(2) if name.endswith("weight") else slope
        assert (touched > 0).sum(1).tolist() == ([1, 1] if name.endswith("weight") else [0, 0])


@pytest.mark.parametrize("build", [perceptron, convolutional])
@pytest.mark.parametrize("shared", [True, False])
def test_the_papers_form_is_the_product_of_true_norms(build, shared):
    """Against the dense matrix of every layer; gradient by torch's own singular values."""
    net, local = net_and_batch(build, shared=shared)
    found = objectives.lipschitz_paper(net)(local)
    layers = [m for m in net if hasattr(m, "weight")]
    shapes = [(4,), (6,), (5,)] if build is perceptron else [(1, 12), (3, 6), (10,)]
    right = torch.stack(
        [
            rho * torch.stack([
                torch.linalg.matrix_norm(operator(layer, w[k], shape), 2)
                for layer, w, shape in zip(layers, weights_of(local), shapes, strict=True)
            ]).prod()
            for k, rho in enumerate(RHO)
        ]
    )  # fmt: skip
    torch.testing.assert_close(found, right, rtol=0.02, atol=0)
    assert (found <= right * (1 + 1e-12)).all()
    for mine, plain in zip(gradient(found, local), gradient(right, local), strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0.1 * max(1e-9, float(plain.abs().max())))


def test_sigmoids_count_a_quarter_in_the_papers_form_only():
    net, local = net_and_batch()
    squashed = nn.Sequential(*net[:3], nn.Sigmoid(), net[4])
    paper, code = objectives.lipschitz_paper, objectives.lipschitz_code
    torch.testing.assert_close(paper(squashed)(local), paper(net)(local) / 4)
    torch.testing.assert_close(gradient(code(squashed)(local), local), gradient(code(net)(local), local))


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_that_dies_gives_no_nan_and_touches_no_other_slot(form):
    net, local = net_and_batch()
    make = getattr(objectives, form)
    alive = gradient(make(net)(local), local)
    with torch.no_grad():
        local.params["2.weight"][0] = 0
    value = make(net)(local)
    slopes = gradient(value, local)
    assert value.isfinite().all() and all(g.isfinite().all() for g in slopes)
    assert not dict(zip(local.params, slopes, strict=True))["2.weight"][0].any()
    for before, after in zip(alive, slopes, strict=True):
        torch.testing.assert_close(after[1], before[1])
        assert form == "lipschitz_code" or not after[0].any()  # the bound is 0 whatever the other layers are
    assert form == "lipschitz_code" or value[0] == 0


def test_products_that_leave_the_range_of_a_float_stay_finite():
    layers = [nn.Linear(2, 2, bias=False) for _ in range(60)]
    net = nn.Sequential(*layers, nn.Linear(2, 1, bias=False))
    params = {n: 20 + p.detach()[None].clone() for n, p in net.named_parameters()}
    assert torch.stack([p.norm() for p in params.values()]).prod().isinf()
    params = {n: p.requires_grad_() for n, p in params.items()}
    ones = torch.ones(1, 3)
    local = Local(params, {}, torch.ones(1, 3, 2), ones, ones.long(), ones, ones, {"rho": torch.ones(1)})
    for form in FORMS:
        value = getattr(objectives, form)(net)(local)
        assert value.isfinite().all() and all(g.isfinite().all() for g in gradient(value, local))


@pytest.mark.parametrize("form", FORMS)
def test_a_slot_is_alone_and_does_not_depend_on_what_came_before(form):
    net, local = net_and_batch()
    term = getattr(objectives, form)(net)
    both = term(local)
    one = replace(
        local,
        params={n: p[1:] for n, p in local.params.items()},
        anchor={n: p[1:] for n, p in local.anchor.items()},
        **{name: getattr(local, name)[1:] for name in ("x", "y", "group", "weight", "logits")},
        news={"rho": local.news["rho"][1:]},
    )
    torch.testing.assert_close(term(one)[0], both[1], rtol=1e-12, atol=0)
    assert torch.equal(term(local), both)
    assert torch.equal(getattr(objectives, form)(net)(local), both)


@pytest.mark.parametrize("form", FORMS)
def test_what_it_needs(form):
    make = getattr(objectives, form)
    net, local = net_and_batch()
    with pytest.raises(BadInput, match="not told rho"):
        make(net)(replace(local, news={}))
    with pytest.raises(BadInput, match=r"'0\.weight', which does not train"):
        make(net)(replace(local, params={n: p for n, p in local.params.items() if n != "0.weight"}))
    with pytest.raises(BadInput, match="no Linear or convolution"):
        make(nn.Identity())(local)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shared", [None, 1])
def test_through_both_engines_and_not_at_all_at_coefficient_0(form, shared):
    """Clients 0 and 2 have the term, client 1 does not: its bits are those of a run without it."""
    rng = np.random.default_rng(0)
    shards = [Shard(rng.standard_normal((40, 4)), rng.integers(0, 2, 40), rng.integers(0, 2, 40)) for _ in range(3)]

    def updates(beta, engine):
        torch.manual_seed(0)
        module = perceptron()
        learner = stacked(
            perceptron, shared=models.shared_names(module, shared), steps=5, batch=16, count=metrics.counts,
            optimiser="sgd", lr=0.1, dtype="float64", engine=engine,
            terms={"cross_entropy": objectives.cross_entropy, form: getattr(objectives, form)(module)},
        )  # fmt: skip
        federation = Federation(
            np.arange(3), shards, {"cross_entropy": np.ones(3), form: beta * np.array([1.0, 0.0, 1.0])}, 2
        )
        model, memory = learner.init(federation, 1)
        told = {"rho": np.array([0.5, 0.9, 1.0])}
        (done,) = learner.work([Work(federation, Broadcast(1, np.arange(3), model, told), memory, 1, frozenset())])
        return done.reports.updates

    plain, pulled = updates(0.0, "auto"), updates(0.8, "auto")
    np.testing.assert_array_equal(pulled[1], plain[1])
    assert np.abs(pulled[[0, 2]] - plain[[0, 2]]).max(1).min() > 1e-4
    np.testing.assert_allclose(updates(0.8, "loop"), pulled, atol=1e-9)


def test_norms_follow_a_client_that_trains_far_from_what_it_received():
    """Along vectors that stay, training would turn the model out of their sight and the norm would seem to vanish."""
    net, local = net_and_batch(convolutional)
    term = objectives.lipschitz_paper(net)
    for _ in range(60):
        slopes = gradient(term(local), local)
        with torch.no_grad():
            for p, slope in zip(local.params.values(), slopes, strict=True):
                p.sub_(0.02 * slope.sign())
    afresh = objectives.lipschitz_paper(net)(replace(local, anchor=local.params))
    assert (local.params["1.weight"] - local.anchor["1.weight"]).abs().max() > 0.3
    torch.testing.assert_close(term(local), afresh, rtol=0.05, atol=0)
