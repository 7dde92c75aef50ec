"""One row per run and one row per client and round, made from the lines of the journal and nothing else."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..metrics import accuracy, equal_opportunity_difference, statistical_parity_difference
from ..types import Array
from .journal import table
from .privacy import privacy, ranked

Line = Mapping[str, Any]


def degenerate(counts: Array) -> Array:
    """Say which models predict one class only: counts (K, G, 4) -> (K,) bool; nothing to predict counts as such.

    Examples
    --------
    >>> degenerate(np.array([[[3, 1, 0, 0]], [[1, 1, 2, 0]]]))
    array([ True, False])
    """
    tp, fp, tn, fn = np.moveaxis(counts.sum(-2), -1, 0)
    return np.asarray((tp + fp == 0) | (tn + fn == 0))


def _mean(values: Array, keep: Array, what: str) -> tuple[float | None, int, str | None]:
    """Mean over those kept and defined, their number, and the reason where there is none."""
    good = values[keep & np.isfinite(values)]
    if len(good):
        return float(good.mean()), len(good), None
    undefined, one_class = int((~np.isfinite(values)).sum()), int((~keep & np.isfinite(values)).sum())
    return (
        None,
        0,
        f"no client has {what}: {undefined} undefined, {one_class} with a model that predicts one class only",
    )


def summarise(lines: Iterable[Line], runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per run, in the order of ``runs``.

    Every client's final model (shared part as received in the closing line, own head) decides about the whole test
    pool. ``attacker_eod`` and ``attacker_accuracy`` are means over the adversary's members; ``honest_eod``, ``spd``
    and ``accuracy`` over the honest clients; models that predict one class only are left out of the EOD and SPD
    means and counted in ``degenerate_clients``, and so are models whose output is no number, which have no counts;
    ``pooled_eod`` comes from the counts summed over all clients.
    With more than two classes there is no favourable outcome, and only accuracy is defined. What attacks on privacy
    found is summed up by ``privacy``.
    ``accuracy_gap`` = |attacker's accuracy - the same clients' in the control run|. ``clip_rate`` is the share of
    honest updates that the clip shortened. A figure that does not exist is None, its reason in ``undefined``.
    """
    by_run: dict[str, list[Line]] = {r["run"]: [] for r in runs}
    for line in lines:
        by_run[line["run"]].append(line)
    rows = {r["run"]: _row(r, by_run[r["run"]]) for r in runs}
    for row in rows.values():
        control = rows.get(row["control"]) if row["control"] else None
        honest = control["_accuracy_of"].get(row["run"]) if control else None
        if row["attacker_accuracy"] is not None and honest is not None:
            row["accuracy_gap"] = abs(row["attacker_accuracy"] - honest)
        elif row["adversary"]:
            row["undefined"]["accuracy_gap"] = (
                "the attacker's accuracy is undefined, here or in the control run"
                if control
                else "no adversary-free control was run"
            )
    return [
        {k: v for k, v in row.items() if not k.startswith("_")}
        for r in runs
        if not r.get("pilot")
        for row in [rows[r["run"]]]
    ]


ABOUT_THE_RUN = (
    "run", "data", "rule", "label", "parameters", "clients", "architecture", "seed", "replicate", "adversary",
    "strength", "control",
)  # fmt: skip


def _row(meta: Mapping[str, Any], lines: Sequence[Line]) -> dict[str, Any]:
    undefined: dict[str, str] = {}
    members = np.array(meta["adversaries"], np.int64)
    trained = [x for x in lines if not x["closing"]]
    row: dict[str, Any] = {k: meta.get(k) for k in ABOUT_THE_RUN}
    row["rounds"] = len(trained)
    row |= _weights(trained, members, undefined) | _scores(trained, members) | _final(meta, lines, members, undefined)
    norms = [
        (bool(hit), client in members)
        for x in trained
        if "clipped" in x
        for client, hit in zip(x["clients"], x["clipped"], strict=True)
    ]
    honest = [hit for hit, bad in norms if not bad]
    row["clip_norm"] = meta["clip_norm"]
    row["clip_rate"] = float(np.mean(honest)) if honest and meta["clip_norm"] is not None else None
    if row["clip_rate"] is None:
        undefined["clip_rate"] = "updates are not clipped" if meta["clip_norm"] is None else "no honest update arrived"
    row["rejected"] = sum(len(x["rejected"]) for x in trained)
    row["missing"] = sum(len(x["missing"]) for x in trained)
    row["fallbacks"] = sum(len(x.get("fallbacks", {})) for x in trained)
    row["kept_rounds"] = sum("kept" in x for x in trained)
    row["accuracy_gap"] = None
    row |= privacy(meta, lines, undefined)
    row["undefined"] = undefined
    return row


