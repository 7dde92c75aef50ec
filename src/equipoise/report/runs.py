"""The second part of the page: every run by itself, its charts, its last round and its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import charts, privacy
from .folder import About, Folder, Line, Row
from .ink import number
from .words import FORMULAS, JUDGES_NOBODY, counted, listed, settings

LISTED_UP_TO = 40
"""With more clients than these the last round shows the attackers and the heaviest; clients.csv has all."""


def view(folder: Folder, row: Row, label: str) -> dict[str, Any]:
    """Return everything that the page shows of one run."""
    about, rounds = folder.abouts[row.run], folder.lines[row.run]
    who = listed([about.name(k) for k in about.adversaries])
    return {
        "id": "run-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in row.run),
        "run": row.run,
        "label": label,
        "facts": f"{row.data}, {counted(row.clients, 'client')}, {row.draw}",
        "attacked": bool(about.adversaries),
        "role": f"attacked by {who}" if about.adversaries else "adversary-free",
        "formula": about.formula or FORMULAS.get(row.rule, ""),
        "parameters": settings(row, about),
        "clip": row.clip_norm,
        "figures": [
            *charts.over_rounds(about, row, rounds, folder.lines.get(row.control or "", [])),
            *privacy.figures(about, rounds),
        ],
        "private": privacy.statement(about),
        "groups": charts.groups(about, rounds),
        "last": last_round(about, rounds, judged=row.rule not in JUDGES_NOBODY),
        "events": events(about, rounds),
    }


def last_round(about: About, rounds: Sequence[Line], judged: bool = True) -> dict[str, Any] | None:
    """Return the table of the last round of training: who got which weight, and why."""
    trained = [line for line in rounds if not line.closing]
    if not trained:
        return None
    line = trained[-1]
    everyone = sorted({*line.asked, *line.clients, *line.rejected, *line.missing, *line.late})
    if len(everyone) > LISTED_UP_TO:
        everyone.sort(key=lambda k: (k not in about.adversaries, -(line.of("weights", k) or 0.0)))
    shown = everyone[:LISTED_UP_TO]
    return {
        "round": line.round,
        "rows": [_client_row(about, line, k) for k in shown],
        "judged": judged,
        "left_out": len(everyone) - len(shown),
        "note": line.note,
        "kept": line.kept,
    }


def _client_row(about: About, line: Line, client: int) -> dict[str, Any]:
    figures = {name: line.of(name, client) for name in ("sizes", "scores", "weights", "norms", "bounds")}
    return {
        **figures,
        "name": about.name(client),
        "attacker": client in about.adversaries,
        "undefined": line.undefined_score(client),
        "why": "; ".join(_reasons(line, client)) or "as the rule gives",
    }


def _reasons(line: Line, client: int) -> list[str]:
    """Say what, beside the rule, decided about a client's part in a round."""
    out = []
    if line.of("clipped", client) and line.clip_norm is not None:
        out.append(f"update of length {number(line.of('norms', client), 2)} shortened to {number(line.clip_norm, 2)}")
    if client in line.fallbacks:
        out.append(f"score replaced: {line.fallbacks[client]}")
    elif line.undefined_score(client):
        out.append("score undefined")
    if client in line.rejected:
        out.append(f"rejected: {line.rejected[client]}")
    if client in line.missing:
        out.append("did not reply")
    if client in line.late:
        out.append("replied too late")
    if client in line.clients and line.kept:
        out.append("no weight: the model was kept")
    return out


def events(about: About, lines: Sequence[Line]) -> list[tuple[str, str, str, str]]:
    """List what did not go as planned, equal events of several rounds as one: (event, client, rounds, reason)."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for line in lines:
        here = [("rejected", about.name(k), why) for k, why in sorted(line.rejected.items())]
        here += [("score replaced", about.name(k), why) for k, why in sorted(line.fallbacks.items())]
        here += [("missing", about.name(k), "no reply") for k in sorted(line.missing)]
        here += [("late", about.name(k), "the reply came too late and was dropped") for k in sorted(line.late)]
        here += [("model kept", "all", line.kept)] if line.kept else []
        here += [("note", "all", line.note)] if line.note else []
        for event in here:
            found.setdefault(event, []).append(line.round)
    return [(kind, client, ranges(rounds), why) for (kind, client, why), rounds in found.items()]


def ranges(rounds: Sequence[int]) -> str:
    """Write round numbers shortly.

    Examples
    --------
    >>> ranges([1, 2, 3, 5, 8, 9])
    '1–3, 5, 8–9'
    """
    spans: list[list[int]] = []
    for t in rounds:
        if spans and t == spans[-1][1] + 1:
            spans[-1][1] = t
        else:
            spans.append([t, t])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in spans)
