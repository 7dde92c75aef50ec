"""A study becomes a plan: which runs share a program of the learner, and in which wave; what cannot work is refused."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .. import metrics
from ..checks import BadInput, extra
from ..layout import Layout
from ..records import entry, strict
from ..rounds import part
from ..types import Array, Broadcast, Learner, Measure, Reports, Round, Run, Shard, Work
from .cells import Source, sources
from .grid import grid
from .lookup import Function, catalogue, check_types, lookup, parameters, refuse_unknown
from .planned_run import PlannedRun, risky_delta, spent, spent_centrally
from .probes import Eyes
from .schema import Study

FIGURES = frozenset({"eigenvalue", "trace", "trace_error"})
"""What clients can measure of their curvature."""


@dataclass(frozen=True)
class Program:
    """Runs that share one stacked program, because width, layers, shared part, batch and gradient stage agree.

    ``eyes``: what the laboratory looks at trained models with.
    """

    name: str
    learner: Learner
    eyes: Eyes
    layout: Layout
    runs: Sequence[PlannedRun]
    rounds: int
    log: tuple[str, ...] = ()

    def first_model(self, run: Run) -> Array:
        """Return the model (d,) that a run begins with."""
        return self.learner.init(run.federation, run.seed)[0]


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
        said = [line for program in self.programs for line in program.log]
        return told + [line for c in seen.values() for line in c.log] + list(dict.fromkeys(said))

    def find(self, run: str) -> tuple[Program, PlannedRun]:
        """Return a run by name, with the program it shares."""
        for program in self.programs:
            for planned in program.runs:
                if planned.name == run:
                    return program, planned
        raise BadInput(f"the study has no run {run!r}; give everyone the same study file")

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
            "classes": len(source.table.classes),
            "rule": planned.rule.name,
            "label": planned.rule.label,
            "parameters": planned.rule.parameters,
            "scores": planned.rule.scores,
            "terms": planned.rule.terms,
            "shuffled": planned.rule.shuffled,
            "training": planned.rule.training,
            "private": spent(planned),
            "central": spent_centrally(planned),
            "inference": None if planned.is_pilot else _attacks_on_privacy(self.study),
            "formula": planned.rule.formula,
            "undefined_policy": planned.rule.undefined,
            "clients": planned.cell.clients,
            "client_names": planned.cell.client_names,
            "architecture": planned.architecture,
            "seed": planned.cell.seed,
            "replicate": planned.replicate,
            "adversary": planned.attack,
            "adversaries": list(planned.members),
            "strength": planned.strength,
            "control": planned.control,
            "control_of": served,
            "pilot": planned.is_pilot,
            "clip": planned.clip,
            "clip_norm": clip,
            "final_moment": f"{self.study.evaluation.model}@test",
        }


def _attacks_on_privacy(study: Study) -> dict[str, Any] | None:
    section = study.inference
    return None if section is None else {"source": section.source > 0, "membership": section.membership}


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
        if moment in FIGURES:
            continue
        if when not in ("received", "trained"):
            raise BadInput(f"rule {planned.rule.name}: moment {when!r} is unknown; take 'received' or 'trained'")
        if view and view not in planned.cell.federation.views:
            raise BadInput(
                f'score.on = "{view}" needs rows that the clients hold out; set data.held_fraction, such as 0.2'
            )
    table = np.tile(np.arange(1, 1 + 4 * groups).reshape(groups, 4), (len(ids), 1, 1))
    moments, figures = run.aggregator.asks - FIGURES, run.aggregator.asks & FIGURES
    counts = dict.fromkeys(moments, table)
    told = dict.fromkeys(figures, np.ones(len(ids)))
    nobody_moved = Reports(ids, np.zeros((len(ids), 1)), np.ones(len(ids)), told, counts)
    run.aggregator.step(nobody_moved, run.aggregator.init())


def _programs(study: Study, runs: Sequence[PlannedRun], wave: str) -> list[Program]:
    """Group the runs of a wave by what a stacked program must agree on."""
    groups: dict[tuple[str, str, str], list[PlannedRun]] = {}
    for planned in runs:
        own = strict(
            {
                "training": planned.training.model_dump(),
                "private": planned.private and planned.private.model_dump(),
                "measured": bool(planned.run(1.0).aggregator.asks & FIGURES),
            }
        )
        groups.setdefault((planned.cell.source.name, planned.architecture, own), []).append(planned)
    names: dict[str, int] = {}
    out = []
    for (source, architecture, _), members in groups.items():
        name = f"{wave} {source} {architecture}"
        names[name] = names.get(name, 0) + 1
        out.append(_program(study, name if names[name] == 1 else f"{name} {names[name]}", members))
    return out


def _program(study: Study, name: str, members: Sequence[PlannedRun]) -> Program:
    from .. import curvature, learners, models

    first = members[0]
    source, training = first.cell.source, first.training
    factory = _factory(study, source)
    if ":" not in study.model.name:
        _check_memory(study, factory, members)
    module = factory()
    shared = {"splitml": study.model.shared, "full": None, "silo": 0}[first.architecture]
    names = models.shared_names(module, shared, study.model.buffers)
    _refuse_counters(members, module, names)
    classes = len(source.table.classes)
    stacked = partial(
        learners.stacked,
        factory,
        shared=names,
        count=metrics.counts if classes == 2 else metrics.hits,
        epochs=training.epochs,
        batch=first.batch,
        sampling=training.sampling,
        optimiser=training.optimiser,
        lr=training.lr,
        momentum=training.momentum,
        keep_optimiser=training.keep_optimiser,
        balance=training.balance,
        dtype=training.dtype,
        engine=training.engine,
        private=learners.Private(first.private.clip, first.private.noise) if first.private else None,
    )

    def measures() -> list[Measure]:
        made = _measure(study, curvature)  # refuses bad settings also where nobody asks
        return [made] if first.run(1.0).aggregator.asks & FIGURES else []

    # What terms and measures have seen, they may remember: the trial has its own.
    _try_training(stacked(terms=_terms(members, module), measures=measures(), steps=1), members)
    terms = _terms(members, module)
    learner = stacked(terms=terms, measures=measures(), steps=training.steps)
    layouts = learners.layouts(factory, names)
    eyes = Eyes(learner, factory, names, split=bool(layouts[1].size) and first.architecture == "splitml")
    members[0].run(1.0, eyes)  # refuses now what its probe would refuse in the first round
    log = [f"term {n}: adapted to the model {study.model.name}" for n, f in terms.items() if getattr(f, "adapted", 0)]
    log += [note for p in members for note in risky_delta(p)]
    return Program(name, learner, eyes, layouts[0], members, study.rounds, tuple(log))


def _refuse_counters(members: Sequence[PlannedRun], module: Any, shared: Sequence[str]) -> None:
    """Refuse whole numbers that travel beside a model that noise is to hide clients in: they cannot carry it."""
    layers, central = {name.rpartition(".")[0] for name in shared}, [p.rule.name for p in members if p.rule.central]
    whole = [n for n, b in module.named_buffers() if not b.is_floating_point() and n.rpartition(".")[0] in layers]
    if central and whole:
        raise BadInput(
            f"rule {central[0]}: the buffer {whole[0]!r} is a whole number that central noise is not on; take a model "
            "without batch normalisation, or leave central out"
        )


def _try_training(learner: Learner, members: Sequence[PlannedRun]) -> None:
    """Take one step on two rows with the terms of every method: refuse now what they or a measure would refuse then."""
    works = []
    for planned in {tuple(sorted(p.terms)): p for p in members}.values():
        run = planned.run(1.0)
        one = part(run.federation, np.array(planned.members[:1] or (0,)))
        few = [Shard(s.x[:2], s.y[:2], s.group[:2]) for s in one.shards]
        model, memory = learner.init(trial := replace(one, shards=few, views={}), run.seed)
        sent = Broadcast(1, one.clients, model, run.aggregator.tell(run.aggregator.init(), one.clients))
        works.append(Work(trial, sent, memory, run.seed, run.aggregator.asks & FIGURES))
    learner.work(works)


def _factory(study: Study, source: Source) -> Callable[[], Any]:
    """Return the builder of the study's model, for as many features and classes as the data set has."""
    from .. import models

    section, given = study.model, study.model.model_extra or {}
    what = f"model {section.name}"
    ours = catalogue(models)
    turns = "turns a number of features into a torch module"
    known: dict[str, Any] = {"classes": len(source.table.classes), "shape": source.table.shape}
    if ":" in section.name:
        build = models.load_factory(section.name, **known, **given)
    else:
        maker = lookup("model.name", section.name, ours, turns)
        own = parameters(maker, wired=known)
        refuse_unknown(what, given, own)
        check_types(what, maker, given, {})
        takes = inspect.signature(maker).parameters
        build = partial(maker, **{k: v for k, v in known.items() if k in takes}, **given)
    return partial(build, source.table.x.shape[1])


