"""What FinP's two aggregations cost on the server: ALA, equal distances in closed form, and the published PCA in SLSQP.

Run: python benchmarks/aggregation.py [--clients 10] [--parameters 33000 900000] [--repeats 5]

33,000 parameters are FinP's convolutional net for HAR, 900,000 its net for CIFAR-10. Medians; the published form is
run once where it takes more than ten seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from equipoise import weights
from equipoise.aggregate import equidistant, weighted
from equipoise.scores import deviation
from equipoise.types import Aggregator, Reports


def seconds(server: Aggregator, reports: Reports, repeats: int) -> float:
    """Time of one step, the median of some after a first one, or of the first if that is long."""
    found: list[float] = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        server.step(reports, server.init())
        found.append(time.perf_counter() - began)
        if found[0] > 10:
            return found[0]
    return statistics.median(found[1:])


def main() -> None:
    """Print a line for each size of the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--parameters", type=int, nargs="+", default=[33_000, 900_000])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"one step for {args.clients} clients   ALA   equal distances   by PCA in SLSQP (in ALA's time)")
    for d in args.parameters:
        rng = np.random.default_rng(0)
        updates = (rng.normal(size=(args.clients, d)) * rng.uniform(0.5, 1.5, (args.clients, 1)) / d**0.5).astype("f4")
        figures = {"trace": rng.random(args.clients)}
        reports = Reports(np.arange(args.clients), updates, np.ones(args.clients), figures)
        ala = seconds(weighted(weights.ala, deviation("trace"), asks=["trace"]), reports, args.repeats)
        ours = seconds(equidistant(), reports, args.repeats)
        published = seconds(equidistant(published=True), reports, args.repeats)
        print(
            f"{d:>10,} parameters: {ala * 1e3:8.1f} ms {ours * 1e3:8.1f} ms ({ours / ala:.1f}) "
            f"{published * 1e3:10.0f} ms ({published / ala:,.0f})"
        )


if __name__ == "__main__":
    main()
