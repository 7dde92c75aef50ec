"""Names of rules become aggregators: the only place where a rule is looked up by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import aggregate, metrics, robust, scores, weights
from ..checks import BadInput, nearest
from ..types import Aggregator, Array
from .lookup import Function, catalogue, check_types, lookup, parameters, refuse_unknown
from .schema import Adversary, Score

INSTEAD_OF_ETA = {"share": None, "honest": 0.0}
"""The share that a fully biased client may keep while honest scores stay below ``honest``."""


def gaps() -> dict[str, Callable[[Array], Array]]:
    """Return the metrics that can judge a client: in 0..1, higher is worse."""
    ours = catalogue(metrics.named)
    return {name: metric for name, metric in ours.items() if metric not in metrics.named.HIGH_IS_GOOD}


@dataclass(frozen=True)
class Chosen:
    """A rule by name with its parameters, and what records say about it."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    undefined: str = "neutral"
    tag: str = ""
    formula: str = ""


def known() -> dict[str, Function]:
    """Return every rule of ours by name."""
    return catalogue(weights) | catalogue(robust) | {"fairfed": aggregate.fairfed}


def _function(name: str) -> Function:
    return lookup("rule", name, known(), "turns scores (K,) and sizes (K,) into weights (K,)")


def _parameters(function: Function) -> dict[str, Any]:
    """What may be set in a study: the keyword-only parameters of a rule that are its own."""
    own = parameters(function, wired=("clip", "undefined", "asks"))
    if function in (weights.fairis, weights.fairis_n):
        own |= INSTEAD_OF_ETA
    if function is weights.joint:
        own |= {"metrics": None}
    return own


def formula(function: Function) -> str:
    """Return the first indented line of a docstring: the formula, by our convention; else its first line."""
    lines = (inspect.getdoc(function) or "").splitlines()
    indented = [x.strip() for x in lines if x.startswith("    ") and "=" in x]
    return indented[0] if indented else (lines[0] if lines else "")


def chosen(
    name: str, given: Mapping[str, Any] | None = None, undefined: str = "neutral", *, tag_policy: bool = False
) -> Chosen:
    """Look a rule up and check the names of its parameters.

    Examples
    --------
    >>> chosen("fairis", {"eta": 1.05}).tag
    'fairis(eta=1.05)'
    >>> chosen("fairis", {"etta": 1.05})
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: 'etta' is no parameter of the rule fairis; did you mean 'eta'?
    """
    function, given = _function(name), dict(given or {})
    own = _parameters(function)
    refuse_unknown(f"rule {name}", given, own)
    check_types(f"rule {name}", function, given, {"share": float, "honest": float, "metrics": list[str]})
    if "honest" in given and "share" not in given:
        raise BadInput(f"rule {name}: honest = {given['honest']:g} belongs to share; give share too, or leave it out")
    if given.get("metrics") == []:
        raise BadInput(f"rule {name}: metrics is an empty list; name at least one metric, or leave it out")
    if "eta" in given and "share" in given:
        raise BadInput(f"rule {name}: give eta, or the share a fully biased client may keep, not both")
    needed = [k for k, default in own.items() if default is inspect.Parameter.empty and k not in given]
    if needed:
        raise BadInput(f"rule {name} needs {needed[0]!r}; add {needed[0]} = ... to its [[rule]]")
    filled = {k: v for k, v in own.items() if k not in INSTEAD_OF_ETA and k != "metrics"} | given
    if "share" in given:
        filled.pop("eta", None)
    inside = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in given.items()] or [
        f"{k}={v:g}" for k, v in filled.items() if k == "eta" and isinstance(v, float)
    ]
    inside += [f"undefined={undefined}"] if tag_policy else []
    short = name.replace("_", "-").replace(":", ".")
    tag = short + (f"({','.join(inside)})" if inside else "")
    return Chosen(
        short if ":" not in name else name, filled, undefined, tag.replace(" ", "").replace("/", "_"), formula(function)
    )


def _metric(name: str) -> Callable[[Array], Array]:
    if name in metrics.named.__all__ and name not in gaps():
        raise BadInput(f"score.metric {name!r} is high where all is well; {nearest('difference', gaps())}")
    return lookup("score.metric", name, gaps(), "turns counts (..., G, 4) into gaps in 0..1")


def _signed(name: str) -> Callable[[Array], Array]:
    """The metric with its sign, as FairFed compares gaps with the population's; only two groups have one."""
    rates = {
        "equal_opportunity_difference": metrics.true_positive_rate,
        "statistical_parity_difference": metrics.selection_rate,
        "predictive_parity_difference": metrics.positive_predictive_value,
    }
    unsigned, rate = _metric(name), rates.get(name)

    def signed(counts: Array) -> Array:
        if rate is None or counts.shape[-2] != 2:
            return unsigned(counts)
        return metrics.signed_gap(rate(counts), 0)

    return signed


def _moment(score: Score) -> str:
    return score.moment if score.on == "train" else f"{score.moment}@{score.on}"


def aggregator(rule: Chosen, score: Score, clients: int, clip: float | None) -> Aggregator:
    """Return the server's rule for a federation of this many clients."""
    function, moment = _function(rule.name), _moment(score)
    params = dict(rule.parameters)
    if function is aggregate.fairfed:
        judged = params.pop("moment") if score.on == "train" else f"{params.pop('moment')}@{score.on}"
        return aggregate.fairfed(_signed(score.metric), moment=judged, clip=clip, **params)
    if function in [getattr(robust, name) for name in robust.__all__]:
        return aggregate.robust(
            function, chooses=getattr(robust, f"{function.__name__}_choice", None), clip=clip, **params
        )
    if "share" in params:
        params = {"eta": weights.eta_for_cap(params.pop("share"), clients, params.pop("honest", 0.0))}
    if function in (weights.uniform, weights.fedavg):
        return aggregate.weighted(function, clip=clip, **params)
    judged = params.pop("metrics", None) or [score.metric]
    each = [scores.gap(_metric(m), moment) for m in judged]
    seen = scores.several(*each) if len(each) > 1 else each[0]
    return aggregate.weighted(function, seen, clip=clip, undefined=rule.undefined, asks=(moment,), **params)


def broadcast_statistic(rule: Aggregator, score: Score, adversary: Adversary) -> Aggregator:
    """Tell every client the fairness statistic of the last round, which a gaming adversary steers to.

    ``mean``: the size-weighted mean of the clients' own gaps (Fairis); ``pooled``: the gap of the summed counts.
    """
    moment = _moment(score)
    statistic = scores.population(_metric(score.metric), moment, adversary.statistic)
    return aggregate.telling(rule, "F_global", statistic, first=adversary.first_target, shared=True, asks=(moment,))
