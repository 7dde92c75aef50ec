"""An audit on disk: audit.json (everything), per_group.csv (for a spreadsheet), audit.md (to read and to paste)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..checks import BadInput
from ..metrics import rates
from ..records import replace_file

SHOWN = ("selection_rate", "true_positive_rate", "false_positive_rate", "positive_predictive_value", "accuracy")
"""Rates in the tables for people; the files hold them all."""


def as_json(found: dict[str, Any]) -> str:
    """Return strict JSON: no NaN, keys in a fixed order, ends with a line break."""
    return json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def free_folder(folder: Path) -> None:
    """Refuse a folder that holds anything."""
    if folder.is_file():
        raise BadInput(f"{folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        what = "another audit" if (folder / "audit.json").exists() else "other files"
        raise BadInput(f"{folder} holds {what}; name a new folder")


def to_folder(found: dict[str, Any], folder: Path) -> list[Path]:
    """Write the three files into a new or empty folder; audit.json comes last: where it is, the others are."""
    free_folder(folder)
    texts = {"per_group.csv": per_group_csv(found), "audit.md": to_markdown(found), "audit.json": as_json(found)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, words in texts.items():
            replace_file(folder / name, words)
    except OSError as e:
        raise BadInput(f"{folder} cannot be written ({e.strerror or e}); name another folder") from None
    return [folder / name for name in texts]


def _views(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for view in found["pooled"]:
        yield "pooled", "", view
    for view in found["clients"]:
        yield "client", view["client"], view


def per_group_csv(found: dict[str, Any]) -> str:
    """Return one line per scope, client, attribute and group: counts, and every rate with its limits (empty = 0/0)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    limits = [f"{rate}{end}" for rate in rates.__all__ for end in ("", "_low", "_high")]
    writer.writerow(
        ["scope", "client", "attribute", "group", "n", "positives", "negatives", *found["columns"], *limits, "warnings"]
    )
    for scope, client, view in _views(found):
        for g in view["groups"]:
            values = [g["rates"][rate].get(end) for rate in rates.__all__ for end in ("value", "low", "high")]
            head = [scope, client, view["attribute"], g["group"], g["n"], g["positives"], g["negatives"]]
            writer.writerow([*head, *g["counts"], *("" if v is None else v for v in values), "; ".join(g["warnings"])])
    return out.getvalue()


def heading(found: dict[str, Any]) -> list[str]:
    """Say in a few lines what was audited and how the rows add up."""
    q, rows = found["question"], found["rows"]
    said = q["prediction"] or f"{q['score']} >= {q['threshold']:g}"
    out = [
        f"{found['file']['name']}: label {q['label']!r}, prediction {said!r}, groups by {', '.join(q['groups'])}"
        + (f", clients by {q['client']}" if q["client"] else ""),
        f"Positive = favourable outcome = label {q['counted_as_positive']!r}"
        + (
            ""
            if q["favourable"] == "positive"
            else f" (the label asked for, {q['counted_as_negative']!r}, is unfavourable)"
        ),
    ]
    left = ", ".join(f"{item['rows']} {item['reason']}" for item in rows["left_out"])
    out.append(
        f"Rows: {rows['read']} read = {rows['counted']} counted + {rows['read'] - rows['counted']} left out"
        + (f" ({left})" if left else "")
    )
    return out


def intervals(found: dict[str, Any]) -> str:
    """Say how the intervals were made."""
    s = found["settings"]
    gaps = f"gaps by bootstrap from counts, {s['replicates']} replicates, seed {s['seed']}"
    return f"Intervals: {s['level']:.0%}; rates by {s['rates']}; {gaps}"


def number(v: float | None) -> str:
    """Return three decimals, or a dash for what is undefined."""
    return "–" if v is None else f"{v:.3f}"


def with_limits(rate: dict[str, Any]) -> str:
    """Return a rate with its interval."""
    if rate["value"] is None:
        return "undefined"
    return f"{rate['value']:.3f} [{rate['low']:.2f}, {rate['high']:.2f}]"


def between_limits(figure: dict[str, Any]) -> str:
    """Return the interval of a figure, a dash where there is none."""
    interval = figure.get("interval")
    return "–" if not interval or interval["low"] is None else f"{interval['low']:.3f} to {interval['high']:.3f}"


