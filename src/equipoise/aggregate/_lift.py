"""Lift a rule to an aggregator; what an undefined score counts as."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..checks import BadInput, one_of
from ..types import Aggregator, Array, Reports
from ._sums import check_clip, clip_factors, mean, move, norms

Rule = Callable[..., Array]
Score = Callable[[Reports], Array]

UNDEFINED = {"neutral": 0.5, "worst": 1.0, "zero": 0.0, "previous": 0.5, "error": np.nan}
"""What an undefined score counts as; "previous" where there is none yet. Constants, so that nobody else can move it."""


def weighted(
    rule: Rule,
    score: Score | None = None,
    *,
    clip: float | None = None,
    undefined: str = "neutral",
    asks: Collection[str] = ("trained",),
    **params: Any,
) -> Aggregator:
    """Lift a weight rule and a score to an aggregator.

        delta = sum_k w_k min(1, C / ||Delta_k||) Delta_k,    w = rule(scores, sizes)

    Parameters
    ----------
    rule : (scores, sizes, **params) -> (K,) weights; see ``weights``
    score : reports -> (K,) in 0..1, or (M, K) for a joint rule; None for a rule that needs none
    clip : C, the longest update that enters; None leaves lengths alone
    undefined : what a score of 0/0, or one outside 0..1, counts as: "neutral" 0.5, "worst" 1, "previous" the client's
        own last defined score (0.5 before there is one), "error", or "zero", for reproduction only. Each use is named
    asks : moments and figures the score reads; nothing is asked for without a score
    params : the rule's own, checked here

    Returns
    -------
    Aggregator whose info holds weights, scores, raw_scores, norms, clipped, clip_norm, and where they apply bounds
    (w_k C), fallbacks and note. With M scores, ``scores`` is each client's worst and ``score_parts`` (M, K) has all.

    Raises
    ------
    BadInput : at set-up, a clip <= 0, an unknown policy, a parameter the rule refuses; there and in a step, weights
        that are negative or do not sum to 1; in a step, policy "error"

    Examples
    --------
    >>> def mine(scores, sizes):
    ...     return (1 - scores) / (1 - scores).sum()
    >>> server = weighted(mine, lambda reports: np.array([np.nan, 0.0]), clip=1.0)
    >>> reports = Reports(np.array([3, 7]), np.array([[3.0], [0.5]]), np.array([10.0, 10.0]))
    >>> delta, info, state = server.step(reports, server.init())
    >>> delta, info["weights"].round(3), info["fallbacks"]
    (array([0.66666667]), array([0.333, 0.667]), {3: 'score undefined: neutral 0.5'})

    References
    ----------
    Fairis (arXiv 2608.06469), Algorithm 1 and Proposition 2.

    Notes
    -----
    The paper is silent on undefined scores. To count one as 0 would reward a client for having nobody to be fair to.
    """
    check_clip(clip)
    one_of("policy for undefined scores", undefined, UNDEFINED)
    _try_out(rule, params)

    def step(reports: Reports, state: Any) -> tuple[Array, dict[str, Any], Any]:
        raw = np.zeros(len(reports.clients)) if score is None else np.asarray(score(reports), np.float64)
        used, fallbacks, state = _settle(raw, reports, undefined, state)
        weights = on_simplex(rule, rule(used, reports.sizes, **params), len(reports.clients))
        notes = []
        if np.isnan(weights).all():
            weights = np.full(len(weights), 1 / len(weights))
            notes.append("every weight was 0/0: weighted equally")
        if fallbacks and undefined == "zero":
            notes.append("undefined scores counted as 0: for reproduction only")
        delta, info = move(reports, weights, clip)
        parts = {"score_parts": used} if used.ndim == 2 else {}
        if score is not None:
            info |= {"scores": _worst(used), "raw_scores": _worst(raw), "fallbacks": fallbacks} | parts
        return delta, info | ({"note": "; ".join(notes)} if notes else {}), state

    return Aggregator(lambda: {"scores": {}}, step, asks=frozenset(asks if score else ()))


def robust(
    rule: Rule, *, chooses: Callable[..., Array] | None = None, clip: float | None = None, **params: Any
) -> Aggregator:
    """Lift a robust rule, (K, d) -> (d,), to an aggregator; sizes and scores play no part.

    Parameters
    ----------
    rule : (updates, **params) -> (d,); see ``robust``. Its preconditions are tried on K rows by ``check(K)``
    chooses : for a rule that takes the mean of some rows, (updates, **params) -> their positions; the info then
        names the ``chosen`` clients
    clip : C, as for ``weighted``

    Raises
    ------
    BadInput : a clip <= 0 or a parameter that the rule does not have; from ``check``, too few clients

    Examples
    --------
    >>> server = robust(lambda updates: np.median(updates, axis=0))
    >>> reports = Reports(np.arange(3), np.array([[1.0], [2.0], [90.0]]), np.ones(3))
    >>> server.step(reports, server.init())[0]
    array([2.])
    """
    check_clip(clip)
    _accepts(rule, params)

    def step(reports: Reports, state: Any) -> tuple[Array, dict[str, Any], Any]:
        lengths = norms(reports.updates)
        factors = clip_factors(lengths, clip)
        updates = reports.updates
        if (factors < 1).any():
            updates = (updates * factors[:, None]).astype(updates.dtype)
        info: dict[str, Any] = {"norms": lengths, "clipped": factors < 1, "clip_norm": clip}
        if chooses is None:
            return rule(updates, **params), info, state
        at = np.sort(chooses(updates, **params))
        return mean(np.full(len(at), 1 / len(at)), updates[at]), info | {"chosen": reports.clients[at].tolist()}, state

    def check(clients: int) -> None:
        rule(np.zeros((clients, 1)), **params)

    return Aggregator(dict, step, check=check)


def _settle(raw: Array, reports: Reports, policy: str, state: Any) -> tuple[Array, dict[int, str], Any]:
    """Put the policy's value where a score is undefined or outside 0..1, and say so by client id."""
    used = np.atleast_2d(raw).copy()
    known = (used >= 0) & (used <= 1)
    last: Mapping[str, Sequence[float | None]] = state["scores"]
    nothing: list[float | None] = [None] * len(used)
    fallbacks: dict[int, str] = {}
    for k in np.flatnonzero(~known.all(0)).tolist():
        client = int(reports.clients[k])
        wrong = used[:, k][~known[:, k]]
        reason = f"score {wrong[0]:g} outside 0..1"
        if np.isnan(wrong).any():
            reason = f"score undefined{empty_counts(reports, k)}"
        if policy == "error":
            raise BadInput(f"client {client}: {reason}; choose a policy for undefined scores, such as neutral")
        before = last.get(str(client), nothing)
        for m in np.flatnonzero(~known[:, k]).tolist():
            value = before[m]
            used[m, k] = UNDEFINED[policy] if value is None else value
        instead = [f"{v:g}" for v in used[:, k][~known[:, k]]]
        word = "neutral" if policy == "previous" and all(v is None for v in before) else policy
        fallbacks[client] = f"{reason}: {word} {', '.join(instead)}" + (", for reproduction only" * (policy == "zero"))
    if policy == "previous":
        new = {}
        for k, name in enumerate(map(str, reports.clients)):
            columns = zip(used[:, k].tolist(), known[:, k].tolist(), last.get(name, nothing), strict=True)
            new[name] = [u if ok else b for u, ok, b in columns]
        state = {"scores": {**last, **new}}
    return used.reshape(raw.shape), fallbacks, state