def _terms(members: Sequence[PlannedRun], module: Any) -> dict[str, Function]:
    """Return the loss terms that these runs name; one that is about the layers is made for the model."""
    from .. import objectives

    ours = catalogue(objectives)
    out = {}
    for name in dict.fromkeys(name for p in members for name in p.terms):
        term = lookup("term", name, ours, "turns a Local into one number per slot")
        about_layers = next(iter(inspect.signature(term).parameters), "") == "module"
        out[name] = term(module) if about_layers else term
    return out


def _measure(study: Study, curvature: Any) -> Measure:
    section = study.curvature
    maker = getattr(curvature, section.preset)
    given = section.model_extra or {}
    refuse_unknown("curvature", given, parameters(maker))
    check_types("curvature", maker, given, {})
    measure: Measure = maker(**given)
    return measure


def _check_memory(study: Study, factory: Callable[[], Any], members: Sequence[PlannedRun]) -> None:
    """Refuse a model that this machine cannot hold once per client with two numbers of Adam's beside each parameter."""
    import torch

    with torch.device("meta"):  # has the shapes and takes no memory
        numbers = sum(p.numel() for p in factory().parameters())
    clients = sum(p.cell.clients for p in members)
    needed = 4 * numbers * clients * np.dtype(study.training.dtype).itemsize
    try:
        here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return
    if needed > here:
        raise BadInput(
            f"{clients} clients side by side with {numbers:,} parameters each (model {study.model.name}) need about "
            f"{needed / 1e9:,.0f} GB, and this machine has {here / 1e9:,.0f}; "
            "make the layers smaller, or run fewer seeds, rules or clients at once"
        )
