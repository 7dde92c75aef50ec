"""What the attacks on privacy found in a run, as one row: means over rounds of what each line of the journal holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics import accuracy
from .journal import table

Line = Mapping[str, Any]

DISPERSION = {
    "sia_cov": "cov",
    "sia_fi": "fi",
    "sia_eod": "eod",
    "sia_gini": "gini",
    "sia_mad": "mad",
    "sen_welfare": "sen_welfare",
    "sia_worst": "worst",
    "loss_cov": "loss_cov",
    "loss_fi": "loss_fi",
    "loss_mad": "loss_mad",
}
"""Figure of the row -> figure of a round; each is averaged over the rounds in which it is defined."""

ATTACKS = ("loss", "probe_head", "nearest", "oracle")
"""Attacks on the source, the one that the server can really run best first; the oracle is an upper bound."""

LAST = 3
"""Rounds at the end over which FinP averages accuracy."""


def privacy(meta: Mapping[str, Any], lines: Sequence[Line], undefined: dict[str, str]) -> dict[str, Any]:
    """Sum up the attacks on privacy of a run; empty where there were none.

    ``sia``: share of target records whose source was found, averaged over rounds, and ``sia_max`` its maximum, beside
    ``sia_chance``. The dispersion of the clients' shares and of the loss matrix is averaged over rounds, each figure by
    itself: a mean of fairness indices is not the index of a mean. ``mia_...``: mean and worst client of each attack on
    membership. ``accuracy_last3`` and ``train_accuracy_last3``: means over the last three rounds, as FinP reports them.
    ``epsilon``: of the client that spent most on DP-SGD; ``central_epsilon``: of every client, by noise at the server.
    Reasons for what is undefined go into ``undefined``.
    """
    row: dict[str, Any] = {}
    for key, prefix in (("private", ""), ("central", "central_")):
        spent = meta.get(key)
        if spent is None:
            continue
        row |= {f"{prefix}epsilon": spent["epsilon"], f"{prefix}delta": spent["delta"]}
        if spent["epsilon"] is None or not np.isfinite(spent["epsilon"]):
            row[f"{prefix}epsilon"] = None
            undefined[f"{prefix}epsilon"] = "without noise no finite epsilon holds"
    probed = [line["probed"] for line in lines if line.get("probed")]
    asked = meta.get("inference") or {}
    if not probed and not asked:
        return row
    row |= _source([p["source"] for p in probed if "source" in p], undefined)
    row |= _membership([p["membership"] for p in probed if "membership" in p], undefined)
    if asked.get("source") and "sia" not in row:
        row["sia"], undefined["sia"] = None, "fewer than two clients trained in every round that was to be attacked"
    for name in [f"mia_{attack}_auc" for attack in asked.get("membership", ())]:
        if name not in row:
            row[name], undefined[name] = None, "nobody trained in the last round, which was to be attacked"
    for name, moment in (("accuracy_last3", meta["final_moment"]), ("train_accuracy_last3", "trained")):
        row[name] = _last_accuracy(lines, moment)
        if row[name] is None:
            undefined[name] = "it was not measured in each of the last rounds; set evaluation.every = 1"
    return row


def ranked(source: Mapping[str, Any]) -> list[str]:
    """Return the attacks of a round in the order in which they are spoken of.

    Examples
    --------
    >>> ranked({"nearest": 1, "oracle": 2, "probe_head": 3})
    ['probe_head', 'nearest', 'oracle']
    """
    return sorted(source, key=lambda name: (ATTACKS.index(name) if name in ATTACKS else len(ATTACKS), name))


def _source(rounds: Sequence[Mapping[str, Any]], undefined: dict[str, str]) -> dict[str, Any]:
    if not rounds:
        return {}
    names = ranked(rounds[0])
    row: dict[str, Any] = {"sia_attack": names[0]}
    first = [r[names[0]] for r in rounds]
    row["sia"], row["sia_max"] = _over(first, "overall", np.mean), _over(first, "overall", np.max)
    row["sia_chance"] = _over(first, "chance", np.mean)
    for name, key in DISPERSION.items():
        row[name] = _over(first, key, np.mean)
        if row[name] is None:
            undefined[name] = "in every round the clients' mean is 0 (0/0) or no number, or there are fewer than two"
    for other in names[1:]:
        row[f"sia_{other}"] = _over([r[other] for r in rounds], "overall", np.mean)
    groups = [r["groups"] for r in first if r.get("groups")]
    if groups:
        values = np.array(groups, np.float64)
        row["sia_groups"] = [float(np.nanmean(v)) if np.isfinite(v).any() else None for v in values.T]
    return row


def _membership(rounds: Sequence[Mapping[str, Any]], undefined: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for attack in rounds[-1] if rounds else ():
        found = rounds[-1][attack]
        for figure in ("auc", "advantage", "tpr_at_1", "tpr_at_01"):
            values = np.array(found[figure], np.float64)
            values = values[np.isfinite(values)]
            name = f"mia_{attack}_{figure}"
            row[name] = float(values.mean()) if len(values) else None
            if figure == "auc":
                row[f"{name}_worst"] = float(values.max()) if len(values) else None
            if not len(values):
                undefined[name] = "at no client does the attack score both members and held-out rows"
    return row


def _over(rounds: Sequence[Mapping[str, Any]], key: str, reduce: Any) -> float | None:
    values = [r[key] for r in rounds if r.get(key) is not None]
    return float(reduce(values)) if values else None


def _last_accuracy(lines: Sequence[Line], moment: str) -> float | None:
    """Mean over clients and the last rounds; None where one of them did not measure ``moment``.

    The model of round t is trained in line t and received in line t + 1; what line 1 received is nobody's work.
    """
    due = lines[1:] if moment.startswith("received") else [line for line in lines if not line["closing"]]
    measured = [line["measured"]["counts"].get(moment) for line in due[-LAST:]]
    if not measured or any(counts is None for counts in measured):
        return None
    means = [accuracy(table(counts)) for counts in measured]
    known = [float(m[np.isfinite(m)].mean()) for m in means if np.isfinite(m).any()]
    return float(np.mean(known)) if known else None
