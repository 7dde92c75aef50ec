"""Small charts as inline SVG: plain numbers in, a string out. Nothing is fetched.

Conventions of every chart: an undefined value is never drawn as a number; a line breaks there and an open mark stands
in its place. Colours are Okabe and Ito's, which people with colour-blindness can tell apart, and never the only sign:
lines are labelled at their end, the adversary is dashed, groups have shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import NamedTuple

from . import ink
from .ink import BLUE, TOP, Scale, n, number, text

__all__ = ["Dot", "Mark", "Series", "dots", "heat", "lines", "scatter", "silent"]

_WIDTH, _HEIGHT, _LEFT, _RIGHT = 424, 232, 36, 304
"""Size of a chart over rounds and where its drawing begins and ends; names of lines stand to the right of it."""
_BASE = _HEIGHT - 36
_SAID_UP_TO = 12
"""A chart says all values of a position while they are no more than these."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a value per x position of its chart, None = no value there.

    ``undefined``: x -> the value that was used instead, or None; drawn as open marks. ``square``: square points
    instead of round ones, to tell two lines of one colour apart. ``labelled``: named at its right end. ``errors``: one
    per position, or none at all; a value's error is drawn as a bar on both sides of it.
    """

    label: str
    values: Sequence[float | None]
    colour: str = BLUE
    dashed: bool = False
    width: float = 1.6
    square: bool = False
    labelled: bool = True
    undefined: Mapping[float, float | None] = field(default_factory=dict)
    errors: Sequence[float | None] = ()

    def bars(self) -> list[tuple[float, float] | None]:
        """Return the ends of the bar of every value that has an error."""
        pairs = zip(self.values, self.errors or [None] * len(self.values), strict=True)
        return [None if v is None or e is None else (v - e, v + e) for v, e in pairs]


class Dot(NamedTuple):
    """A point of a scatter plot; only labelled ones are named."""

    x: float
    y: float
    colour: str = BLUE
    faint: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """One figure on a scale, with an interval where there is one; a value of None is undefined.

    ``shape``: 0 disc, 1 diamond, 2 square, 3 triangle. ``title``: shown when the pointer rests on it.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    colour: str = BLUE
    shape: int = 0
    faint: bool = False
    title: str = ""


def lines(
    x: Sequence[float],
    series: Sequence[Series],
    *,
    label: str,
    x_label: str = "round",
    y_label: str = "",
    reference: tuple[float, str] | None = None,
    low: float | None = 0.0,
    high: float | None = None,
    hover: bool = True,
) -> str:
    """Draw values over rounds, one line a series, named at its right end.

    Parameters
    ----------
    x : positions, increasing
    series : each with one value (or None) per position; later ones lie above earlier ones
    label : what a screen reader says first; the first and last value of every series follow
    reference : a value and its name, drawn as a thin dotted line
    low, high : the scale always holds them; None leaves that end to the values
    hover : say all values of a position when the pointer rests there; a third of the chart's size

    Examples
    --------
    >>> svg = lines([1, 2, 3], [Series("bank <1>", [0.5, None, 0.25], undefined={2: None})], label="Weights")
    >>> svg.startswith("<svg"), "bank &lt;1&gt;" in svg, svg.count('class="open"')
    (True, True, 1)
    """
    drawn = [v for s in series for v in [*s.values, *s.undefined.values()] if v is not None]
    drawn += [end for s in series for bar in s.bars() if bar for end in bar]
    bottom, top = ink.bounds([*drawn, *([reference[0]] if reference else [])], low, high)
    lane = any(v is None for s in series for v in s.undefined.values())
    floor = _BASE - (14 if lane else 0)
    across = Scale(x[0] - 0.25, max(x[-1], x[0] + 1) + 0.15, _LEFT, _RIGHT)
    up = Scale(bottom, top, floor, TOP)
    whole = [t for t in ink.ticks(x[0], max(x[-1], x[0] + 1), 6) if t == int(t)]
    out = [_axes(across, up, whole or [x[0]], x_label, y_label)]
    if reference:
        out.append(f'<path class="ref" d="M{_LEFT} {n(up(reference[0]))}H{_RIGHT}"/>')
    for s in series:
        out.append(_line(x, s, across, up))
        out += [
            ink.open_mark(across(at), floor + 8 if used is None else up(used), s.colour)
            for at, used in s.undefined.items()
        ]
    if lane:
        out.append(text("lane", _RIGHT + 6, floor + 11, "undefined"))
    out += _end_labels(series, up, reference)
    out += _hovers(x, series, across) if hover else []
    spoken = "; ".join(_spoken(s) for s in series[:_SAID_UP_TO])
    return ink.svg(_WIDTH, _HEIGHT, f"{label}. {spoken}", out)


