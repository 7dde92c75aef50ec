"""Charts as text: what is drawn, what is left open, and that labels do not fall on each other."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from equipoise.report import ink
from equipoise.report.plots import Dot, Mark, Series, dots, lines, scatter

values = st.lists(st.one_of(st.none(), st.floats(-2, 5, allow_nan=False)), min_size=1, max_size=12)


def points(path: str) -> list[tuple[float, float]]:
    """Follow a path of M (absolute) and l (relative) steps."""
    at, out = (0.0, 0.0), []
    for step, numbers in re.findall(r"([Ml])([^Ml]*)", path):
        a, b = (float(v) for v in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", numbers))
        at = (a, b) if step == "M" else (at[0] + a, at[1] + b)
        out.append(at)
    return out


@settings(max_examples=50, deadline=None)
@given(st.lists(values, min_size=1, max_size=4))
@example([[5e-324]])
@example([[1e300, 1e300]])
def test_lines_draw_each_value_once_and_break_at_gaps(columns):
    n = min(map(len, columns))
    series = [Series(f"c{i}", column[:n]) for i, column in enumerate(columns)]
    tree = ET.fromstring(lines(list(range(n)), series, label="x"))
    drawn = [e.get("d", "") for e in tree if e.get("class") == "line"]
    wanted = [s for s in series if any(v is not None for v in s.values)]
    assert len(drawn) == len(wanted)
    for path, s in zip(drawn, wanted, strict=True):
        assert len(points(path)) == sum(v is not None for v in s.values)
        stretches = re.sub("None", " ", "".join("None" if v is None else "v" for v in s.values)).split()
        assert path.count("M") == len(stretches)
        for (_, y), v in zip(points(path), [v for v in s.values if v is not None], strict=True):
            assert 19.9 <= y <= 196.1, v


def test_higher_values_stand_higher():
    tree = ET.fromstring(lines([1, 2, 3], [Series("a", [0.1, 0.5, 0.9])], label="x"))
    path = next(e.get("d", "") for e in tree if e.get("class") == "line")
    ys = [y for _, y in points(path)]
    assert ys == sorted(ys, reverse=True)


def test_undefined_is_an_open_mark_at_the_value_used_or_in_its_lane():
    svg = lines([1, 2], [Series("a", [None, 0.5], undefined={1.0: 1.0})], label="x", high=1.0)
    at_top = re.search(r'class="open" cx="[\d.]+" cy="([\d.]+)"', svg)
    assert at_top
    assert float(at_top[1]) == ink.TOP
    assert "undefined</text>" not in svg
    lane = lines([1, 2], [Series("a", [None, 0.5], undefined={1.0: None})], label="x", high=1.0)
    below = re.search(r'class="open" cx="[\d.]+" cy="([\d.]+)"', lane)
    base = re.findall(r"M36 ([\d.]+)H", lane)
    assert below
    assert float(below[1]) > max(map(float, base))
    assert "undefined</text>" in lane


def test_the_adversary_is_dashed_and_named():
    svg = lines([1, 2], [Series("bank 0, attacker", [0.1, 0.2], dashed=True, width=2.2)], label="x")
    assert svg.count("stroke-dasharray") == 1
    assert "bank 0, attacker</text>" in svg


def test_dots_have_bars_and_say_undefined():
    svg = dots([("a", [Mark(0.5, 0.25, 0.75), Mark(None, title="b: undefined, 0 of 0")], "")], label="x", spread=True)
    tree = ET.fromstring(svg)
    (bar,) = [e.get("d", "") for e in tree.iter("path") if e.get("class") == "bar"]
    start, end = (float(v) for v in re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", bar)[0])
    assert start < end
    assert "b: undefined, 0 of 0" in svg
    assert svg.count('class="open"') == 1


def test_scatter_with_and_without_curve():
    plain = scatter([Dot(0.5, 0.5)], label="x", x_label="s", y_label="w")
    assert 'class="curve"' not in plain
    ET.fromstring(scatter([Dot(0.5, 0.5, label="<a>")], label="x", x_label="s", y_label="w", curve=[(0, 1), (1, 0)]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(20, 180), min_size=1, max_size=12).map(sorted))
def test_labels_keep_their_distance_and_order(places):
    out = ink.apart(places, 20, 196)
    assert len(out) == len(places)
    assert all(b - a >= 12.5 - 1e-9 for a, b in pairwise(out))
    assert max(out) <= 196


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_ticks_are_inside_and_few(low, length):
    at = ink.ticks(low, low + length)
    assert 2 <= len(at) <= 8
    slack = 1e-6 * max(1.0, length)
    assert all(low - slack <= t <= low + length + slack for t in at)
