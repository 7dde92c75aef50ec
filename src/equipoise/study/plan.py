"""A study becomes a plan: which runs share a program of the learner, and in which wave; what cannot work is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .. import metrics
from ..checks import BadInput, extra
from ..layout import Layout
from ..records import entry
from ..types import Learner, Reports, Round
from .cells import Source, sources
from .grid import grid
from .lookup import catalogue
from .planned_run import PlannedRun
from .schema import Study

FULL_BATCH_BELOW = 2_000
"""Training rows of the whole federation below which ``batch = "auto"`` means full batch."""


@dataclass(frozen=True)
class Program:
    """Runs that share one stacked program, because width, layers, shared part and batch agree."""

    name: str
    learner: Learner
    layout: Layout
    runs: Sequence[PlannedRun]
    rounds: int


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

    def meta(self, planned: PlannedRun, clip: float | None) -> dict[str, Any]:
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
    pilots, runs = grid(study, read)
    for planned in runs:
        _try_out(planned)
    return Plan(study, read, [*_programs(study, pilots, "pilot"), *_programs(study, runs, "runs")])


def _try_out(planned: PlannedRun) -> None:
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


def _programs(study: Study, runs: Sequence[PlannedRun], wave: str) -> list[Program]:
    """Group the runs of a wave by what a stacked program must agree on."""
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for planned in runs:
        groups.setdefault((planned.cell.source.name, planned.architecture), []).append(planned)
    return [
        _program(study, f"{wave} {name} {architecture}", members) for (name, architecture), members in groups.items()
    ]


def _program(study: Study, name: str, members: Sequence[PlannedRun]) -> Program:
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


def _check_memory(study: Study, width: int, members: Sequence[PlannedRun]) -> None:
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
