"""Figures that clients measure on their trained models: equal on every engine, remembered, and nobody else's matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, distance, federation, learner, open_work, run, shard

from equipoise import curvature, models
from equipoise.checks import BadInput
from equipoise.learners import layouts
from equipoise.types import Federation, Measure, Shard


def wide():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))


def tanh():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))


def odd():
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU(), nn.Linear(5, 1))


class Normed(nn.Module):
    """With buffers, so that only the loop can train it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def mean_loss(problem, params):
    each = nn.functional.binary_cross_entropy_with_logits(
        problem.logits(params, problem.x), problem.y, reduction="none"
    )
    return (problem.weight * each).sum(1) / problem.weight.sum(1)


def bending(problem, kept):
    """Measure the loss, the norm of its gradient, and the Hessian along a vector that is kept and turned each time."""
    leaves = {n: p.detach().requires_grad_() for n, p in problem.params.items()}
    loss = mean_loss(problem, leaves)
    grads = torch.autograd.grad(loss.sum(), list(leaves.values()), create_graph=True)
    flat = torch.cat([g.flatten(1) for g in grads], 1)
    v = torch.where(kept["v_last"].any(1, keepdim=True), kept["v_last"], 1.0)
    product = torch.autograd.grad(flat, list(leaves.values()), v)
    turned = torch.cat([p.flatten(1) for p in product], 1)
    length = turned.norm(dim=1, keepdim=True)
    return {"loss": loss, "slope": flat.norm(dim=1), "bend": length.squeeze(1)}, {"v_last": turned / length}


BENDING = Measure(("loss", "slope", "bend"), bending, ("v_last",))
ASKS = ["loss", "slope", "bend", "trained"]


@pytest.mark.parametrize("module", [wide, tanh, odd, Normed])
def test_stacked_figures_are_the_loops(module):
    fed = federation((50, 130, 75, 300, 31))
    options = {"measures": [BENDING], "dtype": "float64"}
    runs = [run(learner(module, engine=e, **options), fed, 3, asks=ASKS) for e in ("loop", "auto")]
    assert distance(runs[0][2].reports.figures, runs[1][2].reports.figures) < 1e-8
    assert distance(runs[0][1], runs[1][1]) < 1e-8
    assert all((f > 0).all() for f in runs[0][2].reports.figures.values())


@pytest.mark.parametrize("module", [wide, Normed])
def test_a_figure_is_of_the_trained_model_on_all_rows_in_eval_mode(module):
    """Against the module itself, loaded with what ``models`` shows."""
    fed = federation((40, 90))
    who = learner(module, 1, measures=[BENDING], dtype="float64")
    (done,) = who.work([open_work(fed, *who.init(fed, 1), asks=["loss"])])
    both = layouts(module, models.shared_names(module(), 1))
    d = both[0].size
    assert done.models.shape == (2, d + both[1].size)
    assert np.array_equal(done.models[:, d:], done.memory["private"])
    for k, rows in enumerate(fed.shards):
        whole = module().double().eval()
        named = both[0].split(done.models[k, :d]) | both[1].split(done.models[k, d:])
        whole.load_state_dict({n: torch.from_numpy(np.array(a)) for n, a in named.items()}, strict=False)
        with torch.no_grad():
            z = whole(torch.from_numpy(rows.x)).squeeze(1)
        right = nn.functional.binary_cross_entropy_with_logits(z, torch.from_numpy(rows.y).double())
        assert abs(done.reports.figures["loss"][k] - right.item()) < 1e-12


@pytest.mark.parametrize("module", [wide, odd])
def test_bits_depend_neither_on_company_nor_on_chunks(module):
    fed, other = federation((50, 130, 75, 300)), federation((33, 200, 64, 50, 70, 128), seed=7)
    alone = run(learner(module, measures=[BENDING]), fed, 1, asks=ASKS)[2]
    for chunk in (2, 3, 30):
        who = learner(module, measures=[BENDING], chunk=chunk)
        works = [open_work(other, *who.init(other, 2), seed=2, asks=ASKS), open_work(fed, *who.init(fed, 1), asks=ASKS)]
        _, done = who.work(works)
        assert distance(done.reports.figures, alone.reports.figures) == 0
        assert distance(done.memory, alone.memory) == 0
    one = Federation(fed.clients[1:2], fed.shards[1:2], {"cross_entropy": np.ones(1)}, 2)
    single = run(learner(module, measures=[BENDING]), one, 1, asks=ASKS)[2]
    assert all(f[0] == alone.reports.figures[n][1] for n, f in single.reports.figures.items())