def empty_counts(reports: Reports, k: int) -> str:
    """Say which of a client's counts are empty: what usually makes a rate 0/0."""
    found = []
    for table in reports.counts.values():
        for g, (tp, fp, tn, fn) in enumerate(table[k].tolist()):
            if tp + fp + tn + fn == 0:
                found.append(f"no rows in group {g}")
            elif tp + fn == 0:
                found.append(f"no positives in group {g}")
            elif fp + tn == 0:
                found.append(f"no negatives in group {g}")
    return f" ({', '.join(dict.fromkeys(found))})" if found else ""


def _worst(scores: Array) -> Array:
    return np.asarray(scores.max(0)) if scores.ndim == 2 else scores


def _accepts(rule: Rule, params: Mapping[str, Any]) -> None:
    known = list(inspect.signature(rule).parameters.values())
    if any(p.kind is p.VAR_KEYWORD for p in known):
        return
    what = f"parameter of {getattr(rule, '__name__', 'the rule')}"
    for name in params:
        one_of(what, name, [p.name for p in known if p.kind is p.KEYWORD_ONLY])


def _try_out(rule: Rule, params: Mapping[str, Any]) -> None:
    """Let the rule refuse its parameters now, on two clients of score 0.5, and not in the middle of a run."""
    _accepts(rule, params)
    several = np.shape(params.get("eta", 0.0))  # as many etas as scores, in a joint rule
    on_simplex(rule, rule(np.full((*several, 2), 0.5), np.ones(2), **params), 2)


def on_simplex(rule: Rule, given: Any, clients: int) -> Array:
    """Refuse what are no weights: one share of the whole per client, or NaN for all of them where there is no whole."""
    name = getattr(rule, "__name__", "the rule")
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"rule {name} returned a {type(given).__name__}; return one number per client") from None
    if weights.shape != (clients,):
        raise BadInput(f"rule {name} returned shape {weights.shape} for {clients} clients; return ({clients},)")
    if np.isnan(weights).all():
        return weights
    if bad := [w for w in weights.tolist() if not (np.isfinite(w) and w >= 0)]:
        raise BadInput(f"rule {name} gave a client the weight {bad[0]:g}; a weight is a share, 0 or more")
    if abs(weights.sum() - 1) > 1e-6:
        raise BadInput(f"rule {name} returned weights that sum to {weights.sum():g}; divide them by their sum")
    return weights
