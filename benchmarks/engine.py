"""Time a round of training: our engines, a plain torch loop, hand-written NumPy; and how it grows with the clients.

    python benchmarks/engine.py [--repeats 5] [--rounds 16] [--json]

One process, one thread, the contenders take turns; the figure is the median over repeats of a repeat's mean round.
The work is that of ``task.py``: local training, clip and weighted mean, and every client's counts on all of its rows.
Growth is measured in child processes, so that each K has its own peak memory.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before the first import of numpy

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import baselines
import numpy as np
import task

GROWTH = (10, 100, 1000)


class Ours:
    """Equipoise's learner on the task, with one of its engines."""

    def __init__(self, shards: list[task.Shard], engine: str = "auto") -> None:
        import torch

        from equipoise import models, objectives, types
        from equipoise.learners import stacked

        torch.set_num_threads(1)
        self.types = types
        build = lambda: models.mlp(task.FEATURES)  # noqa: E731
        self.learner = stacked(
            build,
            shared=models.shared_names(build(), None),
            terms={"cross_entropy": objectives.cross_entropy},
            count=lambda y, yhat, group, groups: task.count(y, yhat, group),
            steps=task.STEPS,
            batch=task.BATCH,
            lr=task.LR,
            engine=engine,  # type: ignore[arg-type]
        )
        ids, ones = np.arange(len(shards)), np.ones(len(shards))
        mine = [types.Shard(s.x, s.y, s.group) for s in shards]
        self.federation = types.Federation(ids, mine, {"cross_entropy": ones}, task.GROUPS)
        self.model, self.memory = self.learner.init(self.federation, 42)

    def train(self, t: int, asks: tuple[str, ...] = ()) -> Any:
        """Train, and count what is asked for."""
        broadcast = self.types.Broadcast(t, self.federation.clients, self.model, {})
        work = self.types.Work(self.federation, broadcast, self.memory, 42, frozenset(asks))
        return self.learner.work([work])[0]

    def round(self, t: int) -> None:
        """Train, count, aggregate."""
        done = self.train(t, ("trained",))
        self.gaps = [task.gap(c) for c in done.reports.counts["trained"]]
        self.counts = done.reports.counts["trained"]
        self.memory = done.memory
        self.model = self.model + mean(done.reports.updates, done.reports.sizes)


class Baseline:
    """A hand-written contender on the task."""

    def __init__(self, shards: list[task.Shard], kind: Any) -> None:
        self.shards, self.inner = shards, kind(shards)
        self.sizes = np.array([len(s.y) for s in shards], float)

    def train(self, t: int) -> Any:
        """Train."""
        return self.inner.train(task.plan(self.shards, t))

    def round(self, t: int) -> None:
        """Train, count, aggregate."""
        updates = self.train(t)
        self.counts = np.stack(self.inner.counts())
        self.gaps = [task.gap(c) for c in self.counts]
        self.inner.move(mean(updates, self.sizes))


class TrainingOnly:
    """The same contender without counting, to compare training with training."""

    def __init__(self, whole: Ours | Baseline) -> None:
        self.whole = whole

    def round(self, t: int) -> None:
        """Train."""
        self.whole.train(t)


def mean(updates: Any, sizes: Any) -> Any:
    """Clip the updates' norms and average by size."""
    norms = np.linalg.norm(updates, axis=1)
    weights = sizes / sizes.sum() * np.minimum(1, task.CLIP / np.maximum(norms, 1e-12))
    return (weights @ updates).astype(np.float32)


def interleaved(contenders: dict[str, Any], repeats: int, rounds: int) -> dict[str, float]:
    """Return the median over repeats of milliseconds a round; every contender warms up for one round."""
    for contender in contenders.values():
        contender.round(1)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    t = 1
    for _ in range(repeats):
        for name, contender in contenders.items():
            start = time.perf_counter()
            for r in range(rounds):
                contender.round(t + 1 + r)
            times[name].append(1000 * (time.perf_counter() - start) / rounds)
        t += rounds
    return {name: statistics.median(values) for name, values in times.items()}


