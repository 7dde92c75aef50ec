"""The stacked engines against the plain loop, and bits that depend on nobody else."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from worlds import FEATURES, TERMS, distance, federation, learner, net, open_work, run, shard

from equipoise import objectives
from equipoise.checks import BadInput
from equipoise.types import Federation, Shard

RECIPES = [
    {},
    {"sampling": "epoch"},
    {"batch": "full"},
    {"optimiser": "sgd", "lr": 0.05, "momentum": 0.9},
    {"optimiser": "sgd", "lr": 0.05, "keep_optimiser": False, "balance": "cell"},
    {"keep_optimiser": False, "balance": "none", "batch": 20},
]


def wide():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))


def hostile():
    return federation((50, 130, 75, 9), disparity=[2, 0, 0, 0.5], gaming=[0, 4, 0, 1], proximal=[0, 0, 0.1, 0])


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
@pytest.mark.parametrize("engine", ["chain", "swap", "vmap"])
def test_every_engine_gives_the_loops_result_over_a_whole_run(engine, recipe):
    model, memory, done = run(learner(dtype="float64", engine="loop", **recipe), hostile(), 4)
    other, others, theirs = run(learner(dtype="float64", engine=engine, **recipe), hostile(), 4)
    assert np.abs(model - run(learner(dtype="float64", engine="loop", **recipe), hostile(), 1)[0]).max() > 1e-3  # moves
    assert np.abs(model - other).max() < 1e-10
    assert distance(memory, others) < 1e-10
    assert np.abs(done.reports.updates - theirs.reports.updates).max() < 1e-10


def test_a_long_run_with_cross_entropy_disparity_and_gaming_agrees():
    fed = federation((40, 90, 60), disparity=[2, 0, 0], gaming=[0, 4, 0])
    runs = [run(learner(dtype="float64", engine=e, steps=60, batch=64), fed, 8) for e in ("loop", "chain")]
    assert np.abs(runs[0][0] - runs[1][0]).max() < 1e-10


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
@pytest.mark.parametrize("engine", ["chain", "swap", "vmap"])
def test_bits_depend_neither_on_company_nor_on_chunks(engine, recipe):
    fed, other = hostile(), federation((33, 200, 64, 50, 70), seed=7, disparity=[0, 3, 0, 0, 1])
    module = wide if engine == "vmap" else net  # vmap cannot keep this promise for odd sizes, so auto does not take it
    alone = run(learner(module, engine=engine, **recipe), fed, 1)[2]
    for chunk in (2, 3, 30):
        who = learner(module, engine=engine, chunk=chunk, **recipe)
        first, memory = who.init(fed, 1)
        theirs, kept = who.init(other, 2)
        _, done, _ = who.work(
            [
                open_work(other, theirs, kept, seed=2),
                open_work(fed, first, memory),
                open_work(other, theirs, kept, t=5, seed=9),
            ]
        )
        assert np.array_equal(done.reports.updates, alone.reports.updates)
        assert all(np.array_equal(done.memory[n], alone.memory[n]) for n in alone.memory)


@pytest.mark.parametrize("engine", ["chain", "swap", "vmap", "loop"])
def test_a_single_client_has_the_bits_it_has_among_others(engine):
    fed = federation((50, 130, 75))
    one = Federation(fed.clients[1:2], fed.shards[1:2], {"cross_entropy": np.ones(1)}, 2)
    whole, part = (run(learner(engine=engine), f, 1)[2] for f in (fed, one))
    assert np.array_equal(whole.reports.updates[1:2], part.reports.updates)
    assert part.memory["t"].tolist() == [6]


def test_a_resumed_run_mixes_with_a_fresh_one():
    """Two runs at different rounds, so at different step counts of Adam, share the program and keep their bits."""
    who, fed = learner(engine="chain"), federation()
    model, memory, _ = run(who, fed, 2)
    first, fresh = who.init(fed, 1)
    (alone,) = who.work([open_work(fed, model, memory, t=3)])
    _, mixed = who.work([open_work(fed, first, fresh, seed=8), open_work(fed, model, memory, t=3)])
    assert np.array_equal(alone.reports.updates, mixed.reports.updates)
    assert alone.memory["t"].tolist() == [18] * 3


def test_results_do_not_depend_on_globals_and_leave_them_alone():
    fed, learners = federation(), [learner(), learner(dropping, engine="loop")]
    torch.manual_seed(1)
    first = [run(who, fed, 2)[0] for who in learners]
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert all(np.array_equal(run(who, fed, 2)[0], a) for who, a in zip(learners, first, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def convolving():
    return nn.Sequential(nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(10, 1))


def dropping():
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.Dropout(0.5), nn.Linear(4, 1))


class Flattening(nn.Module):
    """A user's net whose forward only fits one batch axis."""

    def __init__(self, hidden=16):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.flatten(1)))).squeeze(1)


