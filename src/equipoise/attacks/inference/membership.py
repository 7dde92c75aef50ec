"""Membership inference: was this record trained on? Figures of any attack; a higher score is a surer member, always.

An attack is a score per record. Rows whose score is NaN are those on which it says nothing: they are left out, and the
numbers of members and others tell how many were judged. With no members, or none but members, every figure is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...checks import BadInput, between, same_length
from ...metrics import counts, rates
from ...types import Array

__all__ = [
    "Decisions",
    "Leakage",
    "Membership",
    "advantage",
    "auc",
    "decisions",
    "loss_scores",
    "membership",
    "roc",
    "tpr_at",
]


class Leakage(NamedTuple):
    """What an attack on membership finds out; each figure beside the value that blind guessing reaches.

    ``auc``: blind 0.5. ``tpr_at_1``, ``tpr_at_01``: TPR at FPR at most 1 % and 0.1 %, blind 0.01 and 0.001; with fewer
    than 100 or 1,000 others that is the TPR without any false alarm. ``advantage``: largest TPR - FPR, blind 0.
    ``best_accuracy``: blind ``majority_baseline``, the share of the larger class. ``best_balanced_accuracy``: blind
    0.5. ``members``, ``others``: rows that were judged.
    """

    auc: float
    tpr_at_1: float
    tpr_at_01: float
    advantage: float
    best_accuracy: float
    majority_baseline: float
    best_balanced_accuracy: float
    members: int
    others: int


class Membership(NamedTuple):
    """Leakage of all rows, and of the rows of each client id and each group that occurs."""

    overall: Leakage
    clients: Mapping[int, Leakage]
    groups: Mapping[int, Leakage]


class Decisions(NamedTuple):
    """What an attack with one fixed threshold finds out; NaN = undefined.

    ``tpr`` is also called recall; ``advantage`` is TPR - FPR of this threshold and may be negative.
    """

    threshold: float
    tpr: float
    fpr: float
    advantage: float
    accuracy: float
    majority_baseline: float
    precision: float
    members: int
    others: int


def membership(score: Any, member: Any, client: Any = None, group: Any = None) -> Membership:
    """Judge an attack on membership: over all rows, per client and per sensitive group.

    Parameters
    ----------
    score : (n,) higher = a surer member; NaN = the attack says nothing
    member : (n,) 1 where the record was trained on, else 0
    client, group : (n,) integers; without them there are no figures per client or per group

    Returns
    -------
    every figure of ``Leakage``, in 0..1

    Raises
    ------
    BadInput
        Lengths differ, or ``member`` holds something else than 0 and 1.

    Examples
    --------
    >>> tied = membership([0.9, 0.9, 0.9, 0.9, 0.9], [1, 0, 1, 1, 0], client=[4, 4, 4, 7, 7]).overall
    >>> tied.auc, tied.advantage, tied.best_accuracy, tied.majority_baseline
    (0.5, 0.0, 0.6, 0.6)
    >>> found = membership([0.9, 0.1, 0.4, 0.5], [1, 0, 1, 0], client=[4, 4, 7, 7])
    >>> {client: leak.auc for client, leak in found.clients.items()}
    {4: 1.0, 7: 0.0}

    Notes
    -----
    The thresholds that call all and none a member are swept, too, so ``best_accuracy`` is never below the baseline and
    ``advantage`` never below 0. All of it is chosen with the answer in hand, as the worst case of that score.
    """
    s, m = _judged(score, member)
    parts = []
    for what, values in (("client", client), ("group", group)):
        of = np.asarray([], np.int64) if values is None else np.asarray(values)
        if values is not None:
            same_length(score=s, **{what: of})
        if of.dtype.kind not in "biu":
            raise BadInput(f"{what} holds {of.dtype} values; code it as integers")
        parts.append({int(part): _leakage(s[of == part], m[of == part]) for part in np.unique(of)})
    return Membership(_leakage(s, m), *parts)


def auc(score: Any, member: Any) -> float:
    """Chance that a member scores above another record, ties counting half; NaN without members or without others.

    Examples
    --------
    >>> auc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    0.875
    """
    tp, fp = _sweep(*_judged(score, member))
    # The trapezium under the counts is Mann-Whitney's statistic: whole numbers until the one division.
    twice = int((np.diff(fp) * (tp[1:] + tp[:-1])).sum())
    return twice / (2 * int(tp[-1]) * int(fp[-1]) or np.nan)


def roc(score: Any, member: Any) -> tuple[Array, Array]:
    """Return (FPR, TPR) of every threshold, from the one that calls nobody a member to the one that calls all; or NaN.

    Examples
    --------
    >>> fpr, tpr = roc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    >>> fpr, tpr
    (array([0. , 0. , 0.5, 1. ]), array([0. , 0.5, 1. , 1. ]))

    Notes
    -----
    Records with equal scores are called members together, so a tie is one step and no attack gains from their order.
    """
    tp, fp = _sweep(*_judged(score, member))
    if not tp[-1] or not fp[-1]:
        return np.full(len(fp), np.nan), np.full(len(tp), np.nan)
    return fp / fp[-1], tp / tp[-1]


def tpr_at(score: Any, member: Any, fpr: float) -> float:
    """Largest TPR of a threshold whose FPR is at most ``fpr``; NaN without members or without others.

    Examples
    --------
    >>> tpr_at([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], 0.01)
    0.5

    Notes
    -----
    There is no interpolation between thresholds: the figure is one that the attack really reaches. With fewer than
    1 / ``fpr`` others it is the TPR without any false alarm.
    """
    false, true = roc(score, member)
    reached = true[false <= between("fpr", fpr, 0, 1)]
    return float(reached.max()) if len(reached) else np.nan


def advantage(score: Any, member: Any) -> float:
    """Largest TPR - FPR of all thresholds, in 0..1; NaN without members or without others.

    Examples
    --------
    >>> advantage([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    0.5
    """
    fpr, tpr = roc(score, member)
    return float((tpr - fpr).max())


def loss_scores(losses: Any) -> Array:
    """Score by the loss, the most known records first: s = -loss.

    With the threshold ``-tau``, where tau is the mean loss over the training rows, ``decisions`` is the attack of Yeom
    et al.; ``membership`` sweeps all thresholds.

    Examples
    --------
    >>> losses, member, tau = [0.1, 0.3, 0.2, 1.5], [1, 1, 0, 0], 0.2
    >>> attack = decisions(loss_scores(losses), member, threshold=-tau)
    >>> attack.tpr, attack.fpr, attack.advantage
    (0.5, 0.5, 0.0)

    References
    ----------
    Yeom, Giacomelli, Fredrikson and Jha, Privacy risk in machine learning, CSF 2018 (arXiv 1709.01604).
    """
    return -np.asarray(losses, np.float64)


def decisions(score: Any, member: Any, threshold: float) -> Decisions:
    """Judge the attack that calls a record a member where its score is at least ``threshold``.

    Examples
    --------
    >>> found = decisions([0.9, 0.6, 0.6, 0.1], [1, 1, 0, 0], threshold=0.5)
    >>> found.tpr, found.fpr, found.accuracy, round(found.precision, 3)
    (1.0, 0.5, 0.75, 0.667)
    """
    s, m = _judged(score, member)
    known = ~np.isnan(s) & ~np.isnan(threshold)  # without a threshold nothing is judged
    s, m = s[known], m[known]
    table = counts(m, s >= threshold, np.zeros(len(m), np.int64), 1)
    tpr, fpr = float(rates.true_positive_rate(table)[0]), float(rates.false_positive_rate(table)[0])
    members, n = int(m.sum()), len(m)
    return Decisions(
        threshold=float(threshold),
        tpr=tpr,
        fpr=fpr,
        advantage=tpr - fpr,
        accuracy=float(rates.accuracy(table)[0]),
        majority_baseline=max(members, n - members) / n if n else np.nan,
        precision=float(rates.positive_predictive_value(table)[0]),
        members=members,
        others=n - members,
    )


def _leakage(score: Array, member: Array) -> Leakage:
    tp, fp = _sweep(score, member)
    members, others = int(tp[-1]), int(fp[-1])
    n = members + others if members and others else np.nan
    best = advantage(score, member)
    return Leakage(
        auc=auc(score, member),
        tpr_at_1=tpr_at(score, member, 0.01),
        tpr_at_01=tpr_at(score, member, 0.001),
        advantage=best,
        best_accuracy=float((tp + others - fp).max() / n),
        majority_baseline=max(members, others) / n,
        best_balanced_accuracy=(1 + best) / 2,
        members=members,
        others=others,
    )


def _judged(score: Any, member: Any) -> tuple[Array, Array]:
    s, m = np.asarray(score, np.float64), np.asarray(member)
    if s.ndim != 1:
        raise BadInput(f"score has shape {s.shape}; pass one number per record")
    same_length(score=s, member=m)
    if m.ndim != 1 or not np.isin(m, (0, 1)).all():
        raise BadInput("member must hold 1 for a record that was trained on and 0 for another, one per record")
    return s, m.astype(np.int64)


def _sweep(score: Array, member: Array) -> tuple[Array, Array]:
    """True and false positives of every threshold, from none to all; equal scores enter together."""
    known = ~np.isnan(score)
    order = np.argsort(-score[known], kind="stable")
    s, m = score[known][order], member[known][order]
    last = np.append(s[1:] != s[:-1], True)[: len(s)]
    tp, n = np.cumsum(m)[last], np.arange(1, len(s) + 1)[last]
    return np.append(0, tp), np.append(0, n - tp)
