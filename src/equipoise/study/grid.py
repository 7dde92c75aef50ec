"""The lists of a study make a grid: its federations, and on each of them every rule, clip and attack, by name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ..checks import BadInput
from .cells import Cell, Source, cell
from .planned_run import PlannedRun
from .rules import Chosen, chosen
from .schema import Rule, Study


def grid(study: Study, read: Sequence[Source]) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """Return the pilots that clips are calibrated by, and every run of the study, controls included."""
    pilots: list[PlannedRun] = []
    runs: list[PlannedRun] = []
    for source, k, seed in itertools.product(read, _client_counts(study), study.seeds):
        made = cell(source, k, seed, study)
        _check_members(study, made)
        for architecture, replicate in itertools.product(study.model.architecture, study.replicates):
            here = f"{source.name}-K{made.clients}-{architecture}"
            tail = f"-s{seed}" + (f"r{replicate}" if replicate else "")
            base = PlannedRun(
                f"pilot-{here}{tail}",
                made,
                architecture,
                chosen(Rule(name="fedavg")),
                None,
                None,
                None,
                study,
                is_pilot=True,
                replicate=replicate,
            )
            clips = ("none",) if architecture == "silo" else study.clip.norm  # a silo sends nothing to clip
            rules = _rules(study)
            if "calibrated" in clips and any(rule.central is None for rule in rules):
                pilots.append(base)
            for rule, clip in [(r, c) for r in rules for c in ((r.central.clip,) if r.central else clips)]:
                tag = rule.tag + (
                    f"-clip({clip if isinstance(clip, str) else format(clip, 'g')})" if len(clips) > 1 else ""
                )
                pilot = base.name if clip == "calibrated" else None
                runs += _with_controls(
                    replace(base, name=f"{here}-{tag}", rule=rule, clip=clip, pilot=pilot, is_pilot=False), tail
                )
    _check_names(runs)
    return pilots, runs


def _client_counts(study: Study) -> Sequence[int]:
    """How many clients to deal to, each in turn; natural clients are as many as they are."""
    return study.partition.clients[:1] if study.partition.kind == "natural" else study.partition.clients


def _rules(study: Study) -> list[Chosen]:
    """Every rule with every combination of its listed parameters, under every policy for undefined scores."""
    out = []
    for rule in study.rule:
        given = rule.model_extra or {}
        lists = {k: v if isinstance(v, list) else [v] for k, v in given.items()}
        if empty := [k for k, v in lists.items() if not v]:
            raise BadInput(f"rule {rule.name}: {empty[0]} is an empty list; give at least one value, or leave it out")
        for undefined, values in itertools.product(study.score.undefined, itertools.product(*lists.values())):
            several = len(study.score.undefined) > 1
            out.append(chosen(rule, dict(zip(lists, values, strict=True)), undefined, tag_policy=several))
    return out


def _with_controls(base: PlannedRun, tail: str) -> list[PlannedRun]:
    """The run under every kind and strength of the adversary, and one adversary-free control for all of them."""
    adversary = base.study.adversary
    if adversary is None:
        return [replace(base, name=base.name + tail)]
    controls = [replace(base, name=f"{base.name}-control{tail}")] if adversary.control else []
    attacked = replace(base, adversary=adversary, control=controls[0].name if controls else None)
    return [
        replace(attacked, name=f"{base.name}-{kind}({strength:g}){tail}", attack=kind, strength=strength)
        for kind, strength in itertools.product(adversary.kind, adversary.strength)
    ] + controls


def _check_members(study: Study, made: Cell) -> None:
    if study.adversary and max(study.adversary.members) >= made.clients:
        raise BadInput(
            f"adversary.members names client {max(study.adversary.members)}, "
            f"but there are {made.clients} clients, numbered from 0"
        )
    if study.adversary and len(study.adversary.members) >= made.clients:
        raise BadInput(f"adversary.members names all {made.clients} clients; leave at least one honest")


def _check_names(runs: Sequence[PlannedRun]) -> None:
    names = [p.name for p in runs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise BadInput(f"the study has the run {twice[0]!r} twice; remove the repeated seed, rule or value")
