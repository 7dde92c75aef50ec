"""One run of a study, before it runs: its federation, its rule, its adversary, and who takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .. import attacks
from ..checks import BadInput, guarded
from ..rounds import stream
from ..types import Array, Choice, Reports, Run
from .cells import Cell
from .lookup import Function, catalogue, lookup
from .rules import Chosen, aggregator, broadcast_statistic
from .schema import Adversary, Study


@dataclass(frozen=True)
class PlannedRun:
    """One run of the study, all but the length of its clip, which may come from a pilot of an earlier wave."""

    name: str
    cell: Cell
    architecture: str
    rule: Chosen
    adversary: Adversary | None
    strength: float | None
    study: Study
    clip: float | str = "none"
    pilot: str | None = None
    is_pilot: bool = False
    control: str | None = None
    replicate: int = 0

    @property
    def seed(self) -> int:
        """Seed of the first model, the batches and who takes part; replicate 0 has the seed of the partition."""
        base = self.cell.seed
        return int(stream(base, "replicate", self.replicate).integers(2**53)) if self.replicate else base

    def run(self, clip: float | None) -> Run:
        """Return the run with its clip."""
        federation, study, adversary = self.cell.federation, self.study, self.adversary
        k, members = self.cell.clients, self.members
        rule = aggregator(self.rule, study.score, k, clip)
        terms: dict[str, Array] = {"cross_entropy": np.ones(k)}
        if study.training.proximal:
            terms["proximal"] = np.full(k, study.training.proximal)
        hostile = []
        if adversary is not None:
            if adversary.kind in _hostile_terms():
                terms[adversary.kind] = np.where(np.isin(federation.clients, members), self.strength or 0.0, 0.0)
            else:
                hostile.append(_tamper(adversary.kind, members, self.strength))
            if adversary.inflate != 1.0:
                hostile.append(attacks.inflate(members, adversary.inflate))
            if adversary.kind == "gaming":
                rule = broadcast_statistic(rule, study.score, adversary)
        part = study.participation
        return Run(
            self.name,
            replace(federation, terms=terms),
            rule,
            self.seed,
            study.rounds,
            cohort=_cohort(part.fraction),
            lost=_each_with_chance(part.lost, "lost"),
            late=_each_with_chance(part.late, "late"),
            tamper=attacks.both(*hostile),
            observes=self._observes,
        )

    @property
    def members(self) -> tuple[int, ...]:
        """Ids of the hostile clients."""
        return self.adversary.members if self.adversary else ()

    def _observes(self, t: int) -> frozenset[str]:
        """The client's own figures every round; the test pool every so many rounds, and at the end."""
        study = self.study
        moments = {"trained"}
        if t == study.rounds + 1:
            moments = {"received", "received@test"}
        elif study.evaluation.every and (t - 1) % study.evaluation.every == 0:
            moments |= {"received", "received@test"}
        if study.evaluation.model == "trained" and t == study.rounds:
            moments.add("trained@test")
        return frozenset(moments)


def _hostile_terms() -> dict[str, Function]:
    """The loss terms that only an adversary has."""
    from .. import objectives

    return {name: term for name, term in catalogue(objectives).items() if name not in ("cross_entropy", "proximal")}


def _tamper(kind: str, members: Sequence[int], strength: float | None) -> Function:
    ours = {name: f for name, f in catalogue(attacks).items() if f is not attacks.both}
    turns = "turns members and a strength into (reports, broadcast) -> reports"
    tamper = lookup("adversary.kind", kind, ours | _hostile_terms(), turns)(members, strength)
    if ":" not in kind:
        return tamper  # type: ignore[no-any-return]
    if not callable(tamper):
        raise BadInput(f"adversary.kind {kind!r} made a {type(tamper).__name__}; it {turns}")
    return guarded(f"the attack of adversary.kind {kind!r}", tamper, Reports)


def _cohort(fraction: float) -> Choice:
    def drawn(ids: Array, seed: int, t: int) -> Array:
        n = max(1, round(fraction * len(ids)))
        return np.sort(stream(seed, "cohort", t).choice(ids, n, replace=False)) if n < len(ids) else ids

    return drawn


def _each_with_chance(p: float, purpose: str) -> Choice:
    def hit(ids: Array, seed: int, t: int) -> Array:
        return ids[[stream(seed, purpose, t, int(c)).random() < p for c in ids]] if p else ids[:0]

    return hit
