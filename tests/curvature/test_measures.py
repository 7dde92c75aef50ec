"""What clients report of their curvature, against the dense Hessian and against PyHessian."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from equipoise.checks import BadInput
from equipoise.curvature import exact, fast
from equipoise.curvature.measures import NAMES
from equipoise.curvature.records import bends
from equipoise.types import Problem

from .problems import alone, clients, hessian_by_hand, net, together

NETS = [("relu", 2), ("relu", 3), ("conv", 3), ("conv", 2), ("gelu", 3), ("norm", 3), ("linear", 2)]
STRAIGHT = {"relu", "conv", "linear"}


def nothing(problem):
    size = sum(p[0].numel() for p in problem.params.values())
    return {"eigenvector": torch.zeros(len(problem.weight), size, dtype=problem.weight.dtype)}


def right(problem, by="algebraic"):
    values = [torch.linalg.eigvalsh(hessian_by_hand(problem, s)).numpy() for s in range(len(problem.weight))]
    tops = [v[np.abs(v).argmax()] if by == "magnitude" else v[-1] for v in values]
    return np.array(tops), np.array([v.sum() for v in values])


@pytest.mark.parametrize("by", ["algebraic", "magnitude"])
@pytest.mark.parametrize(("kind", "classes"), NETS)
def test_exact_is_the_dense_hessian_of_every_ragged_client(kind, classes, by):
    problem = clients(kind, classes)
    top, trace = right(problem, by)
    for settings in ({}, {"exact_below": 0, "tolerance": 1e-6}, {"exact_below": 0, "warm": True, "tolerance": 1e-6}):
        figures, _ = exact(by=by, **settings).measure(problem, nothing(problem) if "warm" in settings else {})
        assert set(figures) == set(NAMES)
        assert figures["eigenvalue"].numpy() == pytest.approx(top, rel=1e-6)
        noise = figures["trace_error"].numpy()
        if "exact_below" not in settings or kind in STRAIGHT:
            assert figures["trace"].numpy() == pytest.approx(trace, rel=1e-9)
            assert (noise == 0).all()
        else:
            assert (noise > 0).all()
            assert (np.abs(figures["trace"].numpy() - trace) < 3.5 * noise).all()


@pytest.mark.parametrize(("kind", "classes"), NETS)
def test_records_give_the_trace_exactly_where_no_tensor_bends_and_are_refused_elsewhere(kind, classes):
    problem = clients(kind, classes)
    assert bends(problem) == (kind not in STRAIGHT)
    measure = exact(trace="records", exact_below=0).measure
    if kind in STRAIGHT:
        assert measure(problem, {})[0]["trace"].numpy() == pytest.approx(right(problem)[1], rel=1e-9)
    else:
        with pytest.raises(BadInput, match="bends"):
            measure(problem, {})


def test_other_bends_are_seen():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.layer(self.layer(x).relu()).relu())

    torch.manual_seed(0)
    rows, labels = torch.randn(4, 8, dtype=torch.float64), torch.arange(4) % 3
    assert bends(together([Tied().double()], [rows], [labels]))
    assert bends(clients("sigmoid"))


@pytest.mark.parametrize(("kind", "classes"), NETS)
def test_fast_tends_to_the_hessian_with_more_products(kind, classes):
    problem = clients(kind, classes)
    top, trace = right(problem)
    figures, kept = fast(budget=40, tolerance=0, probes=400).measure(problem, nothing(problem))
    assert figures["eigenvalue"].numpy() == pytest.approx(top, rel=1e-3)
    off = np.abs(figures["trace"].numpy() - trace)
    assert (off <= 3.5 * figures["trace_error"].numpy() + 1e-9).all()
    assert kept["eigenvector"].norm(dim=1).numpy() == pytest.approx([1, 1])


def test_one_logit_has_its_trace_without_noise():
    problem = clients("conv", 2)
    figures, _ = fast().measure(problem, nothing(problem))
    assert figures["trace"].numpy() == pytest.approx(right(problem)[1], rel=1e-9)


def test_the_fast_trace_has_no_bias_also_where_rows_share_a_sketch():
    problem = clients("relu", 3)
    trace = right(problem)[1]
    for rows in (256, 3):
        found = []
        for seed in range(100):
            own = problem._replace(keys=[(seed, 1, 0), (seed, 1, 1)])
            figures, _ = fast(budget=1, sketch=rows).measure(own, nothing(problem))
            found.append(figures["trace"].numpy())
        off = (np.mean(found, 0) - trace) / (np.std(found, 0, ddof=1) / 10)
        assert (np.abs(off) < 3.5).all()


def test_a_kept_eigenvector_makes_one_product_enough():
    problem = clients("relu", 3)
    top = right(problem)[0]
    _, kept = exact(exact_below=0, warm=True, tolerance=1e-6).measure(problem, nothing(problem))
    for measure in (exact(exact_below=0, warm=True, budget=1), fast(budget=1)):
        assert measure.keeps == ("eigenvector",)
        assert measure.measure(problem, kept)[0]["eigenvalue"].numpy() == pytest.approx(top, rel=1e-4)
    assert exact(exact_below=0, budget=1).measure(problem, {})[0]["eigenvalue"].numpy() != pytest.approx(top, rel=0.1)


MAKERS = [exact(), exact(exact_below=0, trace="hutchinson", budget=15), exact(exact_below=0, warm=True), fast()]


@pytest.mark.parametrize("measure", MAKERS)
@pytest.mark.parametrize("kind", ["conv", "gelu"])
def test_stacked_is_the_loop(measure, kind):
    problem = clients(kind, 3)
    start = nothing(problem) if measure.keeps else {}
    together, kept = measure.measure(problem, start)
    again, _ = measure.measure(problem, start)
    for s in range(2):
        one = alone(problem, s)._replace(
            x=problem.x[s : s + 1], y=problem.y[s : s + 1], weight=problem.weight[s : s + 1]
        )
        own, kept_alone = measure.measure(one, {n: v[s : s + 1] for n, v in start.items()})
        for name in NAMES:
            assert together[name][s].item() == pytest.approx(own[name].item(), rel=1e-9, abs=1e-12)
            assert together[name][s].item() == again[name][s].item()
        for name in measure.keeps:
            assert torch.allclose(kept[name][s], kept_alone[name][0], atol=1e-9)


@pytest.mark.parametrize("measure", MAKERS)
def test_figures_of_a_broken_model_or_without_rows_are_nan_and_harm_nobody(measure):
    problem = clients("conv", 3, sizes=(12, 7, 5))
    params = {n: p.clone() for n, p in problem.params.items()}
    params["1.weight"][0] = torch.nan
    weight = problem.weight.clone()
    weight[2] = 0
    start = nothing(problem) if measure.keeps else {}
    figures, kept = measure.measure(problem._replace(params=params, weight=weight), start)
    whole, _ = measure.measure(problem, start)
    for name in NAMES[:2]:
        assert figures[name].isnan().tolist() == [True, False, True]
        assert figures[name][1].item() == pytest.approx(whole[name][1].item(), rel=1e-9)
    assert all(not v[[0, 2]].any() for v in kept.values())  # forgotten


@pytest.mark.parametrize("measure", MAKERS)
def test_a_flat_loss_has_curvature_0(measure):
    problem = clients("relu", 2)
    flat = problem._replace(logits=lambda params, x: x.sum(2) + 0 * params["0.bias"].sum(1, keepdim=True))
    figures, _ = measure.measure(flat, nothing(problem) if measure.keeps else {})
    assert [figures[name].tolist() for name in NAMES[:2]] == [[0, 0], [0, 0]]


def test_frozen_parameters_are_skipped():
    torch.manual_seed(1)
    module = net("relu").double()
    rows, labels = torch.randn(9, 8, dtype=torch.float64), torch.arange(9) % 3
    whole = hessian_by_hand(together([module], [rows], [labels]), 0)
    module[0].weight.requires_grad_(False)
    problem = together([module], [rows], [labels])
    frozen = module[0].weight.detach()
    logits = problem.logits
    problem = problem._replace(logits=lambda p, x: logits({**p, "0.weight": frozen.expand(len(x), 5, 8)}, x))
    block = whole[40:, 40:]
    for measure in MAKERS:
        figures, _ = measure.measure(problem, nothing(problem) if measure.keeps else {})
        assert figures["eigenvalue"].item() == pytest.approx(torch.linalg.eigvalsh(block)[-1].item(), rel=2e-2)
    assert exact().measure(problem, {})[0]["trace"].item() == pytest.approx(block.trace().item())


def test_rows_are_drawn_by_round_and_client_from_real_ones():
    problem = clients("conv", 3, sizes=(12, 4))
    some = exact(rows=5)
    drawn = some.measure(problem, {})[0]["trace"]
    later = some.measure(problem._replace(keys=[(42, 4, 0), (42, 4, 1)]), {})[0]["trace"]
    whole = exact().measure(problem, {})[0]["trace"]
    assert drawn[0] != later[0] != whole[0]
    assert drawn[1].item() == pytest.approx(whole[1].item())  # it has 4 rows only
    assert torch.equal(drawn, some.measure(problem, {})[0]["trace"])


@pytest.mark.parametrize("kind", ["relu", "gelu"])
def test_pyhessian_agrees(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyhessian import hessian
    torch.manual_seed(5)
    module, rows, labels = net(kind).double(), torch.randn(30, 8, dtype=torch.float64), torch.randint(0, 3, (30,))
    problem = together([module], [rows], [labels])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls backward with create_graph
        theirs = hessian(module, nn.CrossEntropyLoss(), data=(rows, labels), cuda=False)
        top = theirs.eigenvalues(maxIter=500, tol=1e-9)[0][0]
        probes = np.array(theirs.trace(maxIter=400, tol=0))
    for measure in (exact(by="magnitude"), exact(by="magnitude", exact_below=0, tolerance=1e-6)):
        figures, _ = measure.measure(problem, {})
        assert figures["eigenvalue"].item() == pytest.approx(top, rel=1e-5)
        off = figures["trace"].item() - probes.mean()
        assert abs(off) < 3.5 * np.hypot(probes.std() / 20, figures["trace_error"].item())


def test_a_saddle_by_magnitude_keeps_its_sign():
    def logits(params, x):  # at w = 0 the slope is 0 and the second derivative -6 x; v adds a little on the other side
        return 5 - 3 * (params["w"] ** 2).sum(1, keepdim=True) * x[..., 0] + params["v"]

    one = torch.ones(1, 4, dtype=torch.float64)
    params = {"w": torch.zeros(1, 2, dtype=torch.float64), "v": torch.zeros(1, 1, dtype=torch.float64)}
    problem = Problem(logits, params, one.unsqueeze(2), 0 * one, one, [(42, 1, 0)])
    p = 1 / (1 + np.exp(-5))
    for below in (0, 999):
        for by, top in (("magnitude", -6 * p), ("algebraic", p * (1 - p))):
            figures, _ = exact(by=by, exact_below=below, tolerance=1e-9).measure(problem, {})
            assert figures["eigenvalue"].item() == pytest.approx(top)
            assert figures["trace"].item() == pytest.approx(p * (1 - p) - 12 * p)


@pytest.mark.parametrize("settings", [{"budget": 0}, {"probes": 1}, {"sketch": 0}])
def test_fast_refuses_settings_that_measure_nothing(settings):
    with pytest.raises(BadInput):
        fast(**settings)


def test_exact_refuses_an_unknown_trace():
    with pytest.raises(BadInput, match="trace"):
        exact(trace="guess")


@pytest.mark.parametrize("measure", [exact(), exact(trace="hutchinson"), fast()])
def test_a_clients_bits_do_not_depend_on_its_company(measure):
    """A client alone on its machine reports the bits that it reports among others in the simulator."""
    shapes = {"w": (33, 21), "v": (21,)}  # rows of no whole cache lines
    torch.manual_seed(1)
    params = {n: torch.randn(3, *shape) for n, shape in shapes.items()}
    x, y, weight = torch.randn(3, 64, 33), torch.randint(0, 2, (3, 64)).float(), torch.ones(3, 64)

    def logits(params, x):
        return (torch.bmm(x, params["w"]).relu() * params["v"].unsqueeze(1)).sum(2)

    def figures(at):
        own = {n: p[at] for n, p in params.items()}
        problem = Problem(logits, own, x[at], y[at], weight[at], [(42, 1, k) for k in at])
        return measure.measure(problem, {n: torch.zeros(len(at), 714) for n in measure.keeps})

    together, kept = figures([0, 1, 2])
    for k in range(3):
        alone, kept_alone = figures([k, k])  # a slot alone is given twice, as a product of one differs in bits
        for name in together:
            assert torch.equal(together[name][k], alone[name][0]), (name, k)
        for name in kept:
            assert torch.equal(kept[name][k], kept_alone[name][0])
