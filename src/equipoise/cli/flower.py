"""``equipoise flower new DIR | up``: a study as a Flower app, and a whole federation on this machine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from . import app

if TYPE_CHECKING:
    from ..flower.up import Drill, Line
    from ..study import Plan, Step, Study

flower = typer.Typer(help="Studies on Flower: write an app, try out a whole federation.", no_args_is_help=True)
app.add_typer(flower, name="flower")

StudyName = Annotated[
    str, typer.Option("--study", help="A study file (TOML), or the name of a ready study.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the study; may be repeated."),
]


@flower.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the app; its last part names the app.")],
    study: StudyName,
    settings: Settings = None,
) -> None:
    """Write a Flower app that runs a study: short modules, the resolved study, a README; `flwr run` takes it as is."""
    from ..flower.new import write_app
    from ..study import read

    for path in write_app(folder, read(study, settings or ())):
        typer.echo(f"wrote {path}")
    typer.echo(f"{folder / 'README.md'} says how to run it")


@flower.command()
def up(
    study: StudyName,
    settings: Settings = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes; as many as the study has clients if not given.", show_default=False),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt, and let in only nodes whose keys are registered.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/<name of the study> if not given.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that the folder holds; a finished one is only printed.")
    ] = False,
    deadline: Annotated[float, typer.Option(min=1.0, help="Seconds that a round waits for replies.")] = 3600.0,
    kill_node: Annotated[
        int | None, typer.Option(metavar="I", min=0, help="Drill: kill node I when round --at-round begins.")
    ] = None,
    kill_server: Annotated[
        bool, typer.Option("--kill-server", help="Drill: kill the server there, start it again, and resume the run.")
    ] = False,
    at_round: Annotated[
        int | None, typer.Option(metavar="N", help="Round of the drill, from 2 to the last.", show_default=False)
    ] = None,
) -> None:
    """Start a whole federation on this machine, run a study on it, and leave nothing behind.

    SuperLink and SuperNodes are real processes that talk over loopback; certificates and keys are made for the
    occasion. Ends with the table and report of `equipoise run`.
    """
    from ..flower.server import refuse_omniscient
    from ..flower.up import LOGS, RunFailed
    from ..study import plan, read
    from .run import one_thread, print_table, write_report

    parsed = read(study, settings or ())
    if parsed.inference is not None:
        typer.echo(
            "[inference] is left out: its attacks need the clients' rows; run them with `equipoise run`", err=True
        )
        parsed = parsed.model_copy(update={"inference": None})
    one_thread()
    planned = plan(parsed)
    refuse_omniscient(planned)
    count = _checked_nodes(planned, nodes)
    drill = _drill(kill_node, kill_server, at_round, count, parsed.rounds)
    place = out or Path("runs") / parsed.name
    began, seconds = time.monotonic(), list[float]()
    if not (resume and (place / "summary.json").exists()):
        try:
            seconds = _run(planned, parsed, place, count, tls, resume, deadline, drill)
        except RunFailed as e:
            print(f"error: {e}", file=sys.stderr)
            raise typer.Exit(1) from None
    page = write_report(place)
    print_table(json.loads((place / "summary.json").read_text(encoding="utf-8"))["rows"])
    if seconds:
        usual, total = median(seconds[1:] or seconds), time.monotonic() - began
        print(
            f"seconds     {usual:.1f} per round (median), {seconds[0]:.1f} the first, {total:.0f} with start and stop"
        )
    print(f"run folder  {place}")
    print(f"report      {page}" if page else "report      not written: pip install 'equipoise[report]'")
    print(f"logs        {place / LOGS}")


def _run(
    planned: Plan, parsed: Study, place: Path, nodes: int, tls: bool, resume: bool, deadline: float, drill: Drill | None
) -> list[float]:
    """Open the folder, run the study's app on a federation of this machine, and show how it gets on."""
    import shutil

    from ..flower.new import write_app
    from ..flower.up import MEMORIES
    from ..flower.up import up as federate
    from ..study.execute import open_folder
    from .run import RoundsBar, print_plan

    open_folder(planned, place, resume)
    print_plan(planned, short=True)
    with TemporaryDirectory(prefix="equipoise-app-") as folder, ExitStack() as stack:
        written = Path(folder) / "equipoise-study"
        write_app(written, parsed)
        step = stack.enter_context(RoundsBar(planned))
        seconds = federate(
            written,
            place,
            nodes=nodes,
            tls=tls,
            config={"resume": True, "deadline-s": deadline},  # of an empty run, if it was opened just now
            drill=drill,
            drilled=planned.programs[-1].runs[0].name,
            told=_steps(planned, step),
            say=lambda text: print(text, file=sys.stderr),
        )
    shutil.rmtree(place / MEMORIES, ignore_errors=True)
    return seconds


def _steps(planned: Plan, step: Callable[[Step], None]) -> Callable[[Sequence[Line]], None]:
    """Turn lines of the journal into steps of their programs."""
    from ..study import Step

    def told(lines: Sequence[Line]) -> None:
        by_program: dict[str, list[Line]] = {}
        for line in lines:
            by_program.setdefault(planned.find(line["run"])[0].name, []).append(line)
        for program in planned.programs:
            own = by_program.get(program.name, [])
            if rounds := [x["round"] for x in own if not x["closing"]]:
                step(Step(program.name, max(rounds), program.rounds, len(program.runs), own))

    return told


def _checked_nodes(planned: Plan, nodes: int | None) -> int:
    from ..checks import BadInput

    clients = max(p.cell.clients for program in planned.programs for p in program.runs)
    if nodes is not None and nodes > clients:
        raise BadInput(
            f"--nodes {nodes} is more than the study's {clients} clients; lower it, or raise partition.clients"
        )
    if nodes is not None and nodes < clients:
        typer.echo(f"{clients - nodes} of {clients} clients have no node and stay away", err=True)
    return nodes or clients


def _drill(node: int | None, server: bool, at: int | None, nodes: int, rounds: int) -> Drill | None:
    from ..checks import BadInput
    from ..flower.up import Drill

    if node is None and not server:
        if at is not None:
            raise BadInput("--at-round says when a drill begins; give --kill-node or --kill-server too")
        return None
    if at is None or not 2 <= at <= rounds:
        got = "none was given" if at is None else f"got {at}"
        raise BadInput(f"a drill needs --at-round, from 2 to the study's {rounds} rounds; {got}")
    if node is not None and node >= nodes:
        raise BadInput(f"--kill-node {node} is no node of 0..{nodes - 1}; choose one of them")
    return Drill(at, node, server)
