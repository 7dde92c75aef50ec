"""The rows of a table, checked and counted: every row is either in a count or left out with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..checks import BadInput
from ..metrics.counts import counts_by
from ..metrics.door import Levels, above_threshold, code_labels, cross, merge, text
from ..types import Array
from .table import Table

Missing = Literal["error", "group", "drop"]
MAX_CELLS = 100_000


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a file: which columns mean what.

    ``prediction`` or ``score`` with ``threshold``, not both. ``positive``: the label that counts as positive, needed
    unless labels are 0/1. ``favourable``: whether being predicted positive is in the person's favour; all figures are
    about the favourable outcome. ``missing``: refuse a missing value, make missing sensitive values and clients a group
    of their own, or leave such rows out.
    """

    label: str
    groups: tuple[str, ...]
    prediction: str | None = None
    score: str | None = None
    threshold: float | None = None
    client: str | None = None
    positive: str | None = None
    favourable: Literal["positive", "negative"] = "positive"
    missing: Missing = "error"

    def check(self) -> None:
        """Refuse a question that contradicts itself."""
        if (self.prediction is None) == (self.score is None):
            both = "both were given" if self.prediction is not None else "neither was given"
            raise BadInput(f"name either a prediction column or a score column with a threshold; {both}")
        if self.score is not None and self.threshold is None:
            raise BadInput(f"score {self.score!r} needs a threshold; score >= threshold counts as predicted positive")
        if self.score is None and self.threshold is not None:
            raise BadInput(f"threshold {self.threshold:g} needs a score column; a prediction column is used as it is")
        if not self.groups:
            raise BadInput("no group column was named; name at least one sensitive attribute")
        for i, name in enumerate(self.columns):
            if name in self.columns[:i]:
                raise BadInput(f"column {name!r} is named for two things; each role needs its own column")

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read, in a fixed order."""
        names = (self.label, self.prediction, self.score, self.client, *self.groups)
        return tuple(name for name in names if name is not None)


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts (K, G, 4) of a file, the names along its axes, and the account of its rows.

    ``favourable``, ``unfavourable``: the labels counted as positive and negative. ``predicted``: how many rows were
    predicted favourable. ``read`` = ``counted`` + sum of ``left_out``.
    """

    counts: Array
    clients: tuple[str, ...] | None
    attributes: Mapping[str, tuple[str, ...]]
    favourable: str
    unfavourable: str
    read: int
    counted: int
    left_out: Mapping[str, int]


def count(table: Table, asked: Question) -> Counted:
    """Check the columns and count the rows; see ``Question`` for the rules."""
    asked.check()
    keep, left_out = _missing(table, asked)
    if not keep.any():
        raise BadInput(f"all {table.rows} rows were left out ({_listed(left_out)}); nothing is left to count")

    def of(name: str) -> Levels:
        codes, raw = table.columns[name]
        used, codes = np.unique(codes[keep], return_inverse=True)
        return merge(name, codes, [(raw or [])[i] for i in used.tolist()], "group")

    label = of(asked.label)
    if asked.score is not None:
        (y,), zero, one = code_labels([label], asked.positive)
        scores = table.columns[asked.score][0][keep]
        yhat = above_threshold(scores, _in_range(scores, asked.threshold or 0.0))
    else:
        (y, yhat), zero, one = code_labels([label, of(asked.prediction or "")], asked.positive)
    if len(np.unique(y)) < 2:
        raise BadInput(
            f"label {asked.label!r} has only one class ({label[1][0]!r} in all {len(y)} rows); an audit needs both"
        )
    attributes = {name: of(name) for name in asked.groups}
    group, groups = cross(attributes)
    for name, (_, levels) in attributes.items():
        if len(levels) < 2:
            raise BadInput(f"{name!r} has only one group ({levels[0]!r}); a comparison needs at least two")
    client, clients = of(asked.client) if asked.client else (np.zeros(len(y), np.int64), ("all",))
    if len(clients) * len(groups) > MAX_CELLS:
        raise BadInput(
            f"{len(clients)} clients x {len(groups)} groups are more than {MAX_CELLS} cells; "
            f"is {asked.client!r} a client, or the id of a row?"
        )
    zero = zero or "other"
    if asked.favourable == "negative":
        y, yhat, zero, one = 1 - y, 1 - yhat, one, zero
    counts = counts_by(y, yhat, group, client, len(groups), len(clients))
    names = {name: levels for name, (_, levels) in attributes.items()}
    read = table.rows + sum(table.left_out.values())
    left_out = {**table.left_out, **left_out}
    return Counted(counts, clients if asked.client else None, names, one, zero, read, len(y), left_out)


def _missing(table: Table, asked: Question) -> tuple[Array, dict[str, int]]:
    """Return the rows to keep and why the others go, by the first reason that holds for a row."""
    keep = np.ones(table.rows, bool)
    left_out: dict[str, int] = {}
    own_group = {asked.client, *asked.groups} if asked.missing == "group" else set()
    for name in asked.columns:
        values, raw = table.columns[name]
        lost = np.isnan(values) if raw is None else _lost(name, values, raw)
        if name in own_group or not lost.any():
            continue
        if asked.missing != "drop":
            at = np.flatnonzero(lost)
            rows = "1 missing row" if len(at) == 1 else f"{len(at)} missing rows"
            own = "make them a group (--missing group) or " if name in {asked.client, *asked.groups} else ""
            raise BadInput(
                f"column {name!r} has {rows} of {table.rows} (first: {table.line(int(at[0]))}); "
                f"fill them in, {own or 'or '}leave them out (--missing drop)"
            )
        left_out[f"missing {name}"] = int((lost & keep).sum())
        keep &= ~lost
    return keep, {reason: n for reason, n in left_out.items() if n}


def _in_range(scores: Array, threshold: float) -> float:
    """Refuse a threshold on another scale than the scores; on theirs, one that selects nobody is a finding."""
    low, high = float(scores.min()), float(scores.max())
    a, b = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    if np.isfinite([low, high]).all() and not a <= threshold <= b:
        raise BadInput(f"threshold {threshold:g} is out of range; the scores run from {low:g} to {high:g}")
    return threshold


def _lost(name: str, codes: Array, raw: Sequence[Any]) -> Array:
    return np.array([text(name, value) is None for value in raw], bool)[codes]


def _listed(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in left_out.items())
