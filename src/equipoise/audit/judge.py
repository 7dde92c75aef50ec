"""Counts -> findings: every figure with its interval, the limit it is held to, and a verdict of three values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import BadInput, above, between, one_of
from ..metrics import named, rates
from ..metrics.counts import COLUMNS
from ..metrics.explain import definition, explain
from ..metrics.intervals import Interval, limits, resample, wilson
from ..metrics.named import HIGH_IS_GOOD, Metric
from ..metrics.rates import FRACTIONS
from ..metrics.reductions import coefficient_of_variation, gap, highest, jain, mean, worst
from ..types import Array

WITHIN, OUTSIDE, UNSURE = "within limits", "outside", "not enough evidence"
VERDICTS = (OUTSIDE, UNSURE, WITHIN)
"""Worst first."""

RULE = (
    "within limits: the whole interval lies on the good side of the limit; outside: all of it lies on the bad side; "
    "not enough evidence: the interval holds the limit, or the figure or its interval does not exist. Each interval "
    "holds by itself, not all of them jointly. The verdict of the audit is the worst one of the pooled population, "
    "over attributes and their combination; clients have verdicts of their own beside it."
)

FEW_ROWS, FEW_POSITIVES = 30, 5


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a metric may go, and who says so. Bounds from below where high is good, from above elsewhere."""

    metric: str
    value: float
    origin: str

    @property
    def sign(self) -> str:
        """``>=`` or ``<=``."""
        return ">=" if getattr(named, self.metric) in HIGH_IS_GOOD else "<="

    @property
    def words(self) -> str:
        """Such as ``four fifths ratio >= 0.8``."""
        return f"{self.metric.replace('_', ' ')} {self.sign} {self.value:g}"


_CUSTOM = "a custom of practice, not a law; state your own with --limit"
DEFAULT_LIMITS = (
    Limit("four_fifths_ratio", 0.8, "four-fifths rule, US Uniform Guidelines on Employee Selection, 29 CFR 1607.4(D)"),
    Limit("statistical_parity_difference", 0.1, _CUSTOM),
    Limit("equal_opportunity_difference", 0.1, _CUSTOM),
    Limit("equalized_odds_difference", 0.1, _CUSTOM),
)


def parse_limits(words: Sequence[str]) -> tuple[Limit, ...]:
    """Return the default limits with those of the user in their places; ``metric=none`` takes one away.

    Examples
    --------
    >>> [limit.words for limit in parse_limits(["equalized_odds_difference=none", "worst_group_accuracy=0.7"])][2:]
    ['equal opportunity difference <= 0.1', 'worst group accuracy >= 0.7']
    """
    chosen = {limit.metric: limit for limit in DEFAULT_LIMITS}
    for word in words:
        metric, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            raise BadInput(f"limit {word!r} has no value; write metric=value, such as four_fifths_ratio=0.8")
        one_of("metric", metric, named.__all__)
        if value.lower() == "none":
            chosen.pop(metric, None)
            continue
        try:
            number = float(value)
        except ValueError:
            raise BadInput(f"limit {word!r} is no number; write metric=value, such as {metric}=0.1") from None
        chosen[metric] = Limit(metric, between(f"limit of {metric}", number, 0, 1), "stated by the user")
    return tuple(chosen.values())


def verdict(interval: Interval, limit: Limit) -> str:
    """Hold an interval against a limit; see ``RULE``.

    Examples
    --------
    >>> limit = Limit("statistical_parity_difference", 0.1, "an example")
    >>> [verdict(Interval(*ends), limit) for ends in ((0.0, 0.1), (0.11, 0.2), (0.05, 0.2), (None, None))]
    ['within limits', 'outside', 'not enough evidence', 'not enough evidence']
    """
    if interval.low is None or interval.high is None:
        return UNSURE
    high_is_good = limit.sign == ">="
    if interval.low >= limit.value if high_is_good else interval.high <= limit.value:
        return WITHIN
    return OUTSIDE if (interval.high < limit.value if high_is_good else interval.low > limit.value) else UNSURE


