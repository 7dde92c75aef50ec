"""What every chart is drawn with: colours, scales, ticks, signs, and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

BLUE, GREEN, PURPLE, SKY, ORANGE, VERMILION = "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#D55E00"
INK, GREY, PALE, SLATE = "#1a1a1a", "#8a8a8a", "#a9b4bd", "#5f5f5f"
HONEST = (BLUE, GREEN, PURPLE, SKY, ORANGE, SLATE)
GROUPS = (BLUE, ORANGE, GREEN, PURPLE, SKY, SLATE)
_FOR_TEXT = {SKY: "#1c7fb5", ORANGE: "#8f6300", PURPLE: "#a3447a", GREEN: "#00734f", VERMILION: "#b34700", PALE: SLATE}

TOP = 20
"""Room above the drawing for the name of its axis."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight map from figures ``low..high`` to places ``start..end`` on the paper."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a figure."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def number(value: float | None, digits: int = 3) -> str:
    """Write a figure for the eye, with a true minus sign; None and NaN are "undefined".

    Examples
    --------
    >>> number(0.12345), number(-1.5, 1), number(None), number(-0.0001)
    ('0.123', '−1.5', 'undefined', '0.000')
    """
    if value is None or math.isnan(value):
        return "undefined"
    text = f"{value:.{digits}f}"
    if text.startswith("-"):
        text = text[1:] if float(text) == 0 else "−" + text[1:]
    return text


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return round numbers in low..high, some ``about`` steps apart.

    Examples
    --------
    >>> ticks(0, 1), ticks(0, 0.34), ticks(0, 17)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.1, 0.2, 0.3], [0.0, 5.0, 10.0, 15.0])
    """
    rough = (high - low) / about
    scale = 10.0 ** math.floor(math.log10(rough))
    step = min((1, 2, 2.5, 5, 10), key=lambda m: abs(m * scale - rough)) * scale
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def tick(value: float) -> str:
    """Write the number of a tick, as short as it can be.

    Examples
    --------
    >>> tick(0.25), tick(-2.0), tick(0.0)
    ('0.25', '−2', '0')
    """
    return f"{value:g}".replace("-", "−")


def bounds(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Return ends of a scale that holds every value, with a little air at ends that are not given.

    Examples
    --------
    >>> bounds([0.25, 0.5], 0, 1), bounds([2.0], None, None)
    ((0, 1), (1.5, 2.5))
    """
    bottom = min([*values, *([low] if low is not None else [])], default=0.0)
    top = max([*values, *([high] if high is not None else [])], default=1.0)
    if top - bottom <= 1e-9 * max(1.0, abs(top)):  # one value, or values that differ by rounding only
        half = max(0.5, 1e-3 * abs(bottom))
        return (bottom if low is not None else bottom - half), bottom + (2 * half if low is not None else half)
    air = 0.06 * (top - bottom)
    return (bottom if bottom == low else bottom - air), (top if top == high else top + air)


def apart(places: Sequence[float], top: float, floor: float, gap: float = 12.5) -> list[float]:
    """Push sorted places of labels apart, then back up where they would fall below the floor.

    Examples
    --------
    >>> apart([10, 12, 40], 0, 100, gap=5), apart([98, 99], 0, 100, gap=5)
    ([10, 15, 40], [95, 100])
    """
    out: list[float] = []
    for y in places:
        out.append(max(y, out[-1] + gap) if out else max(y, top))
    limit = floor
    for i in reversed(range(len(out))):
        out[i] = min(out[i], limit)
        limit = out[i] - gap
    return out


def n(place: float) -> str:
    """Write a place on the paper, to a tenth of a unit."""
    return f"{place:.1f}".removesuffix(".0")


