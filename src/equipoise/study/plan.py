"""A study becomes runs: the grid, the waves, and which runs share a program of the learner."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .. import attacks, metrics
from ..checks import BadInput, extra, guarded
from ..layout import Layout
from ..records import entry
from ..rounds import stream
from ..types import Array, Choice, Learner, Reports, Round, Run
from .cells import Cell, Source, cell, sources
from .lookup import Function, catalogue, lookup
from .rules import Chosen, aggregator, broadcast_statistic, chosen
from .schema import Adversary, Study

FULL_BATCH_BELOW = 2_000
"""Training rows of the whole federation below which ``batch = "auto"`` means full batch."""


@dataclass(frozen=True)
class Planned:
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
            cohort=_some(part.fraction),
            lost=_chance(part.lost, "lost"),
            late=_chance(part.late, "late"),
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


@dataclass(frozen=True)
class Program:
    """Runs that share one stacked program, because width, layers, shared part and batch agree."""

    name: str
    learner: Learner
    layout: Layout
    runs: Sequence[Planned]
    rounds: int


def _some(fraction: float) -> Choice:
    def cohort(ids: Array, seed: int, t: int) -> Array:
        n = max(1, round(fraction * len(ids)))
        return np.sort(stream(seed, "cohort", t).choice(ids, n, replace=False)) if n < len(ids) else ids

    return cohort


def _chance(p: float, purpose: str) -> Choice:
    def hit(ids: Array, seed: int, t: int) -> Array:
        return ids[[stream(seed, purpose, t, int(c)).random() < p for c in ids]] if p else ids[:0]

    return hit


@dataclass(frozen=True)
class Plan:
    """All that a study is before it runs."""

    study: Study
    sources: Sequence[Source]
    programs: Sequence[Program]

    @property
    def log(self) -> list[str]:
        """What was read, dropped, encoded and dealt to whom."""
        told = [line for s in self.sources for line in s.log]
        seen = {id(p.cell): p.cell for program in self.programs for p in program.runs}
        return told + [line for c in seen.values() for line in c.log]

    def resolved(self) -> dict[str, Any]:
        """The study with every default filled in."""
        return self.study.model_dump(mode="json")

    def document(self, meta: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What ``study.json`` holds."""
        return {"study": self.resolved(), "log": self.log, "runs": meta}

    def line(self, r: Round, clip: float | None) -> dict[str, Any]:
        """One line of ``rounds.jsonl``."""
        return {**entry(r), "clip_norm": clip}

    def meta(self, planned: Planned, clip: float | None) -> dict[str, Any]:
        """What the records say about a run beside its rounds."""
        source = planned.cell.source
        served = {p.name: list(p.members) for g in self.programs for p in g.runs if p.control == planned.name}
        return {
            "run": planned.name,
            "data": source.name,
            "sensitive": source.sensitive,
            "group_names": source.group_names,
            "favourable": source.favourable,
            "favourable_label": source.favourable_label,
            "rule": planned.rule.name,
            "parameters": planned.rule.parameters,
            "formula": planned.rule.formula,
            "undefined_policy": planned.rule.undefined,
            "clients": planned.cell.clients,
            "client_names": planned.cell.client_names,
            "architecture": planned.architecture,
            "seed": planned.cell.seed,
            "replicate": planned.replicate,
            "adversary": planned.adversary.kind if planned.adversary else None,
            "adversaries": list(planned.members),
            "strength": planned.strength,
            "control": planned.control,
            "control_of": served,
            "pilot": planned.is_pilot,
            "clip": planned.clip,
            "clip_norm": clip,
            "final_moment": f"{self.study.evaluation.model}@test",
        }


def plan(study: Study) -> Plan:
    """Read the data, make every federation, and lay out all runs; whatever cannot work is refused here."""
    extra("torch", "train")
    read = sources(study)
    pilots: list[Planned] = []
    runs: list[Planned] = []
    for source, k, seed in itertools.product(read, _client_counts(study), study.seeds):
        made = cell(source, k, seed, study)
        _check_members(study, made)
        for architecture, replicate in itertools.product(study.model.architecture, study.replicates):
            here = f"{source.name}-K{made.clients}-{architecture}"
            tail = f"-s{seed}" + (f"r{replicate}" if replicate else "")
            base = Planned(
                f"pilot-{here}{tail}",
                made,
                architecture,
                chosen("fedavg"),
                None,
                None,
                study,
                is_pilot=True,
                replicate=replicate,
            )
            clips = ("none",) if architecture == "silo" else study.clip.norm  # a silo sends nothing to clip
            if "calibrated" in clips:
                pilots.append(base)
            for rule, clip in itertools.product(_rules(study), clips):
                tag = rule.tag + (
                    f"-clip({clip if isinstance(clip, str) else format(clip, 'g')})" if len(clips) > 1 else ""
                )
                pilot = base.name if clip == "calibrated" else None
                runs += _with_controls(
                    replace(base, name=f"{here}-{tag}", rule=rule, clip=clip, pilot=pilot, is_pilot=False), tail
                )
    _check_names(runs)
    for planned in runs:
        _try_out(planned)
    return Plan(study, read, [*_programs(study, pilots, "pilot"), *_programs(study, runs, "runs")])


def _client_counts(study: Study) -> Sequence[int]:
    """How many clients to deal to, each in turn; natural clients are as many as they are."""
    return study.partition.clients[:1] if study.partition.kind == "natural" else study.partition.clients