def _weights(trained: Sequence[Line], members: Array, undefined: dict[str, str]) -> dict[str, Any]:
    """The share of the aggregate that the adversary got: the sum over its members, each round."""
    if not len(members):
        return {"attacker_weight_mean": None, "attacker_weight_last": None}
    shares = [
        sum(w for c, w in zip(x["clients"], x["weights"], strict=True) if c in members)
        for x in trained
        if "weights" in x
    ]
    if not shares:
        kept = all("kept" in x for x in trained)
        why = "the model was kept in every round" if kept else "this rule gives no weights"
        undefined["attacker_weight_mean"] = undefined["attacker_weight_last"] = why
        return {"attacker_weight_mean": None, "attacker_weight_last": None}
    return {"attacker_weight_mean": float(np.mean(shares)), "attacker_weight_last": float(shares[-1])}


def _scores(trained: Sequence[Line], members: Array) -> dict[str, Any]:
    """What the rule judged the adversary's members and the honest clients by, averaged over clients and rounds.

    None where the rule judges nobody, or nobody is hostile.
    """
    row: dict[str, Any] = {"attacker_score_mean": None, "honest_score_mean": None}
    judged = [
        (client in members, s)
        for x in trained
        if x.get("scores") is not None and len(members)
        for client, s in zip(x["clients"], x["scores"], strict=True)
        if s is not None
    ]
    for name, bad in (("attacker_score_mean", True), ("honest_score_mean", False)):
        values = [s for hostile, s in judged if hostile == bad]
        row[name] = float(np.mean(values)) if values else None
    return row


def _final(meta: Mapping[str, Any], lines: Sequence[Line], members: Array, undefined: dict[str, str]) -> dict[str, Any]:
    """What the final models do on the test pool."""
    names = ("attacker_eod", "attacker_accuracy", "honest_eod", "pooled_eod", "spd", "accuracy", "degenerate_clients")
    row: dict[str, Any] = dict.fromkeys(names) | {"honest_eod_clients": 0, "_accuracy_of": {}}
    moment = meta["final_moment"]
    measured = [x["measured"] for x in lines if moment in x["measured"]["counts"]]
    if not measured:
        missing = [n for n in names if len(members) or not n.startswith("attacker")]
        undefined |= dict.fromkeys(missing, "the test pool was not measured: nobody had a model to measure")
        return row
    last = measured[-1]
    ids = np.array(last["clients"], np.int64)
    counts = table(last["counts"][moment])
    bad = np.isin(ids, members)
    acc = accuracy(counts)
    row["accuracy"], _, why = _mean(acc[~bad], np.ones((~bad).sum(), bool), "accuracy")
    if why:
        undefined["accuracy"] = why
    many_classes = meta.get("classes", 2) > 2
    eod = np.full(len(ids), np.nan) if many_classes else equal_opportunity_difference(counts)
    if many_classes:
        names = ("honest_eod", "spd", "pooled_eod", "degenerate_clients", *(("attacker_eod",) if len(members) else ()))
        undefined |= dict.fromkeys(names, f"the labels have {meta['classes']} classes, and none is favourable")
    else:
        one_class = degenerate(counts)
        row["degenerate_clients"] = int(one_class.sum())
        for name, values in (("honest_eod", eod), ("spd", statistical_parity_difference(counts))):
            row[name], n, why = _mean(values[~bad], ~one_class[~bad], name)
            if name == "honest_eod":
                row["honest_eod_clients"] = n
            if why:
                undefined[name] = why
    if len(members):
        for name, values in (("attacker_eod", eod[bad]), ("attacker_accuracy", acc[bad])):
            row[name], _, why = _mean(values, np.ones(len(values), bool), name)
            if why:
                undefined.setdefault(name, why)
    pooled = np.nan if many_classes else float(equal_opportunity_difference(counts.sum(0)))
    row["pooled_eod"] = pooled if np.isfinite(pooled) else None
    if row["pooled_eod"] is None and not many_classes:
        undefined["pooled_eod"] = (
            "fewer than two groups of the test pool have positives"
            if counts.sum()
            else "no model's output is a number, so nothing can be counted"
        )
    for other, its_members in meta.get("control_of", {}).items():
        its = acc[np.isin(ids, its_members)]
        if np.isfinite(its).any():
            row["_accuracy_of"][other] = float(its[np.isfinite(its)].mean())
    return row