def trace(places: Sequence[tuple[float, float] | None], dots: bool = False) -> str:
    """Write the path through places, broken at None; as ``dots`` a line of no length at each, which round ends show.

    Steps are relative, which is much shorter, and taken between rounded places, so that no error adds up.

    Examples
    --------
    >>> trace([(1, 2), (3, 1.5), None, (4, 4)])
    'M1 2l2-.5M4 4'
    >>> trace([(1, 2), (3, 1.5)], dots=True)
    'M1 2h0m2-.5h0'
    """
    out, here = "", None
    for place in places:
        if place is not None:
            at = (round(10 * place[0]), round(10 * place[1]))
            if here is None:
                out += f"M{_tenths(at[0])} {_tenths(at[1])}".replace(" -", "-")
            else:
                step = f"{_tenths(at[0] - here[0])} {_tenths(at[1] - here[1])}".replace(" -", "-")
                out += ("m" if dots else "l") + step
            out += "h0" if dots else ""
        here = at if place is not None else (here if dots else None)
    return out


def _tenths(tenths: int) -> str:
    """Write tenths as a number, without the zeros that a path does not need."""
    text = f"{abs(tenths) / 10:.1f}".removesuffix(".0")
    text = text.removeprefix("0") if text != "0" else text
    return f"-{text}" if tenths < 0 else text


def tick_texts(at: Sequence[tuple[float, float, float]], anchor: str) -> str:
    """Write the numbers of ticks: (value, x, y) each; ``anchor``: middle or end."""
    texts = "".join(f'<text x="{n(x)}" y="{n(y)}">{tick(value)}</text>' for value, x, y in at)
    return f'<g class="tick" text-anchor="{anchor}">{texts}</g>'


def svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """Wrap parts as one picture that a screen reader announces as ``label``."""
    inside = "".join(parts)
    return f'<svg viewBox="0 0 {n(width)} {n(height)}" role="img" aria-label="{escape(label)}">{inside}</svg>'


def text(kind: str, x: float, y: float, words: str, anchor: str = "start", colour: str = "", longest: int = 60) -> str:
    """Write words; those that are too long are cut, and whole when the pointer rests on them."""
    short = words if len(words) <= longest else words[: longest - 1] + "…"
    whole = f"<title>{escape(words)}</title>" if short != words else ""
    more = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' fill="{for_text(colour)}"' if colour else "")
    return f'<text class="{kind}" x="{n(x)}" y="{n(y)}"{more}>{escape(short)}{whole}</text>'


def for_text(colour: str) -> str:
    """Return a darker tone of the light colours, so that text in them can be read on white."""
    return _FOR_TEXT.get(colour, colour)


def open_mark(x: float, y: float, colour: str, title: str = "") -> str:
    """Draw the sign of a figure that does not exist."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle class="open" cx="{n(x)}" cy="{n(y)}" r="3" stroke="{colour}">{inside}</circle>'


def sign(shape: int, x: float, y: float, colour: str, more: str = "") -> str:
    """Draw a disc (0), diamond (1), square (2) or triangle (3)."""
    corners = (
        f"M{n(x - 4)} {n(y)}a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        f"M{n(x)} {n(y - 5)}l5 5l-5 5l-5-5z",
        f"M{n(x - 3.6)} {n(y - 3.6)}h7.2v7.2h-7.2z",
        f"M{n(x)} {n(y - 4.8)}l5 8.6h-10z",
    )[shape % 4]
    return f'<path fill="{colour}"{more} d="{corners}"/>'


def shade(share: float) -> str:
    """Return the tone of a share in 0..1: dark blue for 0, nearly white for 1, in eight steps.

    Examples
    --------
    >>> shade(0), shade(0.03) == shade(0), shade(1)
    ('#00395a', True, '#e8f2f8')
    """
    step = round(8 * share) / 8
    ends = zip((0, 57, 90), (232, 242, 248), strict=True)
    return "#" + "".join(f"{round(dark + (light - dark) * step):02x}" for dark, light in ends)


def legend(group: int) -> str:
    """Draw the sign of a group for a line of text."""
    drawn = sign(group, 6, 6, GROUPS[group % len(GROUPS)])
    return f'<svg class="sign" viewBox="0 0 12 12" aria-hidden="true">{drawn}</svg>'
