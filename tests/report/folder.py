"""Write a run folder of invented runs that follows the record format exactly, with every oddity a real one may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

TEST = ((40, 62), (30, 68))  # (positives, negatives) of each group in the test pool


def eod(t: np.ndarray) -> float | None:
    """Gap of the true positive rates of one (G, 4) table; None = fewer than two groups have positives."""
    p = t[:, 0] + t[:, 3]
    rates = t[p > 0, 0] / p[p > 0]
    return float(rates.max() - rates.min()) if len(rates) > 1 else None


def spd(t: np.ndarray) -> float | None:
    """Gap of the selection rates of one (G, 4) table."""
    n = t.sum(1)
    rates = (t[:, 0] + t[:, 1])[n > 0] / n[n > 0]
    return float(rates.max() - rates.min()) if len(rates) > 1 else None


def accuracy(t: np.ndarray) -> float:
    """Share of right decisions of one (G, 4) table."""
    return float((t[:, 0] + t[:, 2]).sum() / t.sum())


def table(rng: np.random.Generator, cells: Any, skill: float, bias: float) -> np.ndarray:
    """Counts of a model of this skill that decides for the second group more often by ``bias``."""
    rows = []
    for g, (positives, negatives) in enumerate(cells):
        tp = rng.binomial(positives, np.clip(skill + (bias if g else -bias) / 2, 0, 1))
        fp = rng.binomial(negatives, np.clip(1 - skill + (bias if g else -bias) / 2, 0, 1))
        rows.append([tp, fp, negatives - fp, positives - tp])
    return np.array(rows)


def weights(rule: str, parameters: dict[str, Any], scores: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Weights of the rules used here."""
    raw = {
        "uniform": np.ones(len(sizes)),
        "fedavg": sizes.astype(float),
        "fairis": parameters.get("eta", 2.0) - scores,
        "fairis-n": sizes * (parameters.get("eta", 2.0) - scores),
    }[rule]
    return raw / raw.sum()


def mean(values: list[float | None]) -> float | None:
    """Mean of those that exist."""
    good = [v for v in values if v is not None]
    return float(np.mean(good)) if good else None


def run_lines(
    name: str, rule: str, parameters: dict[str, Any], seed: int, clients: int, rounds: int, attacked: bool, odd: bool
) -> list[dict[str, Any]]:
    """Return the lines of one run; ``odd``: rejections, drop-outs, fallbacks, an undefined score, a kept round."""
    rng = np.random.default_rng([seed, clients])
    sizes = rng.integers(60, 400, clients)
    cells = [((max(1, int(n * 0.2)), int(n * 0.3)), (int(n * 0.15), int(n * 0.35))) for n in sizes]
    cells[-1] = ((0, int(sizes[-1] * 0.5)), cells[-1][1]) if odd and clients > 2 else cells[-1]
    everyone, lines = list(range(clients)), []
    for t in range(1, rounds + 1):
        skill = 0.55 + 0.22 * (1 - np.exp(-t / 4))
        harm = 0.06 + (0.25 if attacked and rule in ("uniform", "fedavg") else 0.05) * min(t / 8, 1)
        bias = [0.8 if attacked and k == 0 else harm for k in everyone]
        received = {k: table(rng, cells[k], skill, bias[k] * 0.6) for k in everyone}
        trained = {k: table(rng, cells[k], skill + 0.06, bias[k]) for k in everyone}
        test = {k: table(rng, TEST, skill, bias[k]) for k in everyone}
        line: dict[str, Any] = {
            "run": name,
            "round": t,
            "closing": False,
            "asked": everyone,
            "rejected": {},
            "missing": [],
            "late": [],
            "news": {},
            "figures": {},
        }
        here = list(everyone)
        if odd and t == 3:
            here.remove(1)
            line["rejected"] = {"1": "update not finite"}
        if odd and t == 5:
            here.remove(2)
            line["missing"] = [2]
        if odd and t == rounds - 1:
            here, line["missing"], line["kept"] = [], everyone, "no valid reply"
        line |= {"clients": here, "sizes": [float(sizes[k]) for k in here]}
        line["counts"] = {"trained": [trained[k].tolist() for k in here]} if here else {}
        line["measured"] = {
            "clients": everyone,
            "counts": {
                "received": [received[k].tolist() for k in everyone],
                "received@test": [test[k].tolist() for k in everyone],
            },
        }
        if here:
            raw = [eod(trained[k]) for k in here]
            used = [1.0 if s is None else s for s in raw]
            line["weights"] = weights(rule, parameters, np.array(used), sizes[here]).tolist()
            if rule.startswith("fairis"):
                line |= {"scores": used, "raw_scores": raw}
                line["fallbacks"] = {
                    str(k): "no positives in group female: TPR is 0/0; counted as 1 (worst)"
                    for k, s in zip(here, raw, strict=True)
                    if s is None
                }
            norms = rng.gamma(8, 0.5, len(here))
            line |= {
                "norms": norms.tolist(),
                "clipped": (norms > 4.9).tolist(),
                "bounds": [w * 4.9 for w in line["weights"]],
                "clip_norm": 4.9,
            }
        lines.append(line)
    final = {k: table(rng, TEST, skill, bias[k]) for k in everyone}
    lines.append(
        {
            "run": name,
            "round": rounds + 1,
            "closing": True,
            "asked": everyone,
            "clients": [],
            "sizes": [],
            "counts": {},
            "figures": {},
            "news": {},
        }
        | {"measured": {"clients": everyone, "counts": {"received@test": [final[k].tolist() for k in everyone]}}}
    )
    return lines


