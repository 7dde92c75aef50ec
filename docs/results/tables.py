"""Print the tables of this folder's pages from run folders, in Markdown.

Run: python docs/results/tables.py methods|liar|shares RUN_FOLDER

methods: every figure of a method, mean over seeds and their standard deviation, and the difference from the first
method seed by seed. liar: client 0's weight and rho, and the others' rho, honest and under each lie. shares: the
clients' shares of source inference, sorted within each round, averaged over rounds and seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FIGURES = {
    "sia": "SIA mean", "sia_max": "SIA max", "sia_cov": "CoV", "sia_fi": "FI", "sia_eod": "EOD", "loss_fi": "FI(Loss)",
    "mia_loss_auc": "membership AUC", "accuracy_last3": "accuracy, last 3", "accuracy": "accuracy",
    "pooled_eod": "pooled EOD", "attacker_weight_mean": "attacker's weight", "epsilon": "epsilon",
}  # fmt: skip


def grouped(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Return (data set, method, attack) -> its rows, one per seed."""
    controls = {r["control"] for r in rows}
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for r in rows:
        attack = "control" if r["run"] in controls else r["adversary"] or ""
        found.setdefault((r["data"], r["label"] or r["rule"], attack), []).append(r)
    return found


def methods(folder: Path) -> Iterator[str]:
    """Print mean (standard deviation) per method, and paired differences from the first one."""
    by = grouped(json.loads((folder / "summary.json").read_text())["rows"])
    keys = [k for k in FIGURES if any(r.get(k) is not None for rows in by.values() for r in rows)]
    yield "| data | method | attack | " + " | ".join(FIGURES[k] for k in keys) + " |"
    yield "|---" * (len(keys) + 3) + "|"
    for who, rows in by.items():
        cells = []
        for k in keys:
            values = [r[k] for r in rows if r.get(k) is not None]
            spread = f" ({np.std(values, ddof=1):.3f})" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{spread}" if values else "undefined")
        yield "| " + " | ".join((*who, *cells)) + " |"
    first = next(iter(by.values()))
    for who, rows in by.items():
        for k in keys:
            pairs = [(a[k], b[k]) for a, b in zip(rows, first, strict=False) if None not in (a.get(k), b.get(k))]
            if len(pairs) > 1:
                each = ", ".join(f"{a - b:+.3f}" for a, b in pairs)
                of = 100 * (np.mean([a for a, _ in pairs]) / np.mean([b for _, b in pairs]) - 1)
                yield f"{' '.join(who)}, {FIGURES[k]}: {of:+.1f} % ({each})"


def lines(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (what is fixed about the run, line) of every round in which clients train."""
    about = {m["run"]: m for m in json.loads((folder / "study.json").read_text())["runs"]}
    for text in (folder / "rounds.jsonl").read_text().splitlines():
        line = json.loads(text)
        if not line["closing"] and not about[line["run"]]["pilot"]:
            yield about[line["run"]], line


def liar(folder: Path) -> Iterator[str]:
    """Print client 0's weight and score, and the others' mean score, by method and lie."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for about, line in lines(folder):
        told = line["weights"][0], line["scores"][0], float(np.mean(line["scores"][1:]))
        found.setdefault((about["label"], about["adversary"] or "honest"), []).append(told)
    yield "| method | client 0 | its weight | its rho | the others' mean rho |"
    yield "|---|---|---|---|---|"
    for who, values in sorted(found.items()):
        yield "| " + " | ".join((*who, *(f"{v:.3f}" for v in np.mean(values, 0)))) + " |"


def shares(folder: Path) -> Iterator[str]:
    """Print the sorted shares of records traced to their owner, the least exposed client first."""
    found: dict[str, list[list[float]]] = {}
    for about, line in lines(folder):
        if traced := line.get("probed", {}).get("source", {}).get("loss"):
            found.setdefault(about["label"], []).append(sorted(traced["success"]))
    for method, each in found.items():
        yield f"{method}: " + ", ".join(f"{share:.3f}" for share in np.mean(each, 0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["methods", "liar", "shares"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    print("\n".join({"methods": methods, "liar": liar, "shares": shares}[given.table](given.folder)))
