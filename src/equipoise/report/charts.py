"""The charts of one run: what each client got, what it was judged by, and what that did to accuracy and fairness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .. import metrics
from ..types import Array
from . import ink, plots
from .folder import About, Line, Row
from .plots import Dot, Mark, Series
from .words import JUDGES_NOBODY

NAMED_UP_TO = 12
"""With more clients than these the honest ones are thin grey lines without a name; attackers keep theirs."""

Values = list[float | None]
Holes = dict[float, float | None]


class Figure(NamedTuple):
    """A chart with its heading, which way is good, and a sentence on how to read it."""

    title: str
    way: str
    caption: str
    svg: str


def over_rounds(about: About, row: Row, rounds: Sequence[Line], control: Sequence[Line]) -> list[Figure]:
    """Return the charts over rounds of one run; those without records are left out."""
    trained = [line for line in rounds if not line.closing]
    ids = members(rounds)
    figures = [_weights(about, trained, ids)]
    if row.rule not in JUDGES_NOBODY:
        figures += [_scores(about, trained, ids), _against(about, row, trained, ids)]
    figures += [*_fairness(about, rounds, ids, control), _norms(about, trained, ids)]
    return [f for f in figures if f is not None]


def members(lines: Sequence[Line]) -> list[int]:
    """Return the ids of all clients that a run's rounds speak of, sorted."""
    return sorted({c for line in lines for c in [*line.asked, *line.clients, *line.measured.clients]})


def column(lines: Sequence[Line], name: str, client: int) -> Values:
    """Return a client's values of one of the lists beside ``clients``, None in rounds where it has none."""
    return [line.of(name, client) for line in lines]