class Normed(nn.Module):
    """A user's net with BatchNorm."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Mixing(nn.Module):
    """Rows of a batch see each other, and would see the padding: only the loop may take it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x - x.mean(0))))


def chosen(module, monkeypatch, **options):
    """Say which way "auto" takes."""
    from equipoise.learners import stacked as room
    from equipoise.learners.forwards import choose

    seen = []

    def spy(*args):
        seen.append(choose(*args))
        return seen[-1]

    monkeypatch.setattr(sys.modules[room.__module__], "choose", spy)
    out = run(learner(module, engine="auto", dtype="float64", **options), federation(), 2)
    return seen[0], out


@pytest.mark.parametrize(
    ("module", "way"),
    [(net, "chain"), (lambda: nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)), "swap"),
     (Flattening, "vmap"), (lambda: Flattening(5), "loop"), (Mixing, "loop"),
     (Normed, "loop"), (dropping, "loop"),
     (convolving, "loop")],
    ids=["mlp", "tanh", "flatten", "odd flatten", "mixing", "batchnorm", "dropout", "convolution"],
)  # fmt: skip
def test_auto_takes_the_fastest_way_that_is_right(module, way, monkeypatch):
    taken, (model, memory, _) = chosen(module, monkeypatch)
    passes = {"chain": "chain", "swap": "swap", "vmap": "vmap", "loop": None}[way]
    assert (taken and taken.bind.__qualname__.split(".")[0]) == passes
    plain, kept, _ = run(learner(module, engine="loop", dtype="float64"), federation(), 2)
    assert np.abs(model - plain).max() < 1e-10
    assert distance(memory, kept) < 1e-10


def test_an_engine_that_is_wrong_for_a_module_is_refused():
    with pytest.raises(BadInput, match="does not give this module's own results; use engine 'auto'"):
        run(learner(Mixing, engine="vmap"), federation(), 1)
    with pytest.raises(BadInput, match="buffers or frozen parameters; use engine 'loop'"):
        run(learner(Normed, engine="vmap"), federation(), 1)


def test_batchnorm_averages_its_floats_and_keeps_its_counters():
    who = learner(Normed, shared=2)
    fed = federation()
    (first, memory), d = who.init(fed, 1), 7 * 5 + 5 + 4 * 5
    assert first.shape == (d,) and memory["private"].shape == (3, 6)
    (done,) = who.work([open_work(fed, first, memory, asks=["trained"])])
    assert done.reports.counters["norm.num_batches_tracked"].tolist() == [6, 6, 6]
    mean, var = done.reports.updates[:, -10:-5], done.reports.updates[:, -5:]
    assert np.abs(mean).min() > 0 and np.abs(var).min() > 0  # the running statistics moved, and travel
    (again,) = who.work([open_work(fed, first, done.memory, 2)])
    assert again.memory["norm.num_batches_tracked"].tolist() == [12, 12, 12]
    private = learner(Normed, shared=1)
    (done,) = private.work([open_work(fed, *private.init(fed, 1))])
    assert done.reports.counters == {}


def test_batchnorm_cannot_take_a_short_batch_of_one_row():
    who, fed = learner(Normed, sampling="epoch"), federation((17, 40))
    with pytest.raises(BadInput, match=r"refuses a batch of 1 rows .* use sampling 'replacement'"):
        who.work([open_work(fed, *who.init(fed, 1))])