def scatter(
    points: Sequence[Dot],
    *,
    label: str,
    x_label: str,
    y_label: str,
    curve: Sequence[tuple[float, float]] = (),
    curve_label: str = "",
) -> str:
    """Draw points and, where there is one, the curve that they ought to lie on; the x scale holds at least 0..1.

    Examples
    --------
    >>> svg = scatter([Dot(0.2, 0.5, label="a")], label="w", x_label="s", y_label="w", curve=[(0, 0.6), (1, 0)])
    >>> svg.count('class="curve"'), "a: s 0.200, w 0.500" in svg
    (1, True)
    """
    bottom, top = ink.bounds([y for _, y, *_ in points] + [y for _, y in curve], 0.0, None)
    left, right = ink.bounds([x for x, *_ in points], 0.0, 1.0)
    across, up = Scale(left - 0.03, right + 0.03, _LEFT, _RIGHT), Scale(bottom, top, _BASE, TOP)
    out = [_axes(across, up, ink.ticks(left, right), x_label, y_label)]
    if curve:
        out.append(f'<path class="curve" d="{ink.trace([(across(a), up(b)) for a, b in curve])}"/>')
    look = lambda p: (not p.faint, p.colour)  # noqa: E731 (faint ones first, so that strong ones lie above)
    for (strong, colour), alike in groupby(sorted(points, key=look), key=look):
        path = ink.trace([(across(p.x), up(p.y)) for p in alike], dots=True)
        out.append(f'<path class="dot {"big" if strong else "faint"}" stroke="{colour}" d="{path}"/>')
    named = sorted((p for p in points if p.label), key=lambda p: -p.y)
    for y, p in zip(ink.apart([up(p.y) for p in named], TOP, _BASE), named, strict=True):
        out.append(text("name", across(p.x) + 9, y + 3.5, p.label, colour=p.colour, longest=20))
    out.append(text("small", _RIGHT, TOP - 8, curve_label, "end"))
    spoken = "; ".join(f"{p.label}: {x_label} {number(p.x)}, {y_label} {number(p.y)}" for p in named)
    return ink.svg(_WIDTH, _HEIGHT, f"{label}. {spoken}", out)


