"""Time Equipoise beside other frameworks: the same job (task.py), each through its own public interface.

Each framework lives in an environment of its own under benchmarks/.venvs, made on demand; one that does not install
is skipped with the reason. Every measurement is a process of its own with one thread; repeats are interleaved, so that
a slow minute of the machine hits all alike. Figures: whole process, and one round (the first, a warm-up, left out).

    python benchmarks/peers.py [--repeats 3] [--clients 10] [--rounds 16] [--only pfl fluke]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import task

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONSTRAINTS = ROOT / "constraints.txt"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

PEERS = {
    "pfl": ["pfl==0.6.0", "torch"],
    "fluke": ["fluke-fl==0.8.1", "torch"],
    "flower": ["flwr[simulation]==1.42.0", "torch"],
}
"""What each environment installs. pfl asks for older versions of some of our pins: it shares torch's only."""


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, made first if it is missing; RuntimeError if that fails."""
    folder = HERE / ".venvs" / peer
    python, ready = folder / "bin" / "python", folder / ".ready"
    if ready.exists() and ready.read_text() == " ".join(PEERS[peer]):
        return python
    pins = CONSTRAINTS.read_text().splitlines()
    limits = folder / "limits.txt"
    print(f"installing {peer} into {folder.relative_to(ROOT)} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    limits.write_text("\n".join(p for p in pins if peer != "pfl" or p.startswith("torch==")) + "\n")
    install = ["bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", limits.name]
    done = subprocess.run([*install, *PEERS[peer]], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"does not install: {last_line(done.stderr or done.stdout)}")
    ready.write_text(" ".join(PEERS[peer]))
    return python


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def measure(python: Path, script: str, clients: int, rounds: int) -> dict[str, Any]:
    """Run one participant once; return what it reported and the seconds of its whole process."""
    command = [str(python), str(HERE / script), str(clients), str(rounds)]
    began = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env=os.environ | ONE_THREAD, cwd=HERE
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"does not run: {last_line(done.stderr)}")
    return json.loads(last_line(done.stdout)) | {"seconds": seconds}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians over the repeats of one participant."""
    return {
        "name": runs[0]["name"],
        "seconds": statistics.median(r["seconds"] for r in runs),
        "round_ms": statistics.median(statistics.median(r["round_ms"][1:]) for r in runs),
        "accuracy": runs[0]["accuracy"],
        "gap": runs[0]["gap"],
        "repeats": len(runs),
    }


def main() -> None:
    """Measure all, print a table with ratios and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=task.CLIENTS)
    parser.add_argument("--rounds", type=int, default=task.ROUNDS)
    parser.add_argument("--only", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--json", type=Path, default=ROOT / "runs" / "bench" / "peers.json")
    ask = parser.parse_args()

    participants, skipped = {"equipoise": Path(sys.executable)}, {}
    for peer in ask.only:
        try:
            participants[peer] = python_of(peer)
        except RuntimeError as e:
            skipped[peer] = str(e)
    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in participants}
    for repeat in range(ask.repeats):
        for who, python in participants.items():
            if who in skipped:
                continue
            try:
                runs[who].append(measure(python, f"peer_{who}.py", ask.clients, ask.rounds))
                print(f"repeat {repeat + 1}: {who} {runs[who][-1]['seconds']:.1f} s", flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                if who == "equipoise":
                    raise
                skipped[who] = str(e)
    rows = {who: summary(r) for who, r in runs.items() if r}
    ours = rows["equipoise"]

    print(f"\n{ask.clients} clients, {ask.rounds} rounds of {task.STEPS} Adam steps, {task.PARAMETERS:,} parameters;")
    print("one thread each (Flower: two actors of one thread); median of repeats")
    print(f"{'':<22}{'process s':>10}{'ratio':>8}{'round ms':>10}{'ratio':>8}{'accuracy':>10}{'EOD':>7}")
    for row in rows.values():
        row["process_ratio"], row["round_ratio"] = row["seconds"] / ours["seconds"], row["round_ms"] / ours["round_ms"]
        print(
            f"{row['name']:<22}{row['seconds']:>10.2f}{row['process_ratio']:>7.1f}x"
            f"{row['round_ms']:>10.1f}{row['round_ratio']:>7.1f}x{row['accuracy']:>10.4f}{row['gap']:>7.3f}"
        )
    for who, why in skipped.items():
        print(f"{who}: skipped, {why}")
    ask.json.parent.mkdir(parents=True, exist_ok=True)
    ask.json.write_text(json.dumps({"rows": rows, "skipped": skipped}, indent=1) + "\n")
    print(f"written to {os.path.relpath(ask.json)}")


if __name__ == "__main__":
    main()