@pytest.mark.parametrize("make", [lambda: curvature.exact(trace="hutchinson", budget=20), curvature.fast])
def test_curvature_has_the_loops_value_and_bits_of_its_own(make):
    def found(fed, before=(), dtype="float32", **options):
        measure = make()
        who = learner(wide, None, measures=[measure], dtype=dtype, **options)
        works = [open_work(f, *who.init(f, 1), seed=s, asks=measure.names) for s, f in enumerate([*before, fed], 2)]
        return who.work([replace(w, seed=1) if w is works[-1] else w for w in works])[-1].reports.figures

    fed, other = federation((50, 130, 75, 90)), federation((33, 200, 64, 50, 70), seed=7)
    double = [found(fed, dtype="float64", engine=e) for e in ("loop", "chain")]
    assert all(np.allclose(double[0][n], double[1][n], rtol=1e-6) for n in double[0])
    alone = found(fed)
    for chunk in (2, 3, 30):
        assert distance(found(fed, [other], chunk=chunk), alone) == 0


def test_what_is_kept_is_used_next_time_and_only_by_those_who_measured():
    fed, who = federation(), learner(wide, None, measures=[BENDING])
    model, memory = who.init(fed, 1)
    size = 7 * 16 + 16 + 16 + 1
    assert memory["v_last"].shape == (3, size) and not memory["v_last"].any()
    (done,) = who.work([open_work(fed, model, memory, asks=["bend"])])
    assert done.reports.figures.keys() == {"bend"}  # the others were not asked for
    assert (
        np.abs(np.linalg.norm(done.memory["v_last"], axis=1) - 1).max() < 1e-5 and done.memory["v_last"].dtype == "f4"
    )
    (again,) = who.work([open_work(fed, model, done.memory, 2, asks=["bend"])])
    (fresh,) = who.work([open_work(fed, model, done.memory | {"v_last": memory["v_last"]}, 2, asks=["bend"])])
    assert np.array_equal(again.reports.updates, fresh.reports.updates)
    assert (again.reports.figures["bend"] != fresh.reports.figures["bend"]).all()
    (unasked,) = who.work([open_work(fed, model, done.memory, 2)])
    assert np.array_equal(unasked.memory["v_last"], done.memory["v_last"]) and unasked.reports.figures == {}


def test_a_resumed_run_goes_on_as_if_unbroken_beside_another():
    fed, other, who = federation(), federation((60, 61), seed=3), learner(wide, measures=[BENDING])
    model, memory, _ = run(who, fed, 2, asks=ASKS)
    (unbroken,) = who.work([open_work(fed, model, memory, 3, asks=ASKS)])
    later = learner(wide, measures=[BENDING])
    saved = {n: np.array(a) for n, a in memory.items()}
    works = [open_work(other, *later.init(other, 5), seed=5, asks=ASKS), open_work(fed, model, saved, 3, asks=ASKS)]
    _, resumed = later.work(works)
    assert distance(unbroken.reports.figures, resumed.reports.figures) == 0
    assert distance(unbroken.memory, resumed.memory) == 0


@pytest.mark.parametrize("engine", ["chain", "loop"])
def test_who_does_not_train_has_no_figures(engine):
    empty = Shard(np.zeros((0, FEATURES)), np.zeros(0, np.int64), np.zeros(0, np.int64))
    ones = np.array([1.0, 1, 0, 1])
    fed = Federation(np.arange(4), [shard(40, 1), empty, shard(30, 2), shard(1, 3)], {"cross_entropy": ones}, 2)
    who = learner(wide, engine=engine, measures=[BENDING])
    model, memory = who.init(fed, 1)
    (done,) = who.work([open_work(fed, model, memory, asks=["loss", "bend"])])
    assert np.isfinite(done.reports.figures["loss"]).tolist() == [True, False, False, True]
    assert done.memory["v_last"].any(1).tolist() == [True, False, False, True]
    closing = replace(open_work(fed, model, done.memory, asks=["received"]), train=False)
    (last,) = who.work([closing])
    assert last.reports.figures == {} and np.array_equal(last.memory["v_last"], done.memory["v_last"])
    assert np.array_equal(last.models[:, : len(model)], np.tile(model, (4, 1)))


