"""A plan becomes a run folder: earlier waves first, one program after another, a checkpoint after every step."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import __version__
from ..checks import BadInput
from ..records import Checkpoint, Journal, load, plain, replace_file, save, strict, summarise, write_clients
from ..simulate import simulate
from ..types import Round, Run, Snapshot
from .plan import Plan, Program
from .planned_run import PlannedRun


class Step(NamedTuple):
    """One step of a program that has just been written: for progress bars and loggers."""

    program: str
    round: int
    rounds: int
    runs: int
    lines: Sequence[Mapping[str, Any]]


def _silently(step: Step) -> None:
    return None


RoundsOf = Callable[[Program, Sequence[Run], Mapping[str, Snapshot]], Iterator[list[Round]]]
"""(program, its runs, where those stand that have begun) -> their rounds, step by step."""


def simulated(program: Program, runs: Sequence[Run], started: Mapping[str, Snapshot]) -> Iterator[list[Round]]:
    """Yield rounds computed on this machine."""
    return simulate(runs, program.learner, started)


def execute(
    plan: Plan,
    folder: Path,
    *,
    resume: bool = False,
    command: str = "",
    progress: Callable[[Step], None] = _silently,
    rounds_of: RoundsOf = simulated,
) -> list[dict[str, Any]]:
    """Run a study into ``folder`` and return its summary, one row per run.

    Killed at any moment and called again with ``resume``, the folder ends with the bytes of an unbroken run (clock
    times and versions, in ``timing.jsonl`` and ``environment.json``, apart). ``rounds_of`` says where rounds come from.

    Raises
    ------
    BadInput : the folder holds something else, another study, or this one and ``resume`` is not set; its checkpoint or
        journal is damaged; a run cannot go on
    """
    open_folder(plan, folder, resume)
    _environment(plan, folder, command)
    clips: dict[str, float | None] = {}
    with Journal(folder / "rounds.jsonl") as journal:
        _programs(plan, folder, journal, clips, progress, rounds_of)
        journal.end()
        lines = list(journal.lines())
        meta = [plan.meta(p, clips[p.name]) for program in plan.programs for p in program.runs]
        rows = summarise(lines, meta)
        write_clients(folder / "clients.csv", lines, meta)
        _write(folder / "study.json", strict(plan.document(meta), indent=1))
        _write(folder / "summary.json", strict({"rows": rows}, indent=1))
    return rows


def _programs(
    plan: Plan,
    folder: Path,
    journal: Journal,
    clips: dict[str, float | None],
    progress: Callable[[Step], None],
    rounds_of: RoundsOf,
) -> None:
    """Go on with every program from the checkpoint, writing lines first and the checkpoint after them."""
    checkpoint = folder / "checkpoint.safetensors"
    layouts = {p.name: program.layout for program in plan.programs for p in program.runs}
    snapshots: dict[str, Snapshot] = {}
    if checkpoint.exists():
        saved = load(checkpoint, layouts)
        journal.skip(saved.lines, saved.digest)
        snapshots = dict(saved.snapshots)
    for program in plan.programs:
        began = time.monotonic()
        runs = [p.run(_clip(plan, p, journal, clips), program.eyes) for p in program.runs]
        started = {r.name: snapshots[r.name] for r in runs if r.name in snapshots}
        if not _is_over(program, started):
            step = 0
            for rounds in rounds_of(program, runs, started):
                lines = [plan.line(r, clips[r.run]) for r in rounds]
                for line in lines:
                    journal.write(line)
                journal.flush()
                snapshots |= {r.run: r.after for r in rounds}
                save(checkpoint, Checkpoint(snapshots, journal.done, journal.digest()), layouts)
                step = max(r.broadcast.round for r in rounds if not r.closing)
                progress(Step(program.name, step, plan.study.rounds, len(runs), lines))
            _append(
                folder / "timing.jsonl",
                {
                    "program": program.name,
                    "runs": len(runs),
                    "rounds": step,
                    "seconds": round(time.monotonic() - began, 3),
                },
            )
        else:
            progress(Step(program.name, plan.study.rounds, plan.study.rounds, len(runs), ()))


def _is_over(program: Program, started: Mapping[str, Snapshot]) -> bool:
    """A run's closing line is written with its last round, so a program whose runs are all at the end is done."""
    return len(started) == len(program.runs) and all(s.round >= program.rounds for s in started.values())


