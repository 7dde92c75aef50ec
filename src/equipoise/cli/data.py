"""``equipoise data list | show NAME | fetch NAME``: which data sets there are, what is in them, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import app

if TYPE_CHECKING:
    from ..data import Task

data = typer.Typer(help="Data sets: list them, show one, fetch one.", no_args_is_help=True)
app.add_typer(data, name="data")

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder that holds the original files, or a folder of each data set's name."),
]
Name = Annotated[str, typer.Argument(help="Its name, as `equipoise data list` has it.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Option of the data set, such as state=ca; may be repeated."),
]


@data.command("list")
def list_(folder: Folder = None) -> None:
    """List the data sets that can be used by name, and where they lie."""
    import sys

    from rich.console import Console
    from rich.table import Table

    from ..data import TASKS, where

    table = Table("name", "data set", "rows", "groups", "here", box=None, pad_edge=False)
    for name, task in TASKS.items():
        groups = ", ".join(task.groupings) or "none"
        table.add_row(name, task.title, f"{task.rows:,}", groups, where(task, folder) or "no")
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    typer.echo("\nequipoise data show NAME: what it declares and how to get it; equipoise data fetch NAME: download it")


@data.command("show")
def show(name: Name, folder: Folder = None, option: Options = None) -> None:
    """Show what a data set declares, what is wrong with it, and what is read of it where it is here."""
    from rich.console import Console
    from rich.markup import escape

    from ..checks import one_of
    from ..data import TASKS, groups_of, how_to_get, load, where

    task = TASKS[one_of("data set", name, TASKS)]
    console = Console(highlight=False)
    for line in described(task):
        console.print(escape(line) if line.startswith(" ") else f"[bold]{escape(line)}[/bold]", soft_wrap=True)
    place = where(task, folder)
    console.print("[bold]here[/bold]", soft_wrap=True)
    if not place:
        console.print(escape(f"  no: {how_to_get(task)}"), soft_wrap=True)
        return
    table = load(name, folder, **_options(option))
    for line in table.log:
        console.print(escape(f"  {line}"), soft_wrap=True)
    for grouping in task.groupings or (None,):
        for line in groups_of(table, grouping).log:
            console.print(escape(f"  {line}"), soft_wrap=True)


@data.command("fetch")
def fetch(name: Name, folder: Folder = None, option: Options = None) -> None:
    """Download a data set into the cache (or a folder), checked against its published sha256."""
    from ..data import fetch as fetch_data

    for line in fetch_data(name, folder, _options(option)).log:
        typer.echo(line)


def _options(pairs: list[str] | None) -> dict[str, Any]:
    from ..checks import BadInput

    options: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"--option {pair!r} is no assignment; write --option key=value")
        options[key.strip()] = value.strip().split(",") if "," in value else value.strip()
    return options


def described(task: Task) -> list[str]:
    """Return the declaration in lines: headings, and what stands under them set in by two spaces."""
    lines = [f"{task.name}: {task.title}", f"  {task.rows:,} rows as published; dropped: {task.dropped}", "label"]
    if task.columns:
        lines.append(f"  {task.target}: y = 1 means {task.meaning}")
        lines.append(f"  favourable outcome: {task.favourable} (y = {int(task.favourable_is == 'positive')})")
    else:
        lines.append(f"  {task.target}: {task.meaning}; {len(task.classes)} classes: {', '.join(task.classes)}")
    lines += ["groups"] if task.groupings else ["groups", "  none: no sensitive attribute is published"]
    for i, (name, g) in enumerate(task.groupings.items()):
        parts = []
        for j, (group, codes) in enumerate(g.groups.items()):
            what = ", ".join(codes) or _interval(g.cuts, j)
            meant = f" ({what})" if what != group else ""
            parts.append(group + meant + (" [reference]" if group == g.reference else ""))
        lines.append(f"  {name} (column {g.column}{', the default' if i == 0 else ''}): {'; '.join(parts)}")
        lines += [f"    {g.note}"] * bool(g.note)
    lines += ["columns"] if task.columns else ["columns", "  none: signals or images, read as arrays"]
    for c in task.columns:
        shown = ", ".join(f"{code} {meaning}".strip() for code, meaning in c.levels.items())
        kind = f"{len(c.levels)} levels: {shown}" if shown else "numeric"
        lines.append(f"  {c.name}: {kind}{'' if c.used else f' (not a feature: {c.why})'}")
    if task.options:
        lines.append("options (the first value is the default)")
        lines += [f"  {key}: {', '.join(map(str, values))}" for key, values in task.options.items()]
    lines += ["known faults", *(f"  {fault}" for fault in task.faults)]
    return [*lines, "source", f"  {task.licence}", f"  {task.source}", f"  {task.citation}"]


def _interval(cuts: tuple[float, ...], i: int) -> str:
    low = f"{cuts[i - 1]:g} < " if i > 0 else ""
    high = f" <= {cuts[i]:g}" if i < len(cuts) else ""
    return f"{low}value{high}"
