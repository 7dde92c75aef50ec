"""``equipoise run``: a study file, or a ready study by name, becomes a run folder, a table and a report."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import app

if TYPE_CHECKING:
    from ..study import Plan, Step

COLUMNS = {
    "attacker_weight_mean": "attacker\nweight",
    "attacker_eod": "attacker\nEOD",
    "attacker_score_mean": "attacker\nscore",
    "honest_score_mean": "honest\nscore",
    "honest_eod": "honest\nEOD",
    "sia": "source\nfound",
    "sia_cov": "CoV",
    "sia_fi": "FI",
    "sia_eod": "EOD of\nrisk",
    "loss_fi": "FI\n(Loss)",
    "accuracy": "accuracy",
    "mia_loss_auc": "member-\nship AUC",
    "epsilon": "epsilon",
    "central_epsilon": "central\nepsilon",
    "accuracy_gap": "accuracy\ngap",
    "pooled_eod": "pooled\nEOD",
    "clip_rate": "clip\nrate",
}
"""Figures of the printed table, the most telling first: a narrow terminal shows as many as fit."""

SCORES = ("attacker_score_mean", "honest_score_mean")

NOTES = {
    "honest_eod": "EOD: gap in true positive rate between groups, on the test pool that nobody trained on; 0 is equal",
    "sia": "source found: share of records traced to their owner (source inference), mean over rounds; chance is 1/K",
    "sia_fi": "CoV, FI, EOD of risk: how evenly that risk is spread over the clients; read them beside the level",
    "epsilon": "epsilon: spent by DP-SGD over all rounds at the client that spent most",
    "central_epsilon": "central epsilon: spent by noise at the server over all rounds, on every client as a whole",
    "accuracy_gap": "accuracy gap: attacker's accuracy against an honest run on the same rows; small is hard to see",
    "clip_rate": "clip rate: share of honest updates that the clip shortened",
}
"""What is said under the table about the figures in it."""


@app.command()
def run(
    study: Annotated[
        str, typer.Argument(help="A study file (TOML), or the name of a ready study; see --list.", show_default=False)
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value, such as rule=krum, rule.eta=1.05 or seeds=[1,2]; may be repeated.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/<name of the study> if not given.")] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with the run that the folder holds; a finished one is only printed.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as strict JSON, and nothing else.")
    ] = False,
    dry: Annotated[bool, typer.Option("--plan", help="Read the data, print what would run, and stop.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the ready studies, and stop.")] = False,
) -> None:
    """Train a federation, attacked or not, under one rule or many, and record who got which weight and why.

    Ends with a table, one row per rule (means over seeds), and says where the run folder and its report lie.
    """
    from ..study import execute, plan, read, ready

    if listed or not study:
        _print_ready(ready())
        if not listed:
            raise typer.Exit(2)
        return
    parsed = read(study, settings or ())
    one_thread()
    planned = plan(parsed)
    folder = out or Path("runs") / parsed.name
    if dry:
        print_plan(planned)
        return
    command = shlex.join(["equipoise", *sys.argv[1:]])
    show = not (quiet or as_json)
    if show:
        print_plan(planned, short=True)
    with RoundsBar(planned) if show else nullcontext() as step:
        rows = execute(planned, folder, resume=resume, command=command, **({"progress": step} if step else {}))
    page = write_report(folder)
    if as_json:
        from ..records import strict

        print(strict({"rows": rows, "folder": str(folder), "report": page and str(page)}, indent=1))
    elif not quiet:
        print_table(rows)
        print(f"run folder  {folder}")
        print(f"report      {page}" if page else "report      not written: pip install 'equipoise[report]'")


def one_thread() -> None:
    """Small programs lose more to a second thread than they win, and one thread keeps bits equal on any machine."""
    from ..checks import extra

    extra("torch", "train").set_num_threads(1)


def write_report(folder: Path) -> Path | None:
    """Write the HTML page of a run folder; None where the extra for it is not installed."""
    from ..checks import MissingExtra
    from ..report import write

    try:
        return write(folder)
    except MissingExtra:
        return None


def _print_ready(studies: dict[str, Path]) -> None:
    import tomllib

    print("ready studies; copy one with `equipoise new`, or run it by name:")
    for name, path in studies.items():
        print(f"  {name:<22} {tomllib.loads(path.read_text(encoding='utf-8')).get('description', '')}")


def print_plan(planned: Plan, *, short: bool = False) -> None:
    """Print what was read and what would run."""
    log = planned.log
    head = len([line for s in planned.sources for line in s.log])
    for line in log[:head] if short else log:
        print(line)
    for program in planned.programs:
        slots = sum(p.cell.clients for p in program.runs)
        size = f"{_counted(len(program.runs), 'run')}, {_counted(slots, 'client')} side by side"
        print(f"{program.name}: {size}, {_counted(program.rounds, 'round')}")
        if not short:
            for p in program.runs:
                print(f"  {p.name}")


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("s" if n != 1 else "")


class RoundsBar:
    """A bar on a terminal, a line per round elsewhere; both on standard error."""

    def __init__(self, planned: Plan):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
        )
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.tasks = {p.name: self.bar.add_task(p.name, total=p.rounds) for p in planned.programs}

    def __enter__(self) -> Any:
        self.bar.start()
        return self.step

    def step(self, step: Step) -> None:
        """Show a step that has just been written."""
        if self.bar.disable:
            troubles = sum(len(x.get("rejected", ())) + ("kept" in x) for x in step.lines)
            note = f", {troubles} rejected or kept" if troubles else ""
            print(
                f"{step.program}: round {step.round} of {step.rounds}, {_counted(step.runs, 'run')}{note}",
                file=sys.stderr,
            )
        self.bar.update(self.tasks[step.program], completed=step.round)

    def __exit__(self, *exc: object) -> None:
        self.bar.stop()


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print one row per data set, K, architecture, attack and rule: mean over seeds, and how many seeds have one."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    controls = {row["control"] for row in rows}
    for row in rows:
        if row["run"] not in controls:
            groups.setdefault(
                (row["data"], row["clients"], row["architecture"], row["adversary"], row["strength"]), []
            ).append(row)
    console = Console(width=None if sys.stdout.isatty() else 140)
    shown: set[str] = set()
    for (data, clients, architecture, adversary, strength), members in groups.items():
        attack = f", {adversary} {strength:g}" if adversary else ", no adversary"
        table = Table(
            title=f"{data}, {clients} clients, {architecture}{attack}", title_justify="left", box=box.SIMPLE_HEAD
        )
        by_rule: dict[str, list[dict[str, Any]]] = {}
        for row in members:
            by_rule.setdefault(_rule_name(row), []).append(row)
        lies = str(adversary).startswith("claim")  # about the figures that its score is made of
        keys = [k for k in COLUMNS if any(r.get(k) is not None for r in members) and (lies or k not in SCORES)]
        cells = {rule: [_cell(same, k) for k in keys] for rule, same in by_rule.items()}
        table.add_column("rule", overflow="fold")
        left = console.width - min(max(map(len, by_rule)), console.width // 2) - 6
        for i, k in enumerate(keys):
            left -= 2 + max(9, *(len(texts[i]) for texts in cells.values()))
            if left >= 0:
                table.add_column(COLUMNS[k], justify="right", no_wrap=True)
                shown.add(k)
        for rule, texts in cells.items():
            table.add_row(rule, *texts[: len(table.columns) - 1])
        console.print(table)
    over = "seeds and replicates" if any(row["replicate"] for row in rows) else "seeds"
    print(f"means over {over}; (n/m): defined in n of m of them")
    for text in [text for k, text in NOTES.items() if k in shown]:
        print(text)


def _rule_name(row: dict[str, Any]) -> str:
    run, tail = row["run"], f"-s{row['seed']}" + (f"r{row['replicate']}" if row["replicate"] else "")
    name = run.removeprefix(f"{row['data']}-K{row['clients']}-{row['architecture']}-").removesuffix(tail)
    name = name.removesuffix(f"-{row['adversary']}({row['strength']:g})") if row["adversary"] else name
    label = row["label"] or ""
    return str(label + name.removeprefix(label.replace(" ", "_")))


def _cell(rows: list[dict[str, Any]], key: str) -> str:
    values = [row.get(key) for row in rows]
    known = [v for v in values if v is not None]
    if not known:
        return "undefined" if any(key in row["undefined"] for row in rows) else "-"
    share = f" ({len(known)}/{len(values)})" if len(known) < len(values) else ""
    return f"{sum(known) / len(known):.3f}{share}"
