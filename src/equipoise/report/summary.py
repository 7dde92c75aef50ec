"""The first part of the page: what was run, the sentences that matter, the table, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import ink, plots
from .folder import About, Folder, Row
from .words import (
    ACCURACY,
    ATTACKED,
    BENIGN,
    CLIP,
    FORMULAS,
    HONEST_EOD,
    PRIVACY,
    SCORES,
    Column,
    counted,
    labels,
    listed,
    settings,
    short,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Runs that may be compared: same data, clients, architecture and attack. ``rules``: label -> rows, one a seed."""

    title: str
    about: About
    clients: int
    adversary: str | None
    strength: float | None
    rules: dict[str, list[Row]]
    controls: dict[str, list[Row]]

    @property
    def share(self) -> float:
        """The attackers' part of K: what they would get if all clients weighed the same."""
        return len(self.about.adversaries) / self.clients


def cells(folder: Folder) -> list[Cell]:
    """Group the rows of the summary by what makes them comparable, in the order of the summary."""
    named = labels(folder)
    controls = {row.control for row in folder.rows if row.control}
    by_run = {row.run: row for row in folder.rows}
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in folder.rows:
        if row.run not in controls:
            grouped.setdefault((row.data, row.clients, row.architecture, row.adversary, row.strength), []).append(row)
    out = []
    for (data, clients, architecture, adversary, strength), rows in grouped.items():
        rules: dict[str, list[Row]] = {}
        benign: dict[str, list[Row]] = {}
        for row in rows:
            rules.setdefault(named[row.run], []).append(row)
            if row.control in by_run:
                benign.setdefault(named[row.run], []).append(by_run[row.control])
        attack = (
            f", {adversary} attack of strength {strength:g}"
            if adversary and strength is not None
            else f", {adversary} attack"
            if adversary
            else ""
        )
        title = f"{data}, {counted(clients, 'client')}{', ' + architecture if architecture else ''}{attack}"
        out.append(Cell(title, folder.abouts[rows[0].run], clients, adversary, strength, rules, benign))
    return out


def columns(cell: Cell, controls: bool = False) -> list[Column]:
    """Return the figures that the table shows: those that apply to what was run."""
    rows = [row for rows in (cell.controls if controls else cell.rules).values() for row in rows]
    base = ATTACKED if cell.adversary and not controls else BENIGN
    lies = SCORES if cell.adversary and cell.adversary.startswith("claim") and not controls else ()
    clipped = any(row.clip_norm is not None for row in rows)
    shown = [c for c in (*base, *lies) if (cell.about.favours or not _of_groups(c)) and (clipped or c is not CLIP)]
    return shown + [c for c in PRIVACY if any(getattr(row, c.key) is not None for row in rows)]


def _of_groups(column: Column) -> bool:
    """Say whether a figure compares groups by a favourable outcome, which many classes do not have."""
    return column.key in ("attacker_eod", "honest_eod", "pooled_eod", "spd")


def mean(rows: Sequence[Row], key: str) -> float | None:
    """Average a figure over the seeds in which it exists; None if it exists in none."""
    values = defined(rows, key)
    return sum(values) / len(values) if values else None


def defined(rows: Sequence[Row], key: str) -> list[float]:
    """Return the values of a figure in the seeds in which it exists."""
    return [v for row in rows if (v := getattr(row, key)) is not None]


def table(cell: Cell, controls: bool = False) -> dict[str, Any]:
    """Return what the table shows: per rule a row of means with their range, and a row per seed."""
    shown = columns(cell, controls)
    body = []
    for label, rows in (cell.controls if controls else cell.rules).items():
        body.append(
            {
                "label": label,
                "cells": [_mean_cell(rows, c) for c in shown],
                "seeds": [_seed(row, shown) for row in rows],
            }
        )
    return {"columns": shown, "body": body}


def _mean_cell(rows: Sequence[Row], column: Column) -> dict[str, Any]:
    values = defined(rows, column.key)
    average = mean(rows, column.key)
    out: dict[str, Any] = {"value": average, "text": ink.number(average), "low": "", "high": "", "of": ""}
    if len(values) > 1:
        out |= {"low": ink.number(min(values)), "high": ink.number(max(values))}
    if average is None:
        out["why"] = _why(rows, column.key)
        out["applies"] = _applies(rows, column)
    elif len(values) < len(rows):
        out["of"] = f"{len(values)} of {len(rows)} runs"
    return out