def peak_mb() -> float:
    """Return the peak resident memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent had before this program was started
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def grow(clients: int) -> dict[str, float]:
    """Measure K clients in this process: milliseconds a round and memory above an idle process."""
    import torch  # noqa: F401

    shards = task.make(clients)
    idle = peak_mb()
    ours = Ours(shards)
    ms = interleaved({"": ours}, 3, 1)[""]
    return {"clients": clients, "ms": ms, "idle_mb": idle, "peak_mb": peak_mb()}


def child(clients: int) -> dict[str, float]:
    """Run ``grow`` in a process of its own."""
    call = [sys.executable, str(Path(__file__)), "--grow", str(clients)]
    found: dict[str, float] = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    return found


def measure(repeats: int, rounds: int) -> dict[str, Any]:
    """Measure everything."""
    shards = task.make()
    whole: dict[str, Any] = {
        "stacked": Ours(shards),
        "NumPy by hand": Baseline(shards, baselines.Numpy),
        "our loop": Ours(shards, "loop"),
        "plain torch loop": Baseline(shards, baselines.Torch),
    }
    contenders = dict(whole)
    for name in ("stacked", "NumPy by hand"):
        contenders[f"{name}, training only"] = TrainingOnly(whole[name])
    ms = interleaved(contenders, repeats, rounds)
    accuracy = {n: float(c.counts[:, :, [0, 2]].sum() / c.counts.sum()) for n, c in whole.items()}
    ratios = {
        "plain torch loop / stacked": ms["plain torch loop"] / ms["stacked"],
        "our loop / stacked": ms["our loop"] / ms["stacked"],
        "stacked / NumPy by hand": ms["stacked"] / ms["NumPy by hand"],
        "stacked / NumPy by hand, training only": ms["stacked, training only"] / ms["NumPy by hand, training only"],
    }
    return {
        "clients": task.CLIENTS,
        "parameters": task.PARAMETERS,
        "steps": task.STEPS,
        "batch": task.BATCH,
        "rounds": rounds,
        "repeats": repeats,
        "ms_per_round": ms,
        "accuracy_on_own_rows": accuracy,
        "ratios": ratios,
        "growth": [child(k) for k in GROWTH],
    }


def table(found: dict[str, Any]) -> str:
    """Lay the figures out for reading."""
    lines = [
        f"{found['clients']} clients, {found['parameters']:,} parameters, {found['steps']} Adam steps of "
        f"{found['batch']} rows, {found['rounds']} rounds, one thread, median of {found['repeats']} repeats",
        "",
        f"{'':40}{'ms a round':>12}{'accuracy':>10}",
    ]
    for name, ms in found["ms_per_round"].items():
        accuracy = found["accuracy_on_own_rows"].get(name)
        lines.append(f"{name:40}{ms:12.1f}{'' if accuracy is None else f'{accuracy:10.3f}'}")
    lines += [""] + [f"{name:40}{ratio:12.2f} x" for name, ratio in found["ratios"].items()]
    first = found["growth"][0]
    lines += ["", f"{'clients':>8}{'ms a round':>12}{'per client':>12}{'peak MB':>10}{'above idle':>12}"]
    for g in found["growth"]:
        per = g["ms"] / g["clients"] / (first["ms"] / first["clients"])
        above = g["peak_mb"] - g["idle_mb"]
        lines.append(f"{g['clients']:8.0f}{g['ms']:12.1f}{per:11.2f} x{g['peak_mb']:10.0f}{above:12.0f}")
    return "\n".join(lines)


def main() -> None:
    """Read the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=task.ROUNDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--grow", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.grow:
        print(json.dumps(grow(args.grow)))
        return
    found = measure(args.repeats, args.rounds)
    print(json.dumps(found, indent=1) if args.json else table(found))


if __name__ == "__main__":
    main()
