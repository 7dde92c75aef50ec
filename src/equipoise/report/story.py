"""The sentences that matter, computed from the summary: who got which weight, what it did, how well it hid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .folder import About, Folder
from .ink import number
from .summary import Cell, defined, mean, reasons
from .words import ATTACKS, counted, listed


def sentences(cell: Cell) -> list[tuple[str, str]]:
    """Return (heading, sentence) pairs about runs that may be compared."""
    runs = [row for rows in cell.rules.values() for row in rows]
    seeds, times = {row.seed for row in runs}, {row.replicate for row in runs}
    each = f", each trained {len(times)} times" if len(times) > 1 else ""
    over = f"mean over {counted(len(seeds), 'seed')}{each}" if len(seeds) * len(times) > 1 else runs[0].draw
    out = [("Weight", _weight(cell, over))] if cell.adversary else []
    eod = "an EOD (gap in true positive rate between the groups) of"
    if cell.about.favours:
        out.append(("Fairness", _outcome(cell, "honest_eod", eod, 0, f"low is good, {over}")))
    out.append(("Accuracy", _outcome(cell, "accuracy", "an accuracy of", -1, f"high is good, {over}")))
    if ranked := _ranked(cell, "sia"):
        out.append(("Privacy", _privacy(cell, ranked, over)))
    if cell.adversary and (stealth := _stealth(cell)):
        out.append(("Stealth", stealth))
    if missing := sum(len(reasons(row)) for rows in cell.rules.values() for row in rows):
        what = "One figure is undefined: it enters" if missing == 1 else f"{missing} figures are undefined: they enter"
        out.append(("Left out", f"{what} no mean, and the reason stands below the table."))
    return out


def _weight(cell: Cell, over: str) -> str:
    who = listed([cell.about.name(k) for k in cell.about.adversaries])
    some = len(cell.about.adversaries) > 1
    start = f"With {counted(cell.clients, 'client')}, an equal share for {who}, who {'attack' if some else 'attacks'},"
    ranked = _ranked(cell, "attacker_weight_mean")
    if not ranked:
        return f"{start} would be {number(cell.share)}; the rules here choose or combine updates without weights."
    got = [f"{number(value)} under {label}" for value, label in ranked]
    return (
        f"{start} would be {number(cell.share)} of the weight. {'They' if some else 'It'} got {listed(got)} ({over})."
    )


def _outcome(cell: Cell, key: str, what: str, best_at: int, about: str) -> str:
    """Say where the honest clients ended: under the best and the worst rule, and without the attack."""
    ranked = _ranked(cell, key)
    who = "The honest clients" if cell.adversary else "The clients"
    if not ranked:
        return f"{who} ended with {what} that is undefined under every rule."
    (best, under), (worst, other) = ranked[best_at], ranked[-1 - best_at]
    text = f"{who} ended with {what} {number(best)} under {under}"
    text += f", the best rule, and {number(worst)} under {other}, the worst" if number(best) != number(worst) else ""
    free = sorted(v for rows in cell.controls.values() if (v := mean(rows, key)) is not None)
    text += f"; without the attack it was {_span(free)}" if free else ""
    text += "; the ranges over seeds overlap, so that order is not certain" if _overlap(cell, key, under, other) else ""
    return f"{text} ({about})."


def _overlap(cell: Cell, key: str, one: str, other: str) -> bool:
    """Say whether the seeds of two rules give figures whose ranges overlap; one seed has no range."""
    a, b = defined(cell.rules[one], key), defined(cell.rules[other], key)
    return one != other and min(len(a), len(b)) > 1 and max(a) >= min(b) and max(b) >= min(a)


def _privacy(cell: Cell, ranked: list[tuple[float, str]], over: str) -> str:
    """Say how often the server finds out whose record it looks at, and how evenly that risk is spread."""
    chance = next(row.sia_chance for rows in cell.rules.values() for row in rows if row.sia_chance is not None)
    (best, under), (worst, other) = ranked[0], ranked[-1]
    text = f"The server traces {number(best)} of the records to their owner under {under}"
    text += f" and {number(worst)} under {other}" if under != other else ""
    text += f"; chance is {number(chance)}"
    if even := _ranked(cell, "sia_fi"):
        text += f". That risk is spread most evenly under {even[-1][1]} (FI {number(even[-1][0])})"
        text += f" and least under {even[0][1]} (FI {number(even[0][0])})" if len(even) > 1 else ""
        text += "; an even spread of a high risk is still a high risk"
    return f"{text} ({over})."


def _stealth(cell: Cell) -> str:
    gaps, bias = _ranked(cell, "accuracy_gap"), _ranked(cell, "attacker_eod")
    if not gaps:
        return ""
    own = f", while its EOD is {_span([v for v, _ in bias])}" if bias else ""
    rules = ", depending on the rule" if len(cell.rules) > 1 else ""
    text = f"The attacker's own accuracy lies {_span([v for v, _ in gaps])} away from what the same client reaches"
    return f"{text} without the attack{own}{rules}. The smaller that distance, the less accuracy betrays the attack."


def _ranked(cell: Cell, key: str) -> list[tuple[float, str]]:
    return sorted((v, label) for label, rows in cell.rules.items() if (v := mean(rows, key)) is not None)


def _span(values: Sequence[float]) -> str:
    low, high = number(values[0]), number(values[-1])
    return low if low == high else f"{low} to {high}"


def facts(folder: Folder, cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Say what was run, on which data, what is favourable, and who attacks whom."""
    rows = folder.rows
    abouts = [folder.abouts[row.run] for row in rows]
    out = [("Data", _each(row.data for row in rows)), ("Groups compared", _each(map(_groups, abouts)))]
    out.append(("Favourable outcome", _each(map(_favourable, abouts))))
    out.append(("Clients", f"K = {_each(str(row.clients) for row in rows)}"))
    out.append(
        ("Attack, simulated", _each(_attack(c, folder) for c in cells if c.adversary) or "none: every client is honest")
    )
    out.append(("Rules", _each(label for c in cells for label in c.rules)))
    rounds = max(sum(not line.closing for line in folder.lines[row.run]) for row in rows)
    controls = len({row.control for row in rows if row.control})
    beside = ((controls, "adversary-free control"), (sum(a.pilot for a in folder.abouts.values()), "calibration pilot"))
    more = listed([counted(times, word) for times, word in beside if times])
    runs = f"{counted(len(rows) - controls, 'run')} of {counted(rounds, 'round')}"
    out.append(("Runs", f"{runs}, with {more}" if more else runs))
    return out


def _each(words: Iterable[str], between: str = "; ") -> str:
    return between.join(dict.fromkeys(words))


def _groups(about: About) -> str:
    if len(about.group_names) == 1:
        return "none: all rows are one group"
    names = listed([f"“{name}”" for name in about.group_names])
    return f"{about.sensitive.replace('&', ' & ')}: {names}" if about.sensitive else names


def _favourable(about: About) -> str:
    """What is good for the person; where that is label 0, the figures are about the other outcome."""
    if not about.favours:
        return f"none: {about.classes} classes"
    other = "; EOD and SPD are about label 1, the unfavourable outcome" if about.favourable_label == 0 else ""
    return (about.favourable or "not stated") + other


def _attack(cell: Cell, folder: Folder) -> str:
    who = listed([cell.about.name(k) for k in cell.about.adversaries])
    strength = f" (strength {cell.strength:g})" if cell.strength is not None else ""
    longer = folder.setting("adversary", "inflate")
    more = f", and multiplies its update by {longer:g}" if isinstance(longer, int | float) and longer != 1 else ""
    return f"{who} {ATTACKS.get(str(cell.adversary), f'plays {cell.adversary}')}{strength}{more}"