def _applies(rows: Sequence[Row], column: Column) -> bool:
    """Say whether a missing figure is undefined, with a reason, or is none of what the method has."""
    if column is CLIP:
        return any(row.clip_norm is not None for row in rows)
    return column not in PRIVACY or any(column.key in row.undefined for row in rows)


def _why(rows: Sequence[Row], key: str) -> str:
    return "; ".join(dict.fromkeys(row.undefined.get(key, "no reason recorded") for row in rows))


def _seed(row: Row, shown: Sequence[Column]) -> dict[str, Any]:
    out = []
    for c in shown:
        value = getattr(row, c.key)
        item = {
            "value": value,
            "text": ink.number(value),
            "of": f"({row.honest_eod_clients})" if c.key == "honest_eod" and value is not None else "",
        }
        missing = {"why": row.undefined.get(c.key, "no reason recorded"), "applies": _applies([row], c)}
        out.append(item if value is not None else item | missing)
    return {"draw": row.draw, "run": row.run, "cells": out}


def pictures(cell: Cell) -> list[tuple[str, str, str]]:
    """Return (heading, direction, SVG) of weight, EOD and accuracy: a row per rule, marks for its mean and seeds."""
    out = []
    if cell.adversary:
        equal = (cell.share, f"equal share {ink.number(cell.share)}")
        svg = _picture(cell, "attacker_weight_mean", "Attacker's weight", ink.VERMILION, 0.0, equal)
        out.append(("Attacker's weight", "left is good", svg))
    shown = columns(cell)
    if HONEST_EOD in shown:
        out.append(("Honest clients' EOD", "left is good", _picture(cell, "honest_eod", "Honest EOD", ink.BLUE, 0.0)))
    out.append(("Honest clients' accuracy", "right is good", _picture(cell, "accuracy", ACCURACY.head, ink.BLUE, None)))
    keys = {c.key for c in shown}
    if "sia" in keys:
        first = next(row for rows in cell.rules.values() for row in rows if row.sia_chance is not None)
        chance = (float(first.sia_chance or 0), f"chance {ink.number(first.sia_chance)}")
        svg = _picture(cell, "sia", "Source found", ink.VERMILION, 0.0, chance)
        out.append(("Records traced to their owner", "left is good", svg))
        svg = _picture(cell, "sia_fi", "Fairness index of that risk", ink.BLUE, None)
        out.append(("How evenly that risk is spread (FI)", "right is even", svg))
    return out


def _picture(
    cell: Cell, key: str, what: str, colour: str, low: float | None, reference: tuple[float, str] | None = None
) -> str:
    rows = []
    for label, runs in cell.rules.items():
        average = mean(runs, key)
        several = len(runs) > 1
        marks = [] if average is not None else [plots.Mark(None, colour=colour, title=_why(runs, key))]
        for row in runs if average is not None else []:
            value = getattr(row, key)
            title = f"{row.draw}: {ink.number(value)}"
            marks.append(plots.Mark(value, colour=colour, faint=several, title=title))
        if several and average is not None:
            marks.append(plots.Mark(average, colour=colour, shape=1, title=f"mean: {ink.number(average)}"))
        rows.append((label, marks, "" if average is None else ink.number(average)))
    return plots.dots(rows, label=f"{what} by rule", reference=reference, low=low)


def reasons(row: Row) -> dict[str, str]:
    """Return the undefined figures of a run that the page shows, each with its reason."""
    many = "favourable" in row.undefined.get("honest_eod", "") and row.honest_eod is None
    base = [c for c in (ATTACKED if row.adversary else BENIGN) if not (many and _of_groups(c))]
    missing = [c.key for c in base if getattr(row, c.key) is None and _applies([row], c)]
    missing += [c.key for c in PRIVACY if getattr(row, c.key) is None and c.key in row.undefined]
    return {key: row.undefined.get(key, "no reason recorded") for key in missing}


