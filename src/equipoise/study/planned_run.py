"""One run of a study, before it runs: its federation, its rule, its adversary, and who takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from .. import attacks
from ..checks import BadInput, guarded
from ..rounds import stream
from ..types import Array, Broadcast, Choice, Reports, Run
from .cells import Cell
from .lookup import Function, catalogue, lookup
from .probes import Eyes, probe
from .rules import Chosen, aggregator, broadcast_statistic
from .schema import Adversary, Private, Study, Training, checked

FULL_BATCH_BELOW = 2_000
"""Training rows of the whole federation below which ``batch = "auto"`` means full batch."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of the study, all but the length of its clip, which may come from a pilot of an earlier wave."""

    name: str
    cell: Cell
    architecture: str
    rule: Chosen
    adversary: Adversary | None
    attack: str | None
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

    @property
    def training(self) -> Training:
        """The study's [training], with what this method has of its own."""
        base = self.study.training.model_dump()
        sampling = {"sampling": "poisson", "balance": "none"} if self.private else {}
        return checked(Training, base | sampling | dict(self.rule.training), f"training of the rule {self.rule.name}")

    @property
    def batch(self) -> int | Literal["full"]:
        """Rows of a step, "auto" resolved."""
        if self.training.batch != "auto":
            return self.training.batch
        rows = len(self.cell.source.table.y) * (1 - self.study.data.test_fraction)
        return "full" if rows < FULL_BATCH_BELOW else 64

    @property
    def private(self) -> Private | None:
        """The method's DP-SGD, if it has one."""
        return self.rule.private

    @property
    def terms(self) -> dict[str, Array]:
        """Terms of the local loss with every client's coefficient (K,)."""
        federation, k = self.cell.federation, self.cell.clients
        proximal = {"proximal": self.training.proximal} if self.training.proximal else {}
        everyone = {"cross_entropy": 1.0} | proximal | dict(self.rule.terms)
        terms = {name: np.full(k, float(c)) for name, c in everyone.items()}
        if self.attack in _hostile_terms():
            hostile = np.isin(federation.clients, self.members)
            terms[self.attack] = np.where(hostile, self.strength or 0.0, 0.0)
        return terms

    def run(self, clip: float | None, eyes: Eyes | None = None) -> Run:
        """Return the run with its clip; the laboratory attacks privacy if it is given eyes."""
        federation, study, adversary = self.cell.federation, self.study, self.adversary
        k, members = self.cell.clients, self.members
        _hideable(self)
        rule = aggregator(self.rule, study.score, k, clip, self.seed)
        hostile = []
        if adversary is not None:
            if self.attack not in _hostile_terms():
                hostile.append(_tamper(str(self.attack), members, self.strength))
            if adversary.inflate != 1.0:
                hostile.append(attacks.inflate(members, adversary.inflate))
            if self.attack == "gaming":
                rule = broadcast_statistic(rule, study.score, adversary)
        part = study.participation
        return Run(
            self.name,
            replace(federation, terms=self.terms),
            rule,
            self.seed,
            study.rounds,
            cohort=_cohort(part.fraction),
            lost=_each_with_chance(part.lost, "lost"),
            late=_each_with_chance(part.late, "late"),
            tamper=attacks.both(*hostile),
            observes=self._observes,
            **(
                {"probe": probe(self.cell, study, self.seed, eyes)}
                if eyes and study.inference and not self.is_pilot
                else {}
            ),
        )

    @property
    def members(self) -> tuple[int, ...]:
        """Ids of the hostile clients."""
        return self.adversary.members if self.adversary else ()

    @property
    def omniscient(self) -> bool:
        """Whether the attack knows what honest clients send, which no client of a deployment does."""
        return bool(getattr(getattr(attacks, str(self.attack), None), "omniscient", False))

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
    from ..objectives import bias

    return catalogue(bias)