class Spare(nn.Module):
    """A user's net with a part that its forward does not use."""

    def __init__(self):
        super().__init__()
        self.first, self.spare, self.last = nn.Linear(FEATURES, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


@pytest.mark.parametrize("engine", ["auto", "loop"])
def test_a_part_without_use_stays_where_it_is(engine):
    who, fed = learner(Spare, None, engine=engine), federation()
    (done,) = who.work([open_work(fed, *who.init(fed, 1))])
    spare = slice(16 * FEATURES + 16, 16 * FEATURES + 16 + 17 * 16)
    assert not done.reports.updates[:, spare].any() and done.reports.updates.any(1).all()


def test_frozen_parameters_stay():
    def frozen():
        module = net()
        module[0].weight.requires_grad_(False)
        return module

    (done,) = (who := learner(frozen, None)).work([open_work(federation(), *who.init(federation(), 1))])
    assert not done.reports.updates[:, : 6 * FEATURES].any() and done.reports.updates[:, 6 * FEATURES :].any()


def test_a_tie_of_closed_and_torch_derivatives():
    """Without its closed slope, cross-entropy takes the way through autograd to the same place."""
    bare = {n: (lambda local, term=term: term(local)) for n, term in TERMS.items()}
    fed = hostile()
    with_slopes, without = (run(learner(dtype="float64", engine="chain", terms=t), fed, 3)[0] for t in (TERMS, bare))
    assert np.abs(with_slopes - without).max() < 1e-12
    assert hasattr(objectives.cross_entropy, "slope") and not hasattr(bare["cross_entropy"], "slope")


def test_a_term_sees_parameters_as_torch_shapes_them():
    shapes = {}

    def look(local):
        shapes.update({n: tuple(t.shape) for n, t in local.params.items()}, anchors=sorted(local.anchor))
        return local.params["0.weight"].flatten(1).square().sum(1)

    for engine in ("chain", "swap", "vmap", "loop"):
        shapes.clear()
        run(learner(engine=engine, terms=TERMS | {"look": look}), federation((30, 30), look=[1, 1]), 1)
        assert shapes["0.weight"][1:] == (6, FEATURES) and shapes["anchors"] == ["0.bias", "0.weight"]


@pytest.mark.parametrize("engine", ["chain", "swap", "vmap"])
def test_a_term_may_pull_all_layers_by_what_each_client_is_told(engine):
    """As FinP's do: a factor from the news, a stopped gradient of the loss, and parameters of private layers too."""

    def told(local):
        row_norm = local.params["2.weight"].norm(dim=2).amax(1)  # the layer behind it is private
        ce = objectives.cross_entropy(local)
        return local.news["rho"] * (ce / row_norm).detach() * row_norm * local.params["0.weight"].flatten(1).norm(dim=1)

    fed = federation((50, 130, 75), told=[0.5, 0.5, 0])
    results = []
    for e in ("loop", engine):
        who = learner(dtype="float64", engine=e, terms=TERMS | {"told": told})
        model, memory = who.init(fed, 1)
        work = open_work(fed, model, memory)
        works = [
            replace(work, broadcast=replace(work.broadcast, news={"rho": np.array(rho)}))
            for rho in ([0.5, 1.0, 0.2], [0.5, 0.0, 0.2])
        ]
        results.append([np.concatenate([d.reports.updates, d.memory["private"]], 1) for d in who.work(works)])
    assert np.abs(np.array(results[0]) - np.array(results[1])).max() < 1e-10
    moved = np.abs(results[0][0] - results[0][1]).max(1)
    assert moved[1] > 1e-4 and moved[0] == moved[2] == 0


def test_a_large_full_batch_trains_alone_and_unpadded():
    fed = federation((1500, 40, 45))
    loop, chain = (run(learner(engine=e, batch="full", dtype="float64", steps=3), fed, 1)[0] for e in ("loop", "chain"))
    assert np.abs(loop - chain).max() < 1e-10
    fed32 = replace(fed, clients=np.arange(1), shards=fed.shards[:1], terms={"cross_entropy": np.ones(1)})
    whole, alone = (run(learner(engine="chain", batch="full"), f, 1)[2] for f in (fed, fed32))
    assert np.array_equal(whole.reports.updates[:1], alone.reports.updates)


def test_other_types_are_taken_and_other_widths_refused():
    fed = federation((30, 30))
    listed = Shard(
        fed.shards[0].x.astype(np.float32), fed.shards[0].y.astype(bool), fed.shards[0].group.astype(np.int8)
    )
    other = replace(fed, shards=[listed, fed.shards[1]])
    assert np.array_equal(run(learner(), fed, 1)[0], run(learner(), other, 1)[0])
    narrow = replace(fed, shards=[replace(shard(30, 1), x=np.zeros((30, 3))), fed.shards[1]])
    with pytest.raises(BadInput, match="rows have 3 and 7 features; all clients need the same"):
        run(learner(), narrow, 1)


def test_training_does_not_load_torchs_compiler():
    """torch.optim and torch.func.grad would, and take one to two seconds for it at every start."""
    code = "import sys; from worlds import *; run(learner(), federation(), 1); print('torch._dynamo' in sys.modules)"
    here = str(Path(__file__).parent)
    found = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