@pytest.mark.parametrize("engine", ["chain", "loop"])
def test_a_model_that_is_no_number_has_no_figures_and_keeps_nothing(engine):
    fed, who = federation((40, 50)), learner(wide, 1, engine=engine, measures=[BENDING])
    model, memory = who.init(fed, 1)
    private = memory["private"].copy()
    private[1] = np.nan
    (done,) = who.work([open_work(fed, model, memory | {"private": private}, asks=["loss", "bend"])])
    assert np.isfinite(done.reports.figures["loss"]).tolist() == [True, False]
    assert done.memory["v_last"].any(1).tolist() == [True, False] and np.isfinite(done.memory["v_last"]).all()


def test_an_infinite_figure_and_a_lost_vector_are_undefined():
    def lost(problem, kept):
        return {"odd": torch.tensor([torch.inf, 1.0])[: len(problem.keys)]}, {"w": kept["w"] + torch.nan}

    fed = federation((40, 40))
    who = learner(wide, measures=[Measure(("odd",), lost, ("w",))])
    (done,) = who.work([open_work(fed, *who.init(fed, 1), asks=["odd"])])
    assert np.isnan(done.reports.figures["odd"][0]) and done.reports.figures["odd"][1] == 1
    assert not done.memory["w"].any()


def test_a_measure_sees_the_keys_and_real_rows_of_each_client():
    seen = {}

    def look(problem, kept):
        for key, weight, y in zip(problem.keys, problem.weight, problem.y, strict=True):
            seen[key] = (weight.sum().item(), (weight * y).sum().item())
        shapes.update({n: tuple(p.shape[1:]) for n, p in problem.params.items()})
        assert not any(p.requires_grad for p in problem.params.values())
        return {"rows": problem.weight.sum(1)}, {}

    fed = federation((50, 130, 75))
    for engine in ("chain", "vmap", "loop"):
        seen.clear()
        shapes = {}
        who = learner(wide, engine=engine, measures=[Measure(("rows",), look)])
        (done,) = who.work([open_work(fed, *who.init(fed, 4), t=3, seed=4, asks=["rows"])])
        assert done.reports.figures["rows"].tolist() == [50, 130, 75]
        assert seen == {(4, 3, k): (len(s.y), s.y.sum()) for k, s in enumerate(fed.shards)}
        assert shapes == {"0.weight": (16, FEATURES), "0.bias": (16,), "2.weight": (1, 16), "2.bias": (1,)}


def test_frozen_parameters_are_not_measured():
    def frozen():
        module = wide()
        module[0].weight.requires_grad_(False)
        return module

    fed, who = federation((40, 40)), learner(frozen, None, measures=[BENDING])
    model, memory = who.init(fed, 1)
    assert memory["v_last"].shape == (2, 16 + 16 + 1)
    (done,) = who.work([open_work(fed, model, memory, asks=["bend"])])
    assert np.isfinite(done.reports.figures["bend"]).all()


class Branching(nn.Module):
    """A forward that torch cannot lift in eval mode, and that trains stacked all the same."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 16), nn.Linear(16, 1)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h if self.training or h.sum().item() > -1e9 else h + 1)


def test_a_forward_that_cannot_be_lifted_is_measured_one_by_one():
    fed = federation((50, 60))
    one, other = (
        run(learner(Branching, engine=e, measures=[BENDING], dtype="float64"), fed, 2, asks=ASKS)[2]
        for e in ("swap", "loop")
    )
    assert distance(one.reports.figures, other.reports.figures) < 1e-8


def test_an_unknown_figure_and_a_name_that_is_taken_are_named():
    fed, who = federation(), learner(wide, measures=[BENDING])
    with pytest.raises(BadInput, match=r"cannot measure 'lost'; .* and the figures are loss, slope, bend"):
        who.work([open_work(fed, *who.init(fed, 1), asks=["lost"])])
    for taken in (Measure(("trained",), bending), Measure(("f",), bending, ("m",)), Measure(("bend",), bending)):
        with pytest.raises(BadInput, match="and that name is taken; give it another"):
            learner(wide, measures=[BENDING, taken])