def _tamper(kind: str, members: Sequence[int], strength: float | None) -> Function:
    ours = {name: f for name, f in catalogue(attacks).items() if f is not attacks.both}
    turns = "turns members and a strength into (reports, broadcast) -> reports"
    tamper = lookup("adversary.kind", kind, ours | _hostile_terms(), turns)(members, strength)
    if ":" not in kind:
        return tamper  # type: ignore[no-any-return]
    if not callable(tamper):
        raise BadInput(f"adversary.kind {kind!r} made a {type(tamper).__name__}; it {turns}")
    what = f"the attack of adversary.kind {kind!r}"
    attack = guarded(what, tamper, Reports)

    def checked_attack(reports: Reports, broadcast: Broadcast) -> Reports:
        sent: Reports = attack(reports, broadcast)
        for name in reports.figures:
            claimed = np.asarray(sent.figures.get(name, ()))
            if claimed.dtype.kind not in "fiu" or claimed.shape != sent.clients.shape:
                raise BadInput(
                    f"{what} claims {name} of shape {claimed.shape} and type {claimed.dtype} for {len(sent.clients)} "
                    "clients; return one number for each, NaN for none"
                )
        return sent

    return checked_attack


def _hideable(planned: PlannedRun) -> None:
    """Refuse what would tell the clients, or everybody, something that central noise is not on."""
    if planned.rule.central is None:
        return
    if planned.architecture == "silo":
        raise BadInput(
            f"rule {planned.rule.name}: central noise is for what clients share, and a silo shares nothing; "
            "leave central out, or take another model.architecture"
        )
    if planned.attack == "gaming":
        raise BadInput(
            f"rule {planned.rule.name}: gaming clients are told F_global, which central noise is not on; "
            "leave central out, or take another adversary.kind"
        )


def risky_delta(planned: PlannedRun) -> list[str]:
    """Say so where a delta allows what noise is to prevent."""
    rows, clients = max(len(shard.y) for shard in planned.cell.federation.shards), planned.cell.clients
    notes = []
    for section, n, of in ((planned.private, rows, "the rows of a client"), (planned.rule.central, clients, "clients")):
        if section is not None and section.delta * n >= 1:
            notes.append(
                f"note: delta = {section.delta:g} is not below 1 / {n}, {of}: publishing one of them whole would pass "
                "for private; lower it"
            )
    return notes


def spent(planned: PlannedRun) -> dict[str, Any] | None:
    """Return what DP-SGD has spent after all rounds at the client that spent most, and at each; None without it."""
    private, training = planned.private, planned.training
    if private is None:
        return None
    sizes = [len(shard.y) for shard in planned.cell.federation.shards]
    batch = max(sizes) if planned.batch == "full" else planned.batch
    rounds = planned.study.rounds
    steps = [rounds * (training.steps or training.epochs * -(-n // batch)) for n in sizes]
    each = _accounted(private.noise, tuple(sizes), batch, tuple(steps), private.delta)
    worst = max(each, key=lambda s: s.epsilon)
    return {**worst._asdict(), "clip": private.clip, "noise": private.noise, "epsilons": [s.epsilon for s in each]}


def spent_centrally(planned: PlannedRun) -> dict[str, Any] | None:
    """Return what noise at the server has spent after all rounds on every client; None without it.

    A fixed number of clients is asked in each round, or all of them, which is no Poisson sample: nothing is amplified.
    """
    central = planned.rule.central
    if central is None:
        return None
    from .. import accounting

    spent = accounting.central(central.noise, planned.study.rounds, central.delta, adjacency=central.adjacency)
    return central.model_dump() | spent._asdict()


@lru_cache(maxsize=64)
def _accounted(noise: float, sizes: tuple[int, ...], batch: float, steps: tuple[int, ...], delta: float) -> Any:
    from .. import accounting

    return accounting.per_client(noise, sizes, batch, steps, delta)


def _cohort(fraction: float) -> Choice:
    def drawn(ids: Array, seed: int, t: int) -> Array:
        n = max(1, round(fraction * len(ids)))
        return np.sort(stream(seed, "cohort", t).choice(ids, n, replace=False)) if n < len(ids) else ids

    return drawn


def _each_with_chance(p: float, purpose: str) -> Choice:
    def hit(ids: Array, seed: int, t: int) -> Array:
        return ids[[stream(seed, purpose, t, int(c)).random() < p for c in ids]] if p else ids[:0]

    return hit
