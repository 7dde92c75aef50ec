"""Names of rules become aggregators: the only place where a rule is looked up by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import aggregate, metrics, robust, scores, weights
from ..checks import BadInput, nearest
from ..types import Aggregator, Array, Reports
from .lookup import Function, catalogue, check_types, lookup, parameters, refuse_unknown
from .schema import Adversary, Central, Private, Rule, Score

INSTEAD_OF_ETA = {"share": None, "honest": 0.0}
"""The share that a fully biased client may keep while honest scores stay below ``honest``."""

FAMILY: Mapping[Function, Mapping[str, float]] = {
    weights.uniform: {},
    weights.fedavg: {"power": 1},
    weights.fairis: {},
    weights.fairis_n: {"power": 1},
    weights.ala: {"eta": 1},
    weights.joint: {},
}
"""Rules that central noise is made for: what ``aggregate.central_dp`` calls each of them."""

FIRST_RHO = 0.5
"""What a client is told of its score before there is one, as in FinP."""


def gaps() -> dict[str, Callable[[Array], Array]]:
    """Return the metrics that can judge a client: in 0..1, higher is worse."""
    ours = catalogue(metrics.named)
    return {name: metric for name, metric in ours.items() if metric not in metrics.named.HIGH_IS_GOOD}


@dataclass(frozen=True)
class Chosen:
    """A method: a rule by name with its parameters, what it asks of clients, and what records say about it.

    ``scores``: names of what clients are judged by; ``terms``: term of the local loss -> coefficient; ``rho``: the
    score that clients are told, if a term of theirs reads it; ``training``: what differs from the study's [training].
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    undefined: str = "neutral"
    tag: str = ""
    formula: str = ""
    label: str | None = None
    scores: tuple[str, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)
    rho: str | None = None
    shuffled: bool = False
    private: Private | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    central: Central | None = None


def known() -> dict[str, Function]:
    """Return every rule of ours by name."""
    others: dict[str, Function] = {"fairfed": aggregate.fairfed, "equidistant": aggregate.equidistant}
    return catalogue(weights) | catalogue(robust) | others


def _function(name: str) -> Function:
    return lookup("rule", name, known(), "turns scores (K,) and sizes (K,) into weights (K,)")


def _parameters(function: Function) -> dict[str, Any]:
    """What may be set in a study: the keyword-only parameters of a rule that are its own."""
    own = parameters(function, wired=("clip", "undefined", "asks"))
    if function in (weights.fairis, weights.fairis_n):
        own |= INSTEAD_OF_ETA
    return own


def formula(function: Function) -> str:
    """Return the first indented line of a docstring: the formula, by our convention; else its first line."""
    lines = (inspect.getdoc(function) or "").splitlines()
    indented = [x.strip() for x in lines if x.startswith("    ") and "=" in x]
    return indented[0] if indented else (lines[0] if lines else "")


def chosen(
    rule: Rule, given: Mapping[str, Any] | None = None, undefined: str = "neutral", *, tag_policy: bool = False
) -> Chosen:
    """Look a method's rule up and check the names and types of the ``given`` parameters.

    Examples
    --------
    >>> chosen(Rule(name="fairis"), {"eta": 1.05}).tag
    'fairis(eta=1.05)'
    >>> chosen(Rule(name="fairis"), {"etta": 1.05})
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: 'etta' is no parameter of the rule fairis; did you mean 'eta'?
    """
    name = rule.name
    function, given = _function(name), dict(given or {})
    own = _parameters(function)
    refuse_unknown(f"rule {name}", given, own)
    check_types(f"rule {name}", function, given, {"share": float, "honest": float})
    if "honest" in given and "share" not in given:
        raise BadInput(f"rule {name}: honest = {given['honest']:g} belongs to share; give share too, or leave it out")
    if rule.scores and len(rule.scores) > 1 and function is not weights.joint:
        raise BadInput(
            f"rule {name} weighs by one score, and scores lists {len(rule.scores)}; only joint takes several"
        )
    if "eta" in given and "share" in given:
        raise BadInput(f"rule {name}: give eta, or the share a fully biased client may keep, not both")
    needed = [k for k, default in own.items() if default is inspect.Parameter.empty and k not in given]
    if needed:
        raise BadInput(f"rule {name} needs {needed[0]!r}; add {needed[0]} = ... to its [[rule]]")
    filled = {k: v for k, v in own.items() if k not in INSTEAD_OF_ETA} | given
    if "share" in given:
        filled.pop("eta", None)
    inside = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in given.items()] or [
        f"{k}={v:g}" for k, v in filled.items() if k == "eta" and isinstance(v, float)
    ]
    short = name.replace("_", "-").replace(":", ".")
    asked = [] if rule.label else [*_asked_of_clients(rule)]
    inside = ([] if rule.label and not given else inside) + asked + ([f"undefined={undefined}"] if tag_policy else [])
    tag = (rule.label or short).replace(" ", "_") + (f"({','.join(inside)})" if inside else "")
    return Chosen(
        short if ":" not in name else name,
        filled,
        undefined,
        tag.replace(" ", "").replace("/", "_"),
        formula(function),
        rule.label,
        tuple(rule.scores or ()),
        {n if ":" in n else n.replace("-", "_"): c for n, c in rule.terms.items()},
        rule.rho,
        rule.order == "shuffled",
        rule.private,
        dict(rule.training),
        rule.central,
    )


