"""How long `equipoise audit` takes on a large table: whole processes, median of repeats.

Run: python benchmarks/audit.py [--rows 1000000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CLIENTS, GROUPS = 250, 4


def write(path: Path, rows: int) -> None:
    """Write decisions about `rows` people in 4 groups at 250 clients: 1,000 cells."""
    rng = np.random.default_rng(0)
    client, group, y = rng.integers(0, CLIENTS, rows), rng.integers(0, GROUPS, rows), rng.random(rows) < 0.3
    yhat = np.where(y, rng.random(rows) < 0.7, rng.random(rows) < 0.15)
    with path.open("w") as f:
        f.write("y,yhat,group,bank\n")
        f.writelines(f"{a:d},{b:d},g{g},bank{k}\n" for a, b, g, k in zip(y, yhat, group, client, strict=True))


def main() -> None:
    """Write the table, audit it some times, print the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.csv"
        write(path, args.rows)
        columns = ["--label", "y", "--prediction", "yhat", "--group", "group", "--client", "bank", "--json"]
        command = [sys.executable, "-m", "equipoise", "audit", str(path), *columns]
        seconds = []
        for _ in range(args.repeats):
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
            seconds.append(time.perf_counter() - began)
    cells = CLIENTS * GROUPS
    print(
        f"audit of {args.rows:,} rows, {cells:,} client-group cells: {statistics.median(seconds):.1f} s, start included"
    )


if __name__ == "__main__":
    main()
