"""A figure with all that belongs to it: definition, groups used and left out, the extremes, and one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checks import BadInput, Undefined
from ..types import Array
from .counts import COLUMNS, as_table
from .named import ANATOMY, Anatomy, Metric
from .rates import FRACTIONS, Rate, false_negative_rate, false_positive_rate
from .reductions import gap, ratio, worst

__all__ = ["Figure", "definition", "explain"]

_LOW_IS_GOOD = frozenset({false_positive_rate, false_negative_rate})
_WORDS: Mapping[Callable[[Any], Array], str] = {gap: "max - min", ratio: "min / max", worst: "min"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of one table, explained.

    ``value``: the number, or ``Undefined`` with the reason. ``rates``: rate -> value per group, None where undefined.
    ``used``: groups in which all rates exist; ``left_out``: the others, each with its reason and counts. ``worst`` and
    ``best``: the groups at the two ends (of error rates the highest is worst), None where there is no comparison.
    """

    metric: str
    definition: str
    value: float | Undefined
    sentence: str
    rates: dict[str, dict[str, float | None]] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    left_out: tuple[Undefined, ...] = ()
    worst: str | None = None
    best: str | None = None

    @property
    def number(self) -> float | None:
        """The value, None where it is undefined."""
        return None if isinstance(self.value, Undefined) else self.value

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON: the value is null, with a reason, where it is undefined."""
        undefined = {"reason": self.value.reason} if isinstance(self.value, Undefined) else {}
        return {
            "metric": self.metric,
            "definition": self.definition,
            "value": self.number,
            **undefined,
            "rates": self.rates,
            "groups_used": list(self.used),
            "groups_left_out": [u.to_json() for u in self.left_out],
            "worst": self.worst,
            "best": self.best,
            "sentence": self.sentence,
        }


def definition(metric: Metric) -> str:
    """Say how a metric is computed from counts.

    Examples
    --------
    >>> from equipoise.metrics import equalized_odds_difference
    >>> definition(equalized_odds_difference)
    'larger of: max - min over groups of tp / (tp + fn); max - min over groups of fp / (fp + tn)'
    """
    anatomy = ANATOMY.get(metric)
    if anatomy is None:
        return (metric.__doc__ or metric.__name__).strip().split("\n")[0]
    parts = [f"{_WORDS[anatomy.reduction]} over groups of {FRACTIONS[rate].formula}" for rate in anatomy.rates]
    return f"{anatomy.join} of: {'; '.join(parts)}" if anatomy.join else parts[0]


def explain(metric: Metric, counts: Any, groups: Sequence[str]) -> Figure:
    """Explain a metric of one table.

    Parameters
    ----------
    metric : (G, 4) -> number, such as one of ``metrics.named``
    counts : (G, 4), columns tp fp tn fn
    groups : names of the G groups

    Examples
    --------
    >>> from equipoise.metrics import equal_opportunity_difference
    >>> table = [[2, 0, 1, 0], [1, 1, 0, 1], [0, 1, 2, 0]]
    >>> figure = explain(equal_opportunity_difference, table, ["a", "b", "c"])
    >>> figure.value, figure.worst, figure.used
    (0.5, 'b', ('a', 'b'))
    >>> print(figure.sentence)
    true positive rate of a is 0.500 above b: 1.000 (2 of 2) against 0.500 (1 of 2); left out: c (no positives)
    >>> explain(equal_opportunity_difference, table[1:], ["b", "c"]).to_json()["reason"]
    'fewer than two groups have a true positive rate (c: no positives, 0 of 3 rows)'
    """
    table = as_table(counts)
    if table.shape != (len(groups), 4):
        raise BadInput(f"the table has shape {table.shape} for {len(groups)} groups; pass one row of counts per group")
    value = float(metric(table))
    anatomy = ANATOMY.get(metric)
    if anatomy is None:
        return _plain(metric, table, value)
    by_rate = {rate: rate(table) for rate in anatomy.rates}
    ok = np.all([~np.isnan(v) for v in by_rate.values()], 0)
    shown = {_name(rate): {g: _none(x) for g, x in zip(groups, v, strict=True)} for rate, v in by_rate.items()}
    left_out = tuple(_missing(anatomy.rates, table[i], groups[i]) for i in np.flatnonzero(~ok).tolist())
    used = tuple(groups[i] for i in np.flatnonzero(ok).tolist())
    outside = f"; left out: {_listed([f'{u.group} ({u.reason})' for u in left_out])}" if left_out else ""
    if np.isnan(value):
        reason = _why(anatomy, by_rate, left_out)
        sentence = f"{_name(metric)} is undefined: {reason}"
        return Figure(_id(metric), definition(metric), Undefined(reason), sentence, shown, used, left_out)
    # Of several rates the one with the wider gap is told.
    rate = max(anatomy.rates, key=lambda r: -1.0 if np.isnan(gap(by_rate[r])) else float(gap(by_rate[r])))
    low, high = int(np.nanargmin(by_rate[rate])), int(np.nanargmax(by_rate[rate]))
    told = _tell(anatomy, rate, table, groups, low, high, value)
    ends = (groups[high], groups[low]) if rate in _LOW_IS_GOOD else (groups[low], groups[high])
    alike = by_rate[rate][low] == by_rate[rate][high]
    bad, good = (None, None) if alike else ends
    if anatomy.reduction is worst:
        bad = ends[0]
    return Figure(_id(metric), definition(metric), value, told + outside, shown, used, left_out, bad, good)


def _plain(metric: Metric, table: Array, value: float) -> Figure:
    if np.isnan(value):
        reason = "no rows" if not table.sum() else "0/0"
        return Figure(_id(metric), definition(metric), Undefined(reason), f"{_name(metric)} is undefined: {reason}")
    rows = int(table.sum())
    return Figure(_id(metric), definition(metric), value, f"{_name(metric)} is {value:.3f} over {rows} rows")


def _tell(anatomy: Anatomy, rate: Rate, table: Array, groups: Sequence[str], low: int, high: int, value: float) -> str:
    of = FRACTIONS[rate]
    hits, trials, v = of.hits(table), of.trials(table), of(table)
    at_low, at_high = (f"{v[i]:.3f} ({hits[i]} of {trials[i]})" for i in (low, high))
    if anatomy.reduction is worst:
        return f"{_name(rate)} is lowest in {groups[low]}: {at_low}"
    if v[low] == v[high]:
        return f"{_name(rate)} is {v[low]:.3f} in every group compared"
    against = f"{at_high} against {at_low}"
    if anatomy.reduction is ratio:
        return f"{_name(rate)} of {groups[low]} is {value:.3f} times that of {groups[high]}: {at_low} against {at_high}"
    mean = f"mean of the gaps is {value:.3f}; the wider one: " if anatomy.join == "mean" else ""
    return f"{mean}{_name(rate)} of {groups[high]} is {v[high] - v[low]:.3f} above {groups[low]}: {against}"


def _why(anatomy: Anatomy, by_rate: dict[Rate, Array], left_out: tuple[Undefined, ...]) -> str:
    for rate, v in by_rate.items():
        few = (~np.isnan(v)).sum() < (1 if anatomy.reduction is worst else 2)
        if few:
            number = "no group has" if anatomy.reduction is worst else "fewer than two groups have"
            empty = FRACTIONS[rate].empty
            lacking = [u for u in left_out if empty in u.reason] or left_out
            told = _listed([f"{u.group}: {empty}, 0 of {u.counts['n']} rows" for u in lacking])
            return f"{number} a {_name(rate)}" + (f" ({told})" if told else "")
    return f"the {_name(next(iter(by_rate)))} is 0 in every group, and 0/0 is no ratio"


def _missing(rates: Sequence[Rate], row: Array, group: str) -> Undefined:
    lacking = [FRACTIONS[rate] for rate in rates if np.isnan(rate(row))]
    cells = sorted({c for f in lacking for c in f.whole})
    reason = "no rows" if not row.sum() else " and ".join(dict.fromkeys(f.empty for f in lacking))
    return Undefined(reason, group, {**{COLUMNS[c]: int(row[c]) for c in cells}, "n": int(row.sum())})


def _listed(words: Sequence[str], most: int = 5) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _id(function: Any) -> str:
    return str(function.__name__)


def _name(function: Any) -> str:
    return _id(function).replace("_", " ")


def _none(x: float) -> float | None:
    return None if np.isnan(x) else float(x)