def audit_counts(
    counts: Any,
    attributes: Mapping[str, Sequence[str]],
    clients: Sequence[str] | None = None,
    *,
    bounds: Sequence[Limit] = DEFAULT_LIMITS,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Audit counts: per client, pooled and per group; strict JSON, worst first, recomputable from its own counts.

    Parameters
    ----------
    counts : (K, G, 4) integers, columns tp fp tn fn; G = product of the numbers of levels
    attributes : sensitive attribute -> its levels; groups are all combinations, the last attribute running fastest
    clients : K names; None when there is one table only
    bounds : limits to hold the figures against
    level, replicates, seed : of the intervals

    Returns
    -------
    JSON-able dict: verdict, findings (worst first), pooled (one view per attribute, and of their combination),
    clients (worst first), across_clients, remarks, limits, definitions, settings
    """
    table = np.asarray(counts)
    sizes = [len(levels) for levels in attributes.values()]
    names = list(clients) if clients is not None else ["all"]
    if table.shape != (len(names), int(np.prod(sizes)), 4):
        raise BadInput(f"counts have shape {table.shape} for {len(names)} clients and {sizes} levels; pass (K, G, 4)")
    if (table < 0).any():
        raise BadInput("a count is negative; pass numbers of rows")
    between("level", level, 0.5, 0.9999, "the coverage of an interval")
    above("replicates", replicates, 99, "limits need the tails")
    between("replicates", replicates, 100, 100_000, "they are all held in memory")
    settings = _Settings(bounds, level, replicates, seed)
    cells = table.reshape(len(names), *sizes, 4)
    views: list[tuple[str, list[str], Array]] = []
    for i, (name, levels) in enumerate(attributes.items()):
        others = tuple(1 + j for j in range(len(sizes)) if j != i)
        views.append((name, list(levels), cells.sum(others)))
    if len(attributes) > 1:
        groups = [""]
        for levels in attributes.values():
            groups = [f"{a}&{b}" if a else b for a in groups for b in levels]
        views.append((" & ".join(attributes), groups, table))
    pooled = [_view(name, groups, t.sum(0), settings, all_metrics=True) for name, groups, t in views]
    name, groups, last = views[-1]
    each = [
        {"client": client, **_view(name, groups, t, settings, all_metrics=False)}
        for client, t in (zip(names, last, strict=True) if clients is not None else ())
    ]
    each.sort(key=lambda c: (VERDICTS.index(c["verdict"]), -_excess(c), c["client"]))
    findings = [
        {
            "client": where,
            "attribute": view["attribute"],
            **{k: f[k] for k in ("metric", "verdict", "excess", "sentence")},
        }
        for where, view in [*((None, v) for v in pooled), *((c["client"], c) for c in each)]
        for f in view["figures"]
        if f["limit"] is not None
    ]
    findings.sort(key=lambda f: (VERDICTS.index(f["verdict"]), f["client"] is not None, -_or_low(f["excess"])))
    return {
        "verdict": _worst([v["verdict"] for v in pooled]),
        "verdict_rule": RULE,
        "clients_by_verdict": {v: sum(c["verdict"] == v for c in each) for v in VERDICTS},
        "limits": [{"metric": b.metric, "sign": b.sign, "value": b.value, "origin": b.origin} for b in bounds],
        "definitions": {m: definition(getattr(named, m)) for m in named.__all__}
        | {rate.__name__: fraction.formula for rate, fraction in FRACTIONS.items()},
        "settings": {
            "level": level,
            "rates": "Wilson score interval",
            "gaps": "bootstrap of signed differences from counts; see equipoise.metrics.bootstrap",
            "replicates": replicates,
            "seed": seed,
        },
        "columns": list(COLUMNS),
        "findings": findings,
        "remarks": _remarks(pooled[-1], each),
        "pooled": pooled,
        "across_clients": _across(pooled[-1], last) if clients is not None else [],
        "clients": each,
    }


@dataclass(frozen=True, slots=True)
class _Settings:
    bounds: Sequence[Limit]
    level: float
    replicates: int
    seed: int


def _view(attribute: str, groups: list[str], table: Array, settings: _Settings, all_metrics: bool) -> dict[str, Any]:
    """One table, all that can be said of it; ``all_metrics``: intervals for those without a limit too."""
    drawn = resample(table, settings.replicates, settings.seed)
    bounds = {bound.metric: bound for bound in settings.bounds}
    figures = []
    for name in named.__all__:
        metric: Metric = getattr(named, name)
        bound = bounds.get(name)
        interval = None
        if bound is not None or all_metrics:
            interval = _interval(metric, table, drawn, settings.level)
        figures.append(_figure(metric, table, groups, interval, bound, settings.level))
    return {
        "attribute": attribute,
        "verdict": _worst([f["verdict"] for f in figures if f["limit"] is not None]),
        "rows": int(table.sum()),
        "counts": table.sum(0).tolist(),
        "groups": _groups(groups, table, settings.level),
        "figures": figures,
    }


def _interval(metric: Metric, table: Array, drawn: Array, level: float) -> Interval:
    if metric is not named.accuracy:
        return limits(metric, table, drawn, level)
    fraction, pooled = FRACTIONS[rates.accuracy], table.sum(0)
    low, high = wilson(fraction.hits(pooled), fraction.trials(pooled), level)
    return Interval(None, None, reason="no rows") if np.isnan(low) else Interval(float(low), float(high))


def _figure(
    metric: Metric, table: Array, groups: list[str], interval: Interval | None, bound: Limit | None, level: float
) -> dict[str, Any]:
    figure = explain(metric, table, groups)
    out = figure.to_json()
    del out["definition"], out["rates"]  # both stand in the audit once, not once per figure
    said = out["sentence"]
    if interval is not None:
        out["interval"] = {"low": interval.low, "high": interval.high, "undefined_replicates": interval.undefined}
        if interval.reason:
            out["interval"]["reason"] = interval.reason
        if interval.low is not None:
            said += f"; {level:.0%} interval {interval.low:.3f} to {interval.high:.3f}"
        elif figure.number is not None:
            said += f"; no interval: {interval.reason}"
    out["limit"] = out["verdict"] = out["excess"] = None
    if bound is not None and interval is not None:
        out["limit"] = bound.value
        out["verdict"] = verdict(interval, bound)
        if figure.number is not None:
            out["excess"] = (bound.value - figure.number) * (1 if bound.sign == ">=" else -1)
        said += f"; limit {bound.sign} {bound.value:g}: {out['verdict']}"
    out["sentence"] = said
    return out


def _groups(groups: list[str], table: Array, level: float) -> list[dict[str, Any]]:
    """Per group: counts, rates with Wilson limits, and what makes it too small to lean on."""
    values = {}
    for rate, fraction in FRACTIONS.items():
        hits, trials = fraction.hits(table), fraction.trials(table)
        low, high = wilson(hits, trials, level)
        values[rate.__name__] = [a.tolist() for a in (fraction(table), low, high, hits, trials)]
    out = []
    for g, (group, row) in enumerate(zip(groups, table.tolist(), strict=True)):
        n, positives = sum(row), row[0] + row[3]
        warnings = [f"{n} rows (fewer than {FEW_ROWS})"] if n < FEW_ROWS else []
        if positives < FEW_POSITIVES:
            warnings.append(f"{positives} positives (fewer than {FEW_POSITIVES})")
        shown: dict[str, Any] = {}
        for (rate, fraction), (v, low, high, hits, trials) in zip(FRACTIONS.items(), values.values(), strict=True):
            ends = (
                {"value": v[g], "low": low[g], "high": high[g]}
                if trials[g]
                else {"value": None, "reason": fraction.empty}
            )
            shown[rate.__name__] = {**ends, "hits": hits[g], "of": trials[g]}
        out.append(
            {
                "group": group,
                "n": n,
                "positives": positives,
                "negatives": n - positives,
                "counts": row,
                "rates": shown,
                "warnings": ["no rows"] if n == 0 else warnings,
            }
        )
    return out


def _across(pooled: dict[str, Any], tables: Array) -> list[dict[str, Any]]:
    """Say of every metric what the clients have each, beside the figure of the population, which is not their mean."""
    out = []
    for figure in pooled["figures"]:
        values = getattr(named, figure["metric"])(tables)
        defined = int((~np.isnan(values)).sum())
        spread = {f.__name__: _none(f(values)) for f in (mean, worst, highest, gap, coefficient_of_variation, jain)}
        spread = {"lowest": spread.pop("worst"), **spread}
        out.append({"metric": figure["metric"], "pooled": figure["value"], "clients_defined": defined, **spread})
    return out


def _remarks(pooled: dict[str, Any], clients: Sequence[dict[str, Any]]) -> list[str]:
    out = []
    if constant := _constant(pooled):
        out.append(f"constant predictor: the model predicts {constant} for all {pooled['rows']} rows")
    alike = [(c["client"], word) for c in clients if (word := _constant(c))]
    if alike and not constant:
        shown = ", ".join(f"{name} ({word})" for name, word in alike[:5]) + (" ..." if len(alike) > 5 else "")
        out.append(f"constant predictor at {len(alike)} of {len(clients)} clients: {shown}")
    empty = [g["group"] for g in pooled["groups"] if g["n"] == 0]
    if empty:
        out.append(f"no rows at all in {len(empty)} of {len(pooled['groups'])} groups: {', '.join(empty[:10])}")
    small = [f"{g['group']}: {', '.join(g['warnings'])}" for g in pooled["groups"] if g["n"] and g["warnings"]]
    if small:
        out.append(f"too small to lean on: {'; '.join(small[:10])}" + (" ..." if len(small) > 10 else ""))
    return out


def _constant(view: dict[str, Any]) -> str | None:
    tp, fp, tn, fn = view["counts"]
    if tp + fp == 0 and tn + fn > 0:
        return "the unfavourable outcome"
    return "the favourable outcome" if tn + fn == 0 and tp + fp > 0 else None


def _worst(verdicts: Sequence[str]) -> str:
    return min(verdicts, key=VERDICTS.index, default=UNSURE)


def _excess(view: dict[str, Any]) -> float:
    return max((_or_low(f["excess"]) for f in view["figures"] if f["limit"] is not None), default=-np.inf)


def _or_low(excess: float | None) -> float:
    return -np.inf if excess is None else excess


def _none(x: Any) -> float | None:
    return None if np.isnan(x) else float(x)