def _asked_of_clients(rule: Rule) -> Iterator[str]:
    """What tells a method without a label from others of the same rule."""
    yield from rule.scores or ()
    yield from (f"{name}={c:g}" for name, c in rule.terms.items())
    if rule.rho:
        yield f"rho={rule.rho}"
    if rule.order != "correct":
        yield f"order={rule.order}"
    if rule.private:
        yield f"dp={rule.private.clip:g}*{rule.private.noise:g}"
    if rule.central:
        yield f"central={rule.central.clip:g}*{rule.central.noise:g}"
    yield from (f"{name}={value}" for name, value in rule.training.items())


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


def scored(name: str, score: Score) -> tuple[Callable[[Reports], Array], frozenset[str]]:
    """Return the score that ``name`` means and what it asks clients for.

    A metric of ``gaps`` (or yours) judges the client's counts; a score of curvature its figures;
    ``package.module:score`` with an attribute ``asks`` whatever it asks for.
    """
    key = name.replace("-", "_")
    ours = {n: f for n, f in catalogue(scores).items() if f is not scores.gap}
    if key in ours:
        maker = ours[key]
        constant = {"constant": score.constant} if "constant" in parameters(maker) else {}
        return maker(*score.figures, **constant), frozenset(score.figures)
    if ":" in name and hasattr(own := lookup("score", name, {}, "turns reports into scores (K,) in 0..1"), "asks"):
        return own, frozenset(own.asks)
    if ":" not in name and key not in metrics.named.__all__:
        raise BadInput(f"score {name!r} is unknown; {nearest(key, {**gaps(), **ours})}")
    return scores.gap(_metric(name), _moment(score)), frozenset({_moment(score)})


def aggregator(rule: Chosen, score: Score, clients: int, clip: float | None, seed: int = 0) -> Aggregator:
    """Return the server's part of a method for a federation of this many clients."""
    server = _server(rule, score, clients, clip, seed)
    reads_rho = {"lipschitz_code", "lipschitz_paper"} & set(rule.terms)
    if reads_rho or rule.rho:
        told, asks = scored(_rho(rule), score)
        told = aggregate.alone(told) if rule.central else told  # what one client is told is made of nobody else
        server = aggregate.telling(server, "rho", told, first=FIRST_RHO, asks=asks)
    return aggregate.misassigned(server, seed=seed) if rule.shuffled else server


def _rho(rule: Chosen) -> str:
    """What clients are told: the score that is named for it, else the one that they are weighed by, else FinP's."""
    of_curvature = [name for name in rule.scores if name.replace("-", "_") not in gaps()]
    return rule.rho or (of_curvature[0] if of_curvature else "deviation")


def _server(rule: Chosen, score: Score, clients: int, clip: float | None, seed: int) -> Aggregator:
    function = _function(rule.name)
    params = dict(rule.parameters)
    if rule.central and (rule.shuffled or function not in FAMILY):
        what = "mixes the clients' figures up" if rule.shuffled else "does not weigh each client by n^a (eta - s)"
        raise BadInput(
            f"central noise hides one client, and {rule.name} {what}, so that one client moves what others count for; "
            f"take {', '.join(f.__name__ for f in FAMILY)} in the correct order, or leave central out"
        )
    if function is aggregate.fairfed:
        judged = params.pop("moment") if score.on == "train" else f"{params.pop('moment')}@{score.on}"
        return aggregate.fairfed(_signed(score.metric), moment=judged, clip=clip, **params)
    if function is aggregate.equidistant:
        return aggregate.equidistant(clip=clip, **params)
    if function in [getattr(robust, name) for name in robust.__all__]:
        return aggregate.robust(
            function, chooses=getattr(robust, f"{function.__name__}_choice", None), clip=clip, **params
        )
    if "share" in params:
        params = {"eta": weights.eta_for_cap(params.pop("share"), clients, params.pop("honest", 0.0))}
    if function in (weights.uniform, weights.fedavg):
        plain = aggregate.weighted(function, clip=clip, **params)
        return _noised(rule, FAMILY[function], seed) if rule.central else plain
    judges = [scored(name, score) for name in rule.scores or (score.metric,)]
    seen = scores.several(*(s for s, _ in judges)) if len(judges) > 1 else judges[0][0]
    asks = frozenset().union(*(a for _, a in judges))
    plain = aggregate.weighted(function, seen, clip=clip, undefined=rule.undefined, asks=asks, **params)
    if not rule.central:
        return plain
    judged = {"score": seen, "undefined": rule.undefined, "asks": asks}
    return _noised(rule, {**FAMILY[function], **params, **judged}, seed)


def _noised(rule: Chosen, weighing: Mapping[str, Any], seed: int) -> Aggregator:
    noise = rule.central.model_dump(exclude={"delta", "secret"}) if rule.central else {}
    return aggregate.central_dp(**weighing, **noise, seed=None if rule.central and rule.central.secret else seed)


def broadcast_statistic(rule: Aggregator, score: Score, adversary: Adversary) -> Aggregator:
    """Tell every client the fairness statistic of the last round, which a gaming adversary steers to.

    ``mean``: the size-weighted mean of the clients' own gaps (Fairis); ``pooled``: the gap of the summed counts.
    """
    moment = _moment(score)
    statistic = scores.population(_metric(score.metric), moment, adversary.statistic)
    return aggregate.telling(rule, "F_global", statistic, first=adversary.first_target, shared=True, asks=(moment,))