def _styles(about: About, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Give every client its line, attackers last and so on top: dashed vermilion, the honest in colours."""
    honest = [k for k in ids if k not in about.adversaries]
    few = len(ids) <= NAMED_UP_TO
    out: dict[int, dict[str, Any]] = {}
    for i, k in enumerate(honest):
        if few:
            again = i >= len(ink.HONEST)  # a colour that comes twice is drawn with square points the second time
            width = 1.6 if len(honest) <= len(ink.HONEST) else 1.1
            out[k] = {
                "label": about.name(k),
                "colour": ink.HONEST[i % len(ink.HONEST)],
                "square": again,
                "width": width,
            }
        else:
            one_for_all = f"{len(honest)} honest clients" if i == 0 else about.name(k)
            out[k] = {"label": one_for_all, "colour": ink.PALE, "width": 0.8, "labelled": i == 0}
    for i, k in enumerate(k for k in ids if k in about.adversaries):
        out[k] = {"label": about.called(k), "colour": ink.VERMILION, "dashed": True, "width": 2.2, "square": i % 2 == 1}
    return out


def styled(
    about: About,
    ids: Sequence[int],
    values: Mapping[int, Values],
    holes: Mapping[int, Holes] = MappingProxyType({}),
    errors: Mapping[int, Values] = MappingProxyType({}),
) -> list[Series]:
    """Return the lines of clients, each in its style, with what is undefined and the errors where there are any."""
    return [
        Series(values=values[k], undefined=holes.get(k, {}), errors=errors.get(k, ()), **look)
        for k, look in _styles(about, ids).items()
    ]


def rounds_of(lines: Sequence[Line]) -> list[float]:
    """Return where lines stand on the axis of rounds."""
    return [float(line.round) for line in lines]


def _weights(about: About, trained: Sequence[Line], ids: Sequence[int]) -> Figure | None:
    if not any(line.weights for line in trained):
        return None
    svg = plots.lines(
        rounds_of(trained),
        styled(about, ids, {k: column(trained, "weights", k) for k in ids}),
        label="Weight of each client in every round",
        y_label="weight",
        reference=(1 / len(ids), "equal share 1/K"),
        hover=not about.control_of,
    )
    caption = "Each client's share of the aggregate. A gap: no valid reply, or the model was kept."
    return Figure("Weights over rounds", "attacker: low is good" if about.adversaries else "", caption, svg)


def _scores(about: About, trained: Sequence[Line], ids: Sequence[int]) -> Figure | None:
    """Scores over the rounds; where the raw score is undefined the line breaks and an open mark shows what was used."""
    if not any(line.scores for line in trained):
        return None
    values: dict[int, Values] = {}
    holes: dict[int, Holes] = {}
    for k in ids:
        used = column(trained, "scores", k)
        holes[k] = {float(x.round): v for x, v in zip(trained, used, strict=True) if x.undefined_score(k)}
        values[k] = [None if x.undefined_score(k) else v for x, v in zip(trained, used, strict=True)]
    series = styled(about, ids, values, holes)
    svg = plots.lines(
        rounds_of(trained),
        series,
        label="Score of each client in every round",
        y_label="score",
        high=1.0,
        hover=not about.control_of,
    )
    caption = "What the rule judged each client by. Open mark: undefined, drawn at the value used instead."
    return Figure("Scores over rounds", "high is bad", caption, svg)


def _against(about: About, row: Row, trained: Sequence[Line], ids: Sequence[int]) -> Figure | None:
    """Weights against scores: all rounds faint, the last one strong and named."""
    scored = [line for line in trained if line.scores and line.weights]
    if not scored:
        return None
    styles, last = _styles(about, ids), scored[-1]
    shown = scored if len(scored) * len(ids) <= 2000 else [last]
    told = _worth_naming(last)
    points = []
    for line in shown:
        for k in line.clients:
            s, w = line.of("scores", k), line.of("weights", k)
            if s is not None and w is not None:
                named = line is last and (k in about.adversaries or k in told)
                points.append(Dot(s, w, styles[k]["colour"], line is not last, styles[k]["label"] if named else ""))
    curve = _curve(row, last)
    svg = plots.scatter(
        points,
        label="Weight against score",
        x_label="score",
        y_label="weight",
        curve=curve,
        curve_label=f"line: the rule in round {last.round}" if curve else "",
    )
    caption = f"Strong: round {last.round}; faint: the rounds before. "
    caption += (
        "The line is the rule itself." if curve else "This rule has no single curve: it looks at more than the score."
    )
    return Figure("Weight against score", "the worse the score, the less weight", caption, svg)


def _worth_naming(line: Line) -> set[int]:
    """Return all clients while they are few, else the one with the most and the one with the least weight."""
    by_weight = sorted(line.clients, key=lambda k: line.of("weights", k))
    return set(by_weight if len(by_weight) <= 5 else (by_weight[0], by_weight[-1]))


def _curve(row: Row, line: Line) -> list[tuple[float, float]]:
    """Return w = (eta - s) / sum_j (eta - s_j) of one round, if the recorded weights lie on it."""
    eta = {"fairis": row.parameters.get("eta"), "ala": 1.0}.get(row.rule)
    scores, weights = np.array(line.scores, float), np.array(line.weights, float)
    if not isinstance(eta, int | float) or not np.isfinite(scores).all() or not (eta - scores).sum() > 0:
        return []
    total = float((eta - scores).sum())
    fits = np.allclose(weights, (eta - scores) / total, atol=1e-6)
    return [(0.0, eta / total), (1.0, (eta - 1) / total)] if fits else []


def _moment(lines: Sequence[Line], about: About) -> str | None:
    """Choose the measured moment that is shown over the rounds: the test pool where it was measured."""
    seen = {m for line in lines for m in line.measured.counts}
    return next((m for m in ("received@test", about.final_moment, "received@held", "received") if m in seen), None)


def measured(lines: Sequence[Line], moment: str) -> list[tuple[int, list[int], Array]]:
    """Return (round, client ids, counts (K, G, 4)) of every round in which the moment was measured."""
    found = [(x.round, x.measured.clients, x.measured.counts.get(moment)) for x in lines]
    return [(t, who, np.array(counts, np.int64)) for t, who, counts in found if counts]


def where(moment: str) -> str:
    """Say in words on whose rows a moment was measured.

    Examples
    --------
    >>> where("received@test"), where("trained")
    ('on the global test pool', "on each client's own training rows")
    """
    views = {"test": "on the global test pool", "held": "on each client's held-out rows"}
    return views.get(moment.partition("@")[2], "on each client's own training rows")


def _fairness(about: About, lines: Sequence[Line], ids: Sequence[int], control: Sequence[Line]) -> list[Figure]:
    moment = _moment(lines, about)
    if moment is None:
        return []
    accuracy = _measure(about, lines, ids, control, moment, metrics.accuracy, "accuracy")
    same = " All clients hold the same model here, so their lines coincide." if _one_model(lines, moment) else ""
    caption = f"Measured {where(moment)}. Black: all clients' counts added up, not a mean."
    caption += " Grey: the same without the attack." if control else ""
    gap = []
    if about.favours:
        eod = _measure(about, lines, ids, control, moment, metrics.equal_opportunity_difference, "EOD")
        gap = [Figure("EOD over rounds", "low is good", caption + same, eod)]
    return [Figure("Accuracy over rounds", "high is good", caption + same, accuracy), *gap]


def _one_model(lines: Sequence[Line], moment: str) -> bool:
    """Say whether every client's counts on the shared test pool are the same in every round."""
    tables = measured(lines, moment)
    return moment.endswith("@test") and all(len(c) > 1 and (c == c[:1]).all() for _, _, c in tables)


def _measure(
    about: About,
    lines: Sequence[Line],
    ids: Sequence[int],
    control: Sequence[Line],
    moment: str,
    metric: Callable[[Any], Array],
    name: str,
) -> str:
    """Draw a metric over rounds: of every client, pooled, and pooled in the adversary-free control."""
    before = 1 if moment.startswith("received") else 0  # what arrives in round t has t - 1 rounds of training behind it
    values: dict[int, Values] = {k: [] for k in ids}
    holes: dict[int, Holes] = {k: {} for k in ids}
    x: list[float] = []
    pooled: Values = []
    for t, who, counts in measured(lines, moment):
        x.append(float(t - before))
        pooled.append(_plain(metric(counts.sum(0))))
        here = dict(zip(who, map(_plain, metric(counts)), strict=True))
        for k in ids:
            values[k].append(here.get(k))
            if k in here and here[k] is None:
                holes[k][x[-1]] = None
    benign = {float(t - before): _plain(metric(counts.sum(0))) for t, _, counts in measured(control, moment)}
    grey = [Series("no attack, pooled", [benign.get(at) for at in x], ink.GREY, width=1.0)] if benign else []
    missing: Holes = {at: None for at, v in zip(x, pooled, strict=True) if v is None}
    black = Series("pooled", pooled, ink.INK, width=2.6, undefined=missing)
    return plots.lines(
        x,
        [*grey, *styled(about, ids, values, holes), black],
        label=f"{name} over rounds {where(moment)}",
        x_label="rounds of training behind the model",
        y_label=name,
        low=0.0 if name == "EOD" else None,
        hover=not about.control_of,
    )


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _norms(about: About, trained: Sequence[Line], ids: Sequence[int]) -> Figure | None:
    if not any(line.norms for line in trained):
        return None
    clip = next((line.clip_norm for line in trained if line.clip_norm is not None), None)
    svg = plots.lines(
        rounds_of(trained),
        styled(about, ids, {k: column(trained, "norms", k) for k in ids}),
        label="Length of each client's update in every round",
        y_label="length of the update",
        reference=(clip, f"clip C = {ink.number(clip, 2)}") if clip is not None else None,
        hover=not about.control_of,
    )
    caption = "Updates were not clipped."
    if clip is not None:
        hits, sent = sum(sum(line.clipped or []) for line in trained), sum(len(line.clients) for line in trained)
        caption = (
            f"Longer updates are shortened to C: {hits} of {sent} were. No client moves the model by more than w·C."
        )
    return Figure("Update lengths", "", caption, svg)


def groups(about: About, lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return rates of each group under the final models, pooled and per client, with n and Wilson intervals.

    None where nothing was measured, or all rows are one group.
    """
    moment = about.final_moment or _moment(lines, about)
    tables = measured(lines, moment) if moment else []
    if not moment or not tables or len(about.group_names) < 2:
        return None
    _, who, counts = tables[-1]
    # On the test pool every client's model decides about the same persons: they count once, not K times.
    pooled = counts.sum(0) / (len(who) if moment.endswith("@test") else 1)
    shown = _worst_first(about, who, counts)
    rows = [("pooled", pooled)]
    rows += [(about.called(k), counts[who.index(k)]) for k in shown]
    rates = (
        ("True positive rate", "equal is fair (EOD)", (0,), (0, 3)),
        ("Selection rate", "equal is fair (SPD)", (0, 1), (0, 1, 2, 3)),
        ("Accuracy", "right is good", (0, 2), (0, 1, 2, 3)),
    )
    figures = []
    for title, way, hits, of in rates if about.favours else rates[-1:]:
        drawn = [_rates(about, name, table[:, hits].sum(-1), table[:, of].sum(-1)) for name, table in rows]
        svg = plots.dots(drawn, label=f"{title} by group", high=1.0, spread=True)
        figures.append(Figure(f"{title} by group", way, "", svg))
    sizes = np.rint(pooled).astype(int)
    of_one = ", {} with label 1" if about.favours else ""
    return {
        "where": where(moment),
        "sizes": [
            (name, ink.legend(g), f"n = {sizes[g].sum()}" + of_one.format(sizes[g, 0] + sizes[g, 3]))
            for g, name in enumerate(about.group_names)
        ],
        "figures": figures,
        "left_out": len(who) - len(shown),
        "label": about.favourable_label,
        "favourable": about.favourable,
    }


def _rates(about: About, name: str, hits: Array, trials: Array) -> tuple[str, list[Mark], str]:
    """Return a row of the chart: one mark a group, its interval, and the gap between groups."""
    low, high = metrics.wilson(hits, trials)
    rate = np.divide(hits, trials, out=np.full(len(trials), np.nan), where=trials > 0)
    marks = []
    for g, group in enumerate(about.group_names):
        words = f"{group}: undefined, 0 of 0"
        if trials[g] > 0:
            interval = f"95 % interval {ink.number(low[g])} to {ink.number(high[g])}"
            words = f"{group}: {ink.number(rate[g])}, {interval}, n = {trials[g]:.0f}"
        colour = ink.GROUPS[g % len(ink.GROUPS)]
        marks.append(Mark(_plain(rate[g]), _plain(low[g]), _plain(high[g]), colour, g, title=words))
    return name, marks, f"gap {ink.number(_plain(metrics.gap(rate)))}" if len(marks) > 1 else ""


def _worst_first(about: About, who: Sequence[int], counts: Array) -> list[int]:
    """Attackers first, then the honest by EOD, or by accuracy without one; worst first, undefined last; a dozen."""
    bad = metrics.equal_opportunity_difference(counts) if about.favours else 1 - metrics.accuracy(counts)
    of = dict(zip(who, bad, strict=True))
    order = sorted(who, key=lambda k: (k not in about.adversaries, not np.isfinite(of[k]), -np.nan_to_num(of[k]), k))
    return order[:NAMED_UP_TO]