CLIENT_COLUMNS = (
    "run", "round", "client", "name", "adversary", "size", "weight", "score", "raw_score", "norm", "clipped", "bound",
    "status",
    "accuracy_received", "eod_received", "accuracy_trained", "eod_trained", "accuracy_test", "eod_test",
)  # fmt: skip


def write_clients(path: Path, lines: Iterable[Line], runs: Sequence[Mapping[str, Any]]) -> None:
    """Write what each client did in each round as a long CSV; an empty cell is undefined or was not measured.

    After the fixed columns come those of this study: ``told_...`` (what the server told the client beside the model),
    ``figure_...`` (what it reported) and ``source_inference`` (share of its records that were traced to it).

    ``status`` is ok, rejected, late, missing, or closing (the last line, in which nobody trains). ``..._received`` and
    ``..._trained`` are measured on the client's own rows, ``..._test`` on the global test pool.
    """
    meta, lines = {r["run"]: r for r in runs}, list(lines)
    told = sorted({name for line in lines for name in line["news"]})
    figures = sorted({name for line in lines for name in line["figures"]})
    traced = any("source" in line.get("probed", {}) for line in lines)
    with path.open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        names = [*(f"told_{n}" for n in told), *(f"figure_{n}" for n in figures), *["source_inference"][: int(traced)]]
        out.writerow([*CLIENT_COLUMNS, *names])
        for line in lines:
            out.writerows(
                row + more
                for row, more in zip(
                    _client_rows(line, meta[line["run"]]), _more(line, told, figures, traced), strict=True
                )
            )


def _more(line: Line, told: Sequence[str], figures: Sequence[str], traced: bool) -> Iterable[list[Any]]:
    """What each asked client was told and reported, and how exposed it was."""
    at = {c: i for i, c in enumerate(line["clients"])}
    source, success = line.get("probed", {}).get("source", {}), {}
    if source:
        attack = source[ranked(source)[0]]
        success = dict(zip(attack["clients"], attack["success"], strict=True))
    for i, client in enumerate(line["asked"]):
        row = [line["news"][n][i] if n in line["news"] else None for n in told]
        row += [line["figures"][n][at[client]] if n in line["figures"] and client in at else None for n in figures]
        row += [success.get(client)] if traced else []
        yield ["" if v is None else v for v in row]


def _client_rows(line: Line, meta: Mapping[str, Any]) -> Iterable[list[Any]]:
    at = {c: i for i, c in enumerate(line["clients"])}
    measured = {c: i for i, c in enumerate(line["measured"]["clients"])}
    figures = {}
    for moment in ("received", "trained", meta["final_moment"]):
        counts = line["measured"]["counts"].get(moment)
        if counts is not None:
            figures[moment] = (accuracy(table(counts)), equal_opportunity_difference(table(counts)))
    for client in line["asked"]:
        i, j = at.get(client), measured.get(client)
        status = "closing" if line["closing"] else "ok" if i is not None else _absent(client, line)
        row = [line["run"], line["round"], client, meta["client_names"][client], int(client in meta["adversaries"])]
        for key in ("sizes", "weights", "scores", "raw_scores", "norms", "clipped", "bounds"):
            value = line[key][i] if i is not None and key in line else None
            row.append("" if value is None else int(value) if isinstance(value, bool) else value)
        row.append(status)
        for moment in ("received", "trained", meta["final_moment"]):
            for values in figures.get(moment, (None, None)):
                row.append("" if values is None or j is None or not np.isfinite(values[j]) else float(values[j]))
        yield row


def _absent(client: int, line: Line) -> str:
    if str(client) in line["rejected"]:
        return "rejected"
    return "late" if client in line.get("late", ()) else "missing"