def _clip(plan: Plan, planned: PlannedRun, journal: Journal, clips: dict[str, float | None]) -> float | None:
    """The longest update of this run: given, none, or read off the norms of its cell's pilot in an earlier wave."""
    given = None if isinstance(planned.clip, str) else float(planned.clip)
    clips[planned.name] = given if planned.pilot is None else _calibrated(planned.pilot, plan, journal, clips)
    return clips[planned.name]


def _calibrated(pilot: str, plan: Plan, journal: Journal, clips: Mapping[str, float | None]) -> float | None:
    """A percentile of the pilot's norms; the lines are searched for the first run of a cell only."""
    same_cell = [p.name for program in plan.programs for p in program.runs if p.pilot == pilot and p.name in clips]
    if same_cell:
        return clips[same_cell[0]]
    lines = [line for line in journal.lines() if line["run"] == pilot]
    norms = [n for line in lines for n in line.get("norms", ()) if n is not None]
    clip = float(np.percentile(norms, plan.study.clip.percentile)) if norms else 0.0
    if not clip > 0:
        why = next((f" (client {c}: {w})" for x in lines for c, w in x.get("rejected", {}).items()), "")
        raise BadInput(
            f"the pilot {pilot} had {len(norms)} updates, none long enough to calibrate a clip from{why}; "
            'give clip.norm a number or "none", or make the training gentler'
        )
    return clip


def open_folder(plan: Plan, folder: Path, resume: bool) -> None:
    """Make the folder, or make sure that it holds this study."""
    document = folder / "study.json"
    if document.exists():
        try:
            there = json.loads(document.read_text(encoding="utf-8"))["study"]
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{document} is damaged; choose another --out") from None
        if there != plain(plan.resolved()):
            raise BadInput(
                f"{folder} holds another run ({there.get('name')!r}, or other settings); choose another --out"
            )
        if not resume:
            raise BadInput(f"{folder} already holds this run; add --resume to go on with it, or choose another --out")
        return
    begun = document.with_name(document.name + ".part")  # all that a process killed at once leaves behind
    if folder.exists() and (not folder.is_dir() or any(p != begun for p in folder.iterdir())):
        raise BadInput(f"{folder} is not empty and holds no run of ours; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"{folder} cannot be made ({e.strerror}); choose another --out") from None
    _write(
        document,
        strict(plan.document([plan.meta(p, None) for program in plan.programs for p in program.runs]), indent=1),
    )


def _environment(plan: Plan, folder: Path, command: str) -> None:
    """Append this machine and these versions, unless they stand there already."""
    versions = {}
    for name in ("numpy", "torch", "safetensors", "pydantic"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    here: dict[str, Any] = {
        "equipoise": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": versions,
        "command": command,
        "data": {s.name: s.hashes for s in plan.sources},
    }
    path = folder / "environment.json"
    there = _environments(path)
    for earlier in there:
        for name, hashes in earlier["data"].items():
            if here["data"].get(name, hashes) != hashes:
                raise BadInput(
                    f"the data {name!r} are not those that {path.parent} was begun with (another sha256); "
                    "put the old file back, or choose another --out"
                )
    if here not in there:
        _write(path, strict([*there, here], indent=1))


def _environments(path: Path) -> list[dict[str, Any]]:
    """What stands in environment.json: machines, versions and data that the run was computed with."""
    if not path.exists():
        return []
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(hashes, dict) for e in there for hashes in e["data"].values()):
            return list(there)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise BadInput(f"{path} is damaged; delete it, and --resume writes it again")


def _write(path: Path, text: str) -> None:
    replace_file(path, text + "\n")


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as f:
        f.write(strict(line) + "\n")