def dots(
    rows: Sequence[tuple[str, Sequence[Mark], str]],
    *,
    label: str,
    reference: tuple[float, str] | None = None,
    low: float | None = 0.0,
    high: float | None = None,
    spread: bool = False,
) -> str:
    """Draw one row per (name, marks, note at the right); a mark has its interval as a bar.

    Parameters
    ----------
    reference : a value and its name, drawn as a thin dotted line
    low, high : the scale always holds them; None leaves that end to the values
    spread : marks of a row stand below each other (groups) instead of on one line (seeds)

    Examples
    --------
    >>> svg = dots([("fairis", [Mark(0.1, 0.0, 0.3), Mark(None)], "n 12")], label="Weight", high=1.0)
    >>> svg.count('class="bar"'), svg.count('class="open"'), "n 12" in svg
    (1, 1, True)
    """
    longest = max(len(name) for name, *_ in rows)
    left, right = min(max(124, 6 * longest + 16), 216), _WIDTH - (76 if any(note for *_, note in rows) else 14)
    drawn = [v for _, marks, _ in rows for m in marks for v in (m.value, m.low, m.high) if v is not None]
    across = Scale(*ink.bounds([*drawn, *([reference[0]] if reference else [])], low, high), left, right)
    heights = [14 + 11 * (len(marks) if spread else 1) for _, marks, _ in rows]
    floor = TOP + sum(heights)
    at = ink.ticks(across.low, across.high, max(3, (right - left) // 56))
    out = [f'<path class="grid" d="{"".join(f"M{n(across(t))} {TOP}V{floor}" for t in at)}"/>']
    out.append(ink.tick_texts([(t, across(t), floor + 14) for t in at], "middle"))
    if reference:
        x = across(reference[0])
        out.append(f'<path class="ref" d="M{n(x)} {TOP - 4}V{floor}"/>')
        out.append(text("small", x, TOP - 8, reference[1], "end" if x > right - 30 else "middle"))
    y = TOP
    for (name, marks, note), height in zip(rows, heights, strict=True):
        middle = y + height / 2
        out.append(f'<path class="row" d="M{left} {y + height}H{right}"/>')
        out.append(text("rowname", left - 8, middle + 3.5, name, "end", longest=34))
        out.append(text("small", right + 12, middle + 3.5, note))
        missing = 0
        for i, m in enumerate(marks):
            at_y = y + 12.5 + 11 * i if spread else middle
            if m.value is None:
                out.append(ink.open_mark(left + 8 + 8 * missing, at_y, m.colour, m.title or "undefined"))
                missing += not spread
            else:
                out.append(_mark(m, m.value, across, at_y))
            if m.value is None and spread:
                out.append(text("lane", left + 16, at_y + 3.5, "undefined"))
        if missing:
            out.append(text("lane", left + 8 + 8 * missing, middle + 3.5, "undefined"))
        y += height
    spoken = "; ".join(f"{name}: {', '.join(number(m.value) for m in marks)}" for name, marks, _ in rows[:20])
    return ink.svg(_WIDTH, floor + 22, f"{label}. {spoken}", out)


def heat(names: Sequence[str], values: Sequence[Sequence[float | None]], *, label: str, row: str, column: str) -> str:
    r"""Draw a square matrix, dark where a value is low; rows and columns stand for the same ``names``, in their order.

    The diagonal has a frame, the least value of every row a diamond; an undefined cell has no tone and an open mark.

    Parameters
    ----------
    values : (K, K), rows by columns
    row, column : what a row and what a column is of its name, such as "records of" and "model of"

    Examples
    --------
    >>> svg = heat(["a", "b"], [[0.1, 0.3], [0.2, None]], label="Loss", row="records of", column="model of")
    >>> svg.count('class="least"'), svg.count('class="open"'), "records of a\nmodel of a: 0.100" in svg
    (2, 1, True)
    """
    left = min(max(124, 6 * max(map(len, names)) + 16), 216)
    side = min(32.0, (_WIDTH - left - 14) / len(names))
    known = [v for line in values for v in line if v is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    tones: dict[str, str] = {}
    signs, frames, hits = [], "", []
    out = [text("axis", left, TOP - 9, f"{column}: the same clients, left to right")]
    for i, (name, line) in enumerate(zip(names, values, strict=True)):
        y, least = TOP + side * i, min((v for v in line if v is not None), default=None)
        out.append(text("rowname", left - 8, y + side / 2 + 3.5, name, "end", longest=34))
        for j, v in enumerate(line):
            x = left + side * j
            square = f"M{n(x)} {n(y)}h{n(side)}v{n(side)}h-{n(side)}z"
            frames += square if i == j else ""
            if v is None:
                signs.append(ink.open_mark(x + side / 2, y + side / 2, ink.SLATE))
                continue
            tone = ink.shade((v - low) / (high - low) if high > low else 0.0)
            tones[tone] = tones.get(tone, "") + square
            if v == least:
                signs.append(ink.sign(1, x + side / 2, y + side / 2, ink.ORANGE, ' class="least"'))
        said = [f"{row} {name}", *(f"{column} {c}: {number(v)}" for c, v in zip(names, line, strict=True))]
        box = f'x="{n(left)}" y="{n(y)}" width="{n(side * len(names))}" height="{n(side)}"'
        hits.append(f'<rect class="hit" {box}><title>{escape(chr(10).join(said))}</title></rect>')
    out += [f'<path fill="{tone}" d="{path}"/>' for tone, path in sorted(tones.items())]
    out += [*signs, f'<path class="frame" d="{frames}"/>', *(hits if len(names) <= _SAID_UP_TO else [])]
    floor = TOP + side * len(names)
    if known:
        ends = (text("small", left, floor + 25, number(low)), text("small", left + 156, floor + 25, number(high)))
        steps = [(ink.shade(i / 8), n(left + 42 + 12 * i)) for i in range(9)]
        out += [*ends, *(f'<path fill="{tone}" d="M{x} {n(floor + 16)}h12v10h-12z"/>' for tone, x in steps)]
    said = [f"{row} {a}: {', '.join(map(number, line))}" for a, line in zip(names, values, strict=True)]
    return ink.svg(_WIDTH, floor + 32, f"{label}. {'; '.join(said[:_SAID_UP_TO])}", out)


def silent(page: str) -> str:
    """Return a page whose charts say nothing under the pointer; their text for screen readers stays.

    Examples
    --------
    >>> silent(lines([1, 2], [Series("a", [0.5, 0.7])], label="w")).count("<rect")
    0
    """
    return re.sub(r'<rect class="hit".*?</rect>', "", page, flags=re.DOTALL)


def _axes(across: Scale, up: Scale, x_ticks: Sequence[float], x_label: str, y_label: str) -> str:
    y_ticks = ink.ticks(up.low, up.high)
    out = [f'<path class="grid" d="{"".join(f"M{_LEFT} {n(up(t))}H{_RIGHT}" for t in y_ticks)}"/>']
    out.append(ink.tick_texts([(t, _LEFT - 5, up(t) + 3.5) for t in y_ticks], "end"))
    out.append(ink.tick_texts([(t, across(t), _BASE + 14) for t in x_ticks], "middle"))
    out.append(text("axis", (_LEFT + _RIGHT) / 2, _BASE + 30, x_label, "middle"))
    out.append(text("axis", 2, TOP - 9, y_label))
    return "".join(out)


def _line(x: Sequence[float], s: Series, across: Scale, up: Scale) -> str:
    places = [None if v is None else (across(at), up(v)) for at, v in zip(x, s.values, strict=True)]
    if not any(places):
        return ""
    dash = ' stroke-dasharray="5 3"' if s.dashed else ""
    out = f'<path class="line" stroke="{s.colour}" stroke-width="{n(s.width)}"{dash} d="{ink.trace(places)}"/>'
    stems = [(across(at), *map(up, bar)) for at, bar in zip(x, s.bars(), strict=True) if bar]
    if stems:
        path = "".join(f"M{n(at)} {n(low)}V{n(high)}" for at, low, high in stems)
        out += f'<path class="bar" stroke="{s.colour}" d="{path}"/>'
    if s.width > 1:  # a line of no length with round ends is a point: one path for all of them
        cap = ' stroke-linecap="square"' if s.square else ""
        size = n(2 * s.width + 1)
        out += f'<path class="dot" stroke="{s.colour}" stroke-width="{size}"{cap} d="{ink.trace(places, dots=True)}"/>'
    return out


def _mark(m: Mark, value: float, across: Scale, y: float) -> str:
    bar = ""
    if m.low is not None and m.high is not None:
        bar = f'<path class="bar" stroke="{m.colour}" d="M{n(across(m.low))} {n(y)}H{n(across(m.high))}"/>'
    drawn = ink.sign(m.shape, across(value), y, m.colour, ' opacity=".45"' if m.faint else "")
    return f"<g>{bar}{drawn}<title>{escape(m.title or number(value))}</title></g>"


def _end_labels(series: Sequence[Series], up: Scale, reference: tuple[float, str] | None) -> list[str]:
    ends = []
    for s in series:
        last = next((v for v in reversed(s.values) if v is not None), None)
        if s.labelled and last is not None:
            ends.append((up(last), "name strong" if s.dashed or s.width > 2 else "name", s.label, s.colour))
    if reference:
        ends.append((up(reference[0]), "small", reference[1], ink.SLATE))
    ends.sort(key=lambda e: e[0])
    places = ink.apart([y for y, *_ in ends], TOP, up.start)
    return [
        text(kind, _RIGHT + 6, y + 3.5, words, colour=colour, longest=18)
        for y, (_, kind, words, colour) in zip(places, ends, strict=True)
    ]


def _hovers(x: Sequence[float], series: Sequence[Series], across: Scale) -> list[str]:
    """Lay an invisible column over every position; it says all values there, while they are few."""
    half = (across(x[1]) - across(x[0])) / 2 if len(x) > 1 else 20
    out = []
    for i, at in enumerate(x):
        said = [f"{s.label}: {_said(s, i, at)}" for s in series if at in s.undefined or s.values[i] is not None]
        if said and len(said) <= _SAID_UP_TO:
            words = escape("\n".join([ink.tick(at), *said]))
            box = f'x="{n(across(at) - half)}" y="{TOP}" width="{n(2 * half)}" height="{_BASE - TOP}"'
            out.append(f'<rect class="hit" {box}><title>{words}</title></rect>')
    return out


def _said(s: Series, i: int, at: float) -> str:
    if at not in s.undefined:
        return number(s.values[i])
    used = s.undefined[at]
    return "undefined" if used is None else f"undefined ({number(used)} used)"


def _spoken(s: Series) -> str:
    shown = [v for v in s.values if v is not None]
    missing = f", {len(s.undefined)} undefined" if s.undefined else ""
    return f"{s.label}: {f'{number(shown[0])} to {number(shown[-1])}' if shown else 'no value'}{missing}"
