"""Aggregators around an aggregator: one that also tells clients a figure, one that mixes their figures up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from ..types import Aggregator, Array, News, Reports


def telling(
    inner: Aggregator,
    name: str,
    score: Callable[[Reports], Array | float],
    *,
    first: float,
    shared: bool = False,
    asks: Collection[str] = (),
) -> Aggregator:
    """Let an aggregator also tell clients a figure in the next round, and change nothing else.

    Parameters
    ----------
    inner : any aggregator
    name : what the figure is called in the news, such as "rho" or "f_global"
    score : reports -> (K,), one figure for each client; or, if ``shared``, one number for everybody
    first : told to those for whom there is no figure yet
    asks : moments and figures the score reads, beside those of ``inner``

    Returns
    -------
    Aggregator; an undefined figure leaves the last one standing

    Examples
    --------
    >>> silent = Aggregator(dict, lambda reports, state: (np.zeros(1), {}, state))
    >>> server = telling(silent, "rho", lambda reports: np.array([0.2, 1.0]), first=0.5)
    >>> reports = Reports(np.array([4, 9]), np.zeros((2, 1)), np.ones(2))
    >>> _, _, state = server.step(reports, server.init())
    >>> server.tell(state, np.array([4, 5, 9]))
    {'rho': array([0.2, 0.5, 1. ])}

    References
    ----------
    FinP (arXiv 2502.17748) tells rho, 0.5 at first; FairFed's clients learn F_global, 0.3 at first in Fairis' attack.
    """

    def init() -> dict[str, Any]:
        return {"inner": inner.init(), "told": {}}

    def step(reports: Reports, state: Any) -> tuple[Array, dict[str, Any], Any]:
        delta, info, after = inner.step(reports, state["inner"])
        figures = np.atleast_1d(np.asarray(score(reports), np.float64))
        keys = ["*"] if shared else [str(c) for c in reports.clients]
        new = {key: float(f) for key, f in zip(keys, figures, strict=True) if np.isfinite(f)}
        return delta, dict(info), {"inner": after, "told": {**state["told"], **new}}

    def tell(state: Any, clients: Array) -> News:
        told = [state["told"].get("*" if shared else str(c), first) for c in clients]
        return {**inner.tell(state["inner"], clients), name: np.array(told, np.float64)}

    return Aggregator(init, step, tell, inner.asks | frozenset(asks), inner.check)


def misassigned(inner: Aggregator, *, seed: int) -> Aggregator:
    """Mix the clients' figures up before ``inner`` looks at them: a published mistake, to measure its effect.

        v_k <- v_order(k),   order: a new permutation of the clients in every round

    For reproduction only. Counts, updates and sizes stay where they belong.

    Parameters
    ----------
    inner : any aggregator whose score reads figures; what it tells is misdirected with what it weighs
    seed : of the permutations, one drawn after another from numpy's default generator

    Returns
    -------
    Aggregator with the info of ``inner`` and a note

    Examples
    --------
    >>> order = np.random.default_rng(42).choice(3, 3, replace=False)
    >>> order
    array([2, 0, 1])
    >>> silent = Aggregator(dict, lambda reports, state: (np.zeros(1), {"seen": reports.figures["trace"]}, state))
    >>> server = misassigned(silent, seed=42)
    >>> reports = Reports(np.arange(3), np.zeros((3, 1)), np.ones(3), {"trace": np.array([0.1, 0.2, 0.7])})
    >>> server.step(reports, server.init())[1]["seen"]
    array([0.7, 0.1, 0.2])

    References
    ----------
    FinP's code (artifact of arXiv 2502.17748): clients are visited in the order ``Generator.choice(range(K), K,
    replace=False)``, their figures are listed in that order, and the list is read by client id.
    """

    def init() -> dict[str, Any]:
        return {"inner": inner.init(), "rounds": 0}

    def step(reports: Reports, state: Any) -> tuple[Array, dict[str, Any], Any]:
        draws, k = np.random.default_rng(seed), len(reports.clients)
        order = [draws.choice(k, k, replace=False) for _ in range(state["rounds"] + 1)][-1]
        given = replace(reports, figures={name: values[order] for name, values in reports.figures.items()})
        delta, info, after = inner.step(given, state["inner"])
        note = "every client was judged by the figures of another, for reproduction only"
        notes = {"note": "; ".join(filter(None, [info.get("note"), note]))}
        return delta, {**info, **notes}, {"inner": after, "rounds": state["rounds"] + 1}

    def tell(state: Any, clients: Array) -> News:
        return inner.tell(state["inner"], clients)

    return Aggregator(init, step, tell, inner.asks, inner.check)