def held_to(found: dict[str, Any], figure: dict[str, Any]) -> str:
    """Return the limit of a figure with its sign, empty where it has none."""
    return next((f"{b['sign']} {b['value']:g}" for b in found["limits"] if b["metric"] == figure["metric"]), "")


def to_markdown(found: dict[str, Any]) -> str:
    """Return the audit as Markdown, to read or to paste into a model card."""
    lines = ["# Audit of predictions", "", f"**Verdict: {found['verdict']}** (pooled population)", ""]
    lines += [f"- {line}" for line in heading(found)]
    if found["clients"]:
        tally = ", ".join(f"{n} {word}" for word, n in found["clients_by_verdict"].items())
        lines.append(f"- Clients: {tally}")
    lines.append(f"- {intervals(found)}")
    lines += ["", "## Findings, worst first", ""]
    lines += [f"- {_escape(where(f))}: {_escape(f['sentence'])}" for f in found["findings"][:20]]
    if len(found["findings"]) > 20:
        lines.append(f"- … and {len(found['findings']) - 20} more in audit.json")
    if found["remarks"]:
        lines += ["", "## Remarks", "", *(f"- {_escape(r)}" for r in found["remarks"])]
    for view in found["pooled"]:
        lines += ["", f"## Pooled, by {_escape(view['attribute'])}", ""]
        lines += _grid(
            ["group", "n", "positives", *found["columns"], *(_words(r) for r in SHOWN), "note"],
            [
                [
                    g["group"],
                    g["n"],
                    g["positives"],
                    *g["counts"],
                    *(with_limits(g["rates"][r]) for r in SHOWN),
                    "; ".join(g["warnings"]),
                ]
                for g in view["groups"]
            ],
        )
        lines += [""]
        lines += _grid(
            ["metric", "value", "interval", "limit", "verdict"],
            [
                [_words(f["metric"]), number(f["value"]), between_limits(f), held_to(found, f), f["verdict"] or ""]
                for f in view["figures"]
            ],
        )
    if found["clients"]:
        lines += ["", "## Clients, worst first", "", POOLED_NOTE, ""]
        bounded = [b["metric"] for b in found["limits"]]
        rows = []
        for c in found["clients"]:
            figures = {f["metric"]: f for f in c["figures"]}
            rows.append([c["client"], c["rows"], *(number(figures[m]["value"]) for m in bounded), c["verdict"]])
        lines += _grid(["client", "rows", *(_words(m) for m in bounded), "verdict"], rows)
        lines += ["", "## Pooled and over clients", ""]
        lines += _grid(
            ["metric", "pooled", "mean of clients", "defined at", "lowest", "highest"],
            [
                [
                    _words(a["metric"]),
                    number(a["pooled"]),
                    number(a["mean"]),
                    f"{a['clients_defined']} of {len(found['clients'])}",
                    number(a["lowest"]),
                    number(a["highest"]),
                ]
                for a in found["across_clients"]
            ],
        )
    lines += ["", "## Rules", "", found["verdict_rule"], ""]
    lines += [f"- {_words(b['metric'])} {b['sign']} {b['value']:g}: {b['origin']}" for b in found["limits"]]
    lines += ["", "## Definitions", ""]
    lines += [f"- {_words(name)}: {text}" for name, text in found["definitions"].items()]
    lines += ["", f"Input sha256 {found['file']['sha256']}; equipoise {found['equipoise']}.", ""]
    return "\n".join(lines)


POOLED_NOTE = "The pooled figure comes from summed counts; it is not the mean of the clients' figures."


def where(finding: dict[str, Any]) -> str:
    """Say whom a finding is about."""
    who = "pooled" if finding["client"] is None else finding["client"]
    return f"{who}, {finding['attribute']}, {_words(finding['metric'])}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _escape(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _grid(head: list[str], rows: list[list[Any]]) -> list[str]:
    body = [[_escape(cell) for cell in row] for row in [head, *rows]]
    return [f"| {' | '.join(row)} |" for row in [body[0], ["---"] * len(head), *body[1:]]]