def summary_row(
    about: dict[str, Any], lines: list[dict[str, Any]], control: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Work out the figures of one run from its lines."""
    members = about["adversaries"]
    last = lines[-1]["measured"]
    tables = dict(zip(last["clients"], map(np.array, last["counts"]["received@test"]), strict=True))
    shares = [
        sum(w for c, w in zip(x["clients"], x["weights"], strict=True) if c in members) for x in lines if "weights" in x
    ]
    honest = [tables[k] for k in tables if k not in members]
    eods = [eod(t) for t in honest]
    clipped = [
        hit
        for x in lines
        if "clipped" in x
        for c, hit in zip(x["clients"], x["clipped"], strict=True)
        if c not in members
    ]
    row: dict[str, Any] = {
        k: about[k]
        for k in (
            "run",
            "data",
            "rule",
            "parameters",
            "clients",
            "architecture",
            "seed",
            "adversary",
            "strength",
            "control",
        )
    }
    row |= {
        "attacker_weight_mean": float(np.mean(shares)) if members else None,
        "attacker_weight_last": shares[-1] if members else None,
        "attacker_eod": mean([eod(tables[k]) for k in members]),
        "honest_eod": mean(eods),
        "honest_eod_clients": sum(e is not None for e in eods),
        "pooled_eod": eod(sum(tables.values())),
        "spd": mean([spd(t) for t in honest]),
        "accuracy": mean([accuracy(t) for t in honest]),
        "attacker_accuracy": mean([accuracy(tables[k]) for k in members]),
        "accuracy_gap": None,
        "clip_norm": 4.9,
        "clip_rate": float(np.mean(clipped)),
        "degenerate_clients": 0,
        "rejected": sum(len(x["rejected"]) for x in lines if not x["closing"]),
        "fallbacks": sum(len(x.get("fallbacks", {})) for x in lines),
        "undefined": {},
    }
    if members and control:
        benign = dict(
            zip(
                control[-1]["measured"]["clients"],
                map(np.array, control[-1]["measured"]["counts"]["received@test"]),
                strict=True,
            )
        )
        row["accuracy_gap"] = abs(row["attacker_accuracy"] - float(np.mean([accuracy(benign[k]) for k in members])))
    return row


RULES = (("uniform", {}), ("fedavg", {}), ("fairis", {"eta": 1.01}))


def write_folder(
    path: Path,
    *,
    data: str = "german",
    rules: Any = RULES,
    seeds: tuple[int, ...] = (42, 123),
    clients: int = 3,
    rounds: int = 8,
    odd: bool = True,
    attacked: bool = True,
    names: list[str] | None = None,
    groups: tuple[str, ...] = ("female", "male"),
) -> Path:
    """Write study, environment, rounds, clients and summary of rules x seeds, with controls and a pilot."""
    path.mkdir(parents=True, exist_ok=True)
    abouts, lines = [], {}

    def add(rule: str, parameters: dict[str, Any], seed: int, hostile: bool, kind: str) -> None:
        label = rule + "".join(f"-{k}{v}" for k, v in parameters.items())
        name = f"{data}/{label}/k{clients}/seed{seed}" + (f"/{kind}" if kind else "")
        about = {
            "run": name,
            "data": data,
            "rule": rule,
            "parameters": parameters,
            "clients": clients,
            "architecture": "splitml",
            "seed": seed,
        }
        about |= {
            "adversary": "disparity" if hostile else None,
            "strength": 2.0 if hostile else None,
            "control": f"{name}/control" if hostile else None,
        }
        about |= {
            "group_names": list(groups),
            "client_names": names or [f"bank {k}" for k in range(clients)],
            "adversaries": [0] if hostile else [],
        }
        about |= {
            "favourable": "credit is granted",
            "sensitive": "sex",
            "pilot": kind == "pilot",
            "final_moment": "received@test",
            "clip_norm": 4.9,
            "control_of": {name.removesuffix("/control"): [0]} if kind == "control" else {},
        }
        abouts.append(about)
        lines[name] = run_lines(
            name, rule, parameters, seed, clients, rounds, hostile, odd and not kind and seed == seeds[0]
        )

    add("uniform", {}, seeds[0], False, "pilot")
    for rule, parameters in rules:
        for seed in seeds:
            add(rule, parameters, seed, False, "control" if attacked else "")
            if attacked:
                add(rule, parameters, seed, True, "")
    rows = [summary_row(a, lines[a["run"]], lines.get(a["control"])) for a in abouts if not a["pilot"]]
    if odd and attacked:  # a figure that does not exist, with its reason
        row = next(r for r in rows if r["adversary"] and r["rule"] == rules[-1][0])
        row["attacker_eod"] = None
        row["undefined"]["attacker_eod"] = (
            "no client has attacker_eod: 1 undefined, 0 with a model that predicts one class only"
        )
    dump(
        path / "study.json",
        {
            "name": "fairis-poisoning",
            "rounds": rounds,
            "runs": abouts,
            "local": {"optimiser": "adam", "lr": 0.005, "steps": 60},
        },
    )
    dump(
        path / "environment.json",
        {
            "equipoise": "0.1.0",
            "python": "3.11.2",
            "numpy": "2.1.0",
            "platform": "Linux",
            "data": {data: {"sha256": "ab" * 32}},
        },
    )
    dump(path / "summary.json", {"rows": rows})
    # runs of one program advance together, so their lines are interleaved
    order = sorted((x for run in lines.values() for x in run), key=lambda x: x["round"])
    (path / "rounds.jsonl").write_text("".join(json.dumps(x, sort_keys=True, allow_nan=False) + "\n" for x in order))
    (path / "clients.csv").write_text("run,round,client\n")
    return path


def dump(path: Path, value: Any) -> None:
    """Write strict JSON."""
    path.write_text(json.dumps(value, sort_keys=True, allow_nan=False, indent=1))