def undefined(folder: Folder) -> list[tuple[str, str, list[str]]]:
    """List every undefined figure that the page shows: figure, reason, runs that share both."""
    heads = {c.key: c.head for c in (*ATTACKED, *PRIVACY)}
    found: dict[tuple[str, str], list[str]] = {}
    for row in folder.rows:
        for key, why in reasons(row).items():
            found.setdefault((heads[key], why), []).append(row.run)
    return [(head, why, runs) for (head, why), runs in found.items()]


def rules(folder: Folder) -> list[tuple[str, str, str]]:
    """List the rules of the folder once each: name, formula, settings."""
    named = labels(folder)
    found: dict[str, tuple[str, str, str]] = {}
    for row in folder.rows:
        about, label = folder.abouts[row.run], named[row.run]
        formula = about.formula or FORMULAS.get(row.rule, "as its documentation says")
        found.setdefault(label, (label, formula, settings(row, about)))
    return list(found.values())


def asks(folder: Folder) -> list[tuple[str, str, str, str]]:
    """List what every method asks of clients: name, what they report, what they are told, what loss they train on.

    An attack may need more, such as a figure to steer to; so attacked runs count only where there is no honest one.
    """
    named = labels(folder)
    honest = {named[row.run] for row in folder.rows if not row.adversary}
    found: dict[str, tuple[list[str], list[str], str]] = {}
    for row in (row for row in folder.rows if not row.adversary or named[row.run] not in honest):
        about = folder.abouts[row.run]
        reports, told, _ = found.setdefault(named[row.run], ([], [], _loss(about, folder)))
        for line in folder.lines[row.run]:
            counts = [f"counts per group ({moment})" for moment in line.counts]
            reports += [name for name in [*counts, *line.figures] if name not in reports]
            told += [name for name in line.news if name not in told]
    return [
        (label, listed(["update", "number of rows", *reports]), listed(told) or "the model alone", loss)
        for label, (reports, told, loss) in found.items()
    ]


def _loss(about: About, folder: Folder) -> str:
    """Write what an honest client minimises, and how where the method says so."""
    training = dict(about.training)
    proximal = training.pop("proximal", folder.setting("training", "proximal")) or 0
    terms = {**about.terms, **({"proximal": proximal} if proximal else {})}
    loss = " + ".join(["cross-entropy", *(f"{short(c)} {name}" for name, c in terms.items())])
    how = [f"{k} = {short(v)}" for k, v in training.items()]
    if about.private is not None:
        how.append(f"DP-SGD with clip {short(about.private.clip)} and noise {short(about.private.noise)}")
    return f"{loss}; {', '.join(how)}" if how else loss


def reproduction(folder: Folder, name: str) -> list[tuple[str, str]]:
    """Say how the folder can be made again: command, seeds, versions, hashes of the data."""
    out = []
    commands = list(dict.fromkeys(str(e["command"]) for e in folder.environments if e.get("command")))
    out.append(("Command", "; ".join(commands) or f"equipoise run {name}"))
    out.append(("Seeds", ", ".join(str(s) for s in sorted({row.seed for row in folder.rows}))))
    if any(row.replicate for row in folder.rows):
        out.append(("Replicates", ", ".join(str(r) for r in sorted({row.replicate for row in folder.rows}))))
    for i, e in enumerate(folder.environments):
        versions = e.get("versions") if isinstance(e.get("versions"), dict) else {}
        flat = {k: v for k, v in e.items() if isinstance(v, str) and k != "command"} | {
            str(k): str(v) for k, v in (versions or {}).items()
        }
        head = "Versions" if len(folder.environments) == 1 else f"Versions, machine {i + 1}"
        out.append((head, ", ".join(f"{k} {v}" for k, v in flat.items())))
    out += list(
        dict.fromkeys(
            (f"Data {where}", digest) for e in folder.environments for where, digest in _digests(e.get("data"))
        )
    )
    return out


def _digests(value: Any, where: str = "") -> list[tuple[str, str]]:
    """Flatten nested hashes of data files: (place, digest)."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _digests(inner, f"{where} {key}".strip())]
    return [(where, str(value))] if isinstance(value, str) else []