def _try_out(planned: Planned) -> None:
    """Refuse now what would fail in the first round: too few clients, rows that nobody holds, a rule that is none."""
    run, groups = planned.run(1.0), planned.cell.federation.groups
    ids = run.cohort(planned.cell.federation.clients, planned.seed, 1)
    run.aggregator.check(len(ids))
    for moment in run.aggregator.asks:
        when, _, view = moment.partition("@")
        if when not in ("received", "trained"):
            raise BadInput(f"rule {planned.rule.name}: moment {when!r} is unknown; take 'received' or 'trained'")
        if view and view not in planned.cell.federation.views:
            raise BadInput(
                f'score.on = "{view}" needs rows that the clients hold out; set data.held_fraction, such as 0.2'
            )
    table = np.tile(np.arange(1, 1 + 4 * groups).reshape(groups, 4), (len(ids), 1, 1))
    counts = dict.fromkeys(run.aggregator.asks, table)
    nobody_moved = Reports(ids, np.zeros((len(ids), 1)), np.ones(len(ids)), counts=counts)
    run.aggregator.step(nobody_moved, run.aggregator.init())


def _rules(study: Study) -> list[Chosen]:
    """Every rule with every combination of its listed parameters, under every policy for undefined scores."""
    out = []
    for rule in study.rule:
        given = rule.model_extra or {}
        grid = {k: [v] if not isinstance(v, list) or (k == "metrics" and _texts(v)) else v for k, v in given.items()}
        if empty := [k for k, v in grid.items() if not v]:
            raise BadInput(f"rule {rule.name}: {empty[0]} is an empty list; give at least one value, or leave it out")
        for undefined, values in itertools.product(study.score.undefined, itertools.product(*grid.values())):
            out.append(
                chosen(
                    rule.name,
                    dict(zip(grid, values, strict=True)),
                    undefined,
                    tag_policy=len(study.score.undefined) > 1,
                )
            )
    return out


def _texts(values: list[Any]) -> bool:
    """Whether a list is one list of names, such as the metrics of a joint rule, and not a list of values to try."""
    return all(isinstance(v, str) for v in values)


def _with_controls(base: Planned, tail: str) -> list[Planned]:
    """The run under every strength of the adversary, and one adversary-free control for all of them."""
    adversary = base.study.adversary
    if adversary is None:
        return [replace(base, name=base.name + tail)]
    controls = [replace(base, name=f"{base.name}-control{tail}")] if adversary.control else []
    attacked = replace(base, adversary=adversary, control=controls[0].name if controls else None)
    return [
        replace(attacked, name=f"{base.name}-{adversary.kind}({strength:g}){tail}", strength=strength)
        for strength in adversary.strength
    ] + controls


def _check_members(study: Study, made: Cell) -> None:
    if study.adversary and max(study.adversary.members) >= made.clients:
        raise BadInput(
            f"adversary.members names client {max(study.adversary.members)}, "
            f"but there are {made.clients} clients, numbered from 0"
        )
    if study.adversary and len(study.adversary.members) >= made.clients:
        raise BadInput(f"adversary.members names all {made.clients} clients; leave at least one honest")


def _check_names(runs: Sequence[Planned]) -> None:
    names = [p.name for p in runs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise BadInput(f"the study has the run {twice[0]!r} twice; remove the repeated seed, rule or value")


def _programs(study: Study, runs: Sequence[Planned], wave: str) -> list[Program]:
    """Group the runs of a wave by what a stacked program must agree on."""
    groups: dict[tuple[str, str], list[Planned]] = {}
    for planned in runs:
        groups.setdefault((planned.cell.source.name, planned.architecture), []).append(planned)
    return [
        _program(study, f"{wave} {name} {architecture}", members) for (name, architecture), members in groups.items()
    ]


def _program(study: Study, name: str, members: Sequence[Planned]) -> Program:
    from .. import learners, models, objectives

    section, training = study.model, study.training
    width = members[0].cell.source.table.x.shape[1]
    build = models.load_factory(section.module) if section.module else partial(models.mlp, hidden=section.hidden)
    if not section.module:
        _check_memory(study, width, members)
    factory = partial(build, width)
    shared = {"splitml": section.shared, "full": None, "silo": 0}[members[0].architecture]
    names = models.shared_names(factory(), shared)
    small = len(members[0].cell.source.table.y) * (1 - study.data.test_fraction) < FULL_BATCH_BELOW
    batch = ("full" if small else 64) if training.batch == "auto" else training.batch
    learner = learners.stacked(
        factory,
        shared=names,
        terms=catalogue(objectives),
        count=metrics.counts,
        steps=training.steps,
        batch=batch,
        sampling=training.sampling,
        optimiser=training.optimiser,
        lr=training.lr,
        momentum=training.momentum,
        keep_optimiser=training.keep_optimiser,
        balance=training.balance,
        dtype=training.dtype,
        engine=training.engine,
    )
    return Program(name, learner, learners.layouts(factory, names)[0], members, study.rounds)


def _check_memory(study: Study, width: int, members: Sequence[Planned]) -> None:
    """Refuse an MLP that this machine cannot hold once per client with two numbers of Adam's beside each parameter."""
    layers = [width, *study.model.hidden, 1]
    numbers = sum((a + 1) * b for a, b in pairwise(layers))
    clients = sum(p.cell.clients for p in members)
    needed = 4 * numbers * clients * np.dtype(study.training.dtype).itemsize
    try:
        here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return
    if needed > here:
        raise BadInput(
            f"{clients} clients side by side with {numbers:,} parameters each (model.hidden = "
            f"{list(study.model.hidden)}) need about {needed / 1e9:,.0f} GB, and this machine has {here / 1e9:,.0f}; "
            "make the layers smaller, or run fewer seeds, rules or clients at once"
        )
