"""What a client's curvature costs, beside training and beside the exact figures.

Run: python benchmarks/curvature.py [--rounds 12] [--clients 10]

1. UCI HAR, one person a client (from the folder har/ in EQUIPOISE_DATA; synthetic windows where there is none), FinP's
   network and schedule: 5 epochs of batches of 64 with SGD. Every round is trained as FedAvg does, as FinP does in its
   two forms with the preset "fast", and with the preset "exact"; the measures see the same trained models. Printed:
   time of a whole round beside FedAvg's, Hessian products and gradients' worth of a measurement, and Spearman's
   correlation of the clients' order by rho beside the exact setting at a tolerance of 1e-4.
2. Ten clients with the multilayer perceptron 100-64-32-16-1 and 256 rows each: stacked beside one after another.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from equipoise import curvature, learners, models, objectives, scores
from equipoise.learners.figures import composed, single
from equipoise.metrics import counts
from equipoise.types import Array, Broadcast, Federation, Learner, Memory, Problem, Reports, Shard, Work

ROOT = Path(__file__).resolve().parent.parent
FEATURES, CLASSES = 9 * 128, 6
FIGURES = ("eigenvalue", "trace")


def windows() -> tuple[Array, Array, Array, str]:
    """Return rows (n, 1152), labels 0..5 and persons, and where they come from."""
    path = Path(os.environ.get("EQUIPOISE_DATA", ROOT.parent / "shared" / "data")) / "har" / "make_ucihar.py"
    if path.is_file():
        spec = importlib.util.spec_from_file_location("make_ucihar", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x, y, person, _ = module.windows()
        return x.reshape(len(x), -1).astype(np.float32), y - 1, person, "UCI HAR"
    rng = np.random.default_rng(0)
    y, person = rng.integers(0, CLASSES, 6000), rng.integers(0, 30, 6000)
    beat = np.sin(np.arange(128) * (1 + y[:, None, None]) / 9 + rng.random((30, 9, 1))[person] * 6)
    x = (0.3 + rng.random((30, 9, 1)))[person] * beat + 0.5 * rng.standard_normal((6000, 9, 128))
    return x.reshape(6000, -1).astype(np.float32), y, person, "synthetic windows"


def people(clients: int, seed: int = 30) -> tuple[Federation, str]:
    """Deal as FinP does: some people, of each (person, activity) a random number of windows, 80 % to train on."""
    x, y, person, source = windows()
    rng = np.random.default_rng(seed)
    shards = []
    for who in rng.choice(np.unique(person), clients, replace=False):
        mine = [rng.permutation(np.flatnonzero((person == who) & (y == c))) for c in range(CLASSES)]
        at = rng.permutation(np.concatenate([m[: rng.integers(1, len(m) + 1)] for m in mine]))
        at = at[: int(0.8 * len(at))]
        shards.append(Shard(x[at], y[at], np.zeros(len(at), np.int64)))
    ones = np.ones(clients)
    terms = {"cross_entropy": ones, "lipschitz_code": 2 * ones, "lipschitz_paper": 0.01 * ones}
    return Federation(np.arange(clients), shards, terms, 1, classes=CLASSES), source


class Way:
    """A learner with its own clock and memory; all ways get the same broadcasts."""

    def __init__(self, federation: Federation, terms: tuple[str, ...], measure: Any = None) -> None:
        def build() -> torch.nn.Module:
            return models.tcn(FEATURES, classes=CLASSES, shape=(9, 128))

        module = build()
        made = {n: getattr(objectives, n) for n in terms}
        made = {n: t(module) if n.startswith("lipschitz") else t for n, t in made.items()}
        self.federation = Federation(
            federation.clients, federation.shards, {n: federation.terms[n] for n in terms}, 1, classes=CLASSES
        )
        self.learner: Learner = learners.stacked(
            build,
            shared=models.shared_names(module, None),
            terms=made,
            count=counts,
            epochs=5,
            sampling="epoch",
            optimiser="sgd",
            lr=0.01,
            balance="none",
            keep_optimiser=False,
            measures=[] if measure is None else [measure],
        )
        self.asks = frozenset(FIGURES if measure else ())
        self.memory: Memory
        self.model, self.memory = self.learner.init(self.federation, 42)
        self.seconds: list[float] = []

    def round(self, t: int, model: Array, rho: Array) -> Reports:
        """Train and measure all clients once."""
        sent = Broadcast(t, self.federation.clients, model, {"rho": rho})
        began = time.process_time()
        (done,) = self.learner.work([Work(self.federation, sent, self.memory, 42, self.asks)])
        self.seconds.append(time.process_time() - began)
        self.memory = done.memory
        return done.reports


def spearman(a: Array, b: Array) -> float:
    """Return the correlation of ranks."""
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])


def har(clients: int, rounds: int) -> None:
    """Print a table of ways and rounds."""
    federation, source = people(clients)
    sizes = np.array([len(s.y) for s in federation.shards], float)
    print(f"{source}: {clients} clients of {sizes.min():.0f} to {sizes.max():.0f} windows, {rounds} rounds")
    plain = ("cross_entropy",)
    ways = {
        "FedAvg": Way(federation, plain),
        "FedAvg, measured fast": Way(federation, plain, curvature.fast()),
        "FinP, code, fast": Way(federation, (*plain, "lipschitz_code"), curvature.fast()),
        "FinP, paper, fast": Way(federation, (*plain, "lipschitz_paper"), curvature.fast()),
        "FedAvg, measured exactly": Way(federation, plain, curvature.exact()),
        "FedAvg, as the authors": Way(federation, plain, curvature.exact(trace="hutchinson")),
    }
    tight = Way(federation, plain, curvature.exact(tolerance=1e-4))
    judge = scores.deviation(*FIGURES)
    model, rho = tight.model, np.full(clients, 0.5)
    agree: dict[str, list[float]] = {"fast": [], "exact": [], "as the authors": []}
    for t in range(1, rounds + 1):
        reports = {name: way.round(t, model, rho) for name, way in ways.items()}
        right = tight.round(t, model, rho)
        by = {
            "fast": "FedAvg, measured fast",
            "exact": "FedAvg, measured exactly",
            "as the authors": "FedAvg, as the authors",
        }
        for name, way in by.items():
            agree[name].append(spearman(judge(reports[way]), judge(right)))
        rho = judge(right)
        model = (model + sizes @ right.updates / sizes.sum()).astype(model.dtype)
    base = statistics.median(ways["FedAvg"].seconds[1:])
    for name, way in ways.items():
        median = statistics.median(way.seconds[1:])
        print(f"  {name:26s} {1000 * median:8.0f} ms a round   {median / base:6.2f} x FedAvg")
    for name, found in agree.items():
        print(f"  order by rho, {name:15s} Spearman: mean {np.mean(found):.3f}, least {min(found):.3f}")


def best(work: Callable[[], Any], repeats: int = 7) -> float:
    """Return the least time of some, in milliseconds."""
    work()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(1000 * (time.process_time() - began))
    return min(found)


def perceptrons(clients: int = 10, rows: int = 256) -> None:
    """Print stacked beside one after another."""
    module = models.mlp(100)
    torch.manual_seed(0)
    each = [{n: p.detach() + 0.02 * torch.randn_like(p) for n, p in module.named_parameters()} for _ in range(clients)]
    params = {n: torch.stack([p[n] for p in each]) for n in each[0]}
    x, y = torch.randn(clients, rows, 100), torch.randint(0, 2, (clients, rows))
    problem = Problem(composed(module), params, x, y, torch.ones(clients, rows), [(42, 1, k) for k in range(clients)])
    alone = [
        Problem(
            single(module, {}),
            {n: p[k : k + 1] for n, p in params.items()},
            x[k : k + 1],
            y[k : k + 1],
            problem.weight[k : k + 1],
            problem.keys[k : k + 1],
        )
        for k in range(clients)
    ]
    size = sum(p[0].numel() for p in params.values())
    print(f"{clients} clients, MLP 100-64-32-16-1, {rows} rows each")
    ways = {
        "20 Hessian products of one graph": lambda p: products(p, 20),
        "exact, 20 products, Hutchinson": curvature.exact(budget=20, tolerance=0, trace="hutchinson").measure,
        "exact": curvature.exact().measure,
        "fast": curvature.fast().measure,
    }
    for name, way in ways.items():

        def run(p: Problem, way: Any = way, name: str = name) -> Any:
            return way(p) if "graph" in name else way(p, {"eigenvector": torch.zeros(len(p.x), size)})

        def loop(run: Any = run) -> None:
            for p in alone:
                run(p)

        together, apart = best(lambda run=run: run(problem)), best(loop)
        print(f"  {name:34s} stacked {together:7.1f} ms, one by one {apart:7.1f} ms: {apart / together:.1f} times")


def products(problem: Problem, count: int) -> None:
    """Multiply by the Hessians."""
    product, _ = curvature.hessian_product(problem)
    v = curvature.random_start(problem.keys, sum(p[0].numel() for p in problem.params.values()))
    for _ in range(count):
        product(v)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--clients", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    perceptrons()
    har(args.clients, args.rounds)


if __name__ == "__main__":
    main()
