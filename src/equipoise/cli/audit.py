"""``equipoise audit``: a file of predictions -> rates, gaps, intervals and a verdict, per client, pooled, per group."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks import BadInput, one_of
from . import app


@app.command()
def audit(
    predictions: Annotated[Path, typer.Argument(help="CSV or Parquet file, one row per person.")],
    label: Annotated[str, typer.Option(help="Column with what is true.")],
    group: Annotated[list[str], typer.Option(help="Column with a sensitive attribute; repeat for combinations.")],
    prediction: Annotated[str | None, typer.Option(help="Column with the predicted label.")] = None,
    score: Annotated[str | None, typer.Option(help="Column with a score, in place of --prediction.")] = None,
    threshold: Annotated[float | None, typer.Option(help="score >= threshold is predicted positive.")] = None,
    client: Annotated[str | None, typer.Option(help="Column with the client (bank, branch, hospital).")] = None,
    positive: Annotated[str | None, typer.Option(help="The positive label; needed unless labels are 0/1.")] = None,
    favourable: Annotated[
        str, typer.Option(help="Which outcome is in the person's favour: positive or negative. Figures are about it.")
    ] = "positive",
    limit: Annotated[
        list[str] | None, typer.Option(help="metric=value, or metric=none; repeat for several.", show_default=False)
    ] = None,
    missing: Annotated[
        str, typer.Option(help="Missing values: error, group (an own group) or drop (left out and counted).")
    ] = "error",
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates, at least 100.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print strict JSON and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(help="New folder for audit.json, per_group.csv and audit.md.")] = None,
) -> None:
    """Audit predictions for fairness between groups; nothing is trained and nothing leaves this machine.

    Undefined figures (0/0) are shown as such, with the reason; gaps come with intervals; limits with their origin.
    """
    from .. import audit as room
    from ..audit.write import free_folder

    one_of("favourable", favourable, ("positive", "negative"))
    one_of("missing", missing, ("error", "group", "drop"))
    if seed < 0:
        raise BadInput(f"seed must be 0 or above, got {seed}")
    if out is not None:
        free_folder(out)
    asked = room.Question(
        label=label,
        groups=tuple(group),
        prediction=prediction,
        score=score,
        threshold=threshold,
        client=client,
        positive=positive,
        favourable="negative" if favourable == "negative" else "positive",
        missing="group" if missing == "group" else "drop" if missing == "drop" else "error",
    )
    bounds = room.parse_limits(limit or [])
    found = room.audit_file(predictions, asked, bounds=bounds, level=level, replicates=replicates, seed=seed)
    files = room.to_folder(found, out) if out is not None else []
    if as_json:
        sys.stdout.write(room.as_json(found))
    else:
        show(found)
        for file in files:
            print(f"wrote {file}")


def show(found: dict[str, Any], most: int = 12) -> None:
    """Print an audit for people: verdict, findings worst first, tables; plain text when not on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..audit import write

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=200, highlight=False, color_system=None)
    colours = {"outside": "bold red", "not enough evidence": "yellow", "within limits": "green"}

    def say(words: str, style: str = "") -> None:
        console.print(Text(words, style), soft_wrap=True)

    def grid(title: str, head: list[str], rows: list[list[Any]], words: int = 1) -> None:
        """Print a table; the first ``words`` columns and the last are texts, the others numbers."""
        table = Table(title=title, title_justify="left", box=box.SIMPLE if console.is_terminal else box.ASCII2)
        for i, name in enumerate(head):
            table.add_column(name, justify="left" if i < words or i == len(head) - 1 else "right")
        for row in rows:
            table.add_row(*(Text(str(cell), colours.get(str(cell), "")) for cell in row))
        console.print(table)

    for line in write.heading(found):
        say(line)
    say(f"Verdict: {found['verdict']} (pooled population)", colours[found["verdict"]])
    if found["clients"]:
        say("Clients: " + ", ".join(f"{n} {word}" for word, n in found["clients_by_verdict"].items()))
    say("\nFindings, worst first")
    for finding in found["findings"][:most]:
        say(f"  {write.where(finding)}: {finding['sentence']}")
    if len(found["findings"]) > most:
        say(f"  ... and {len(found['findings']) - most} more (--json or --out)")
    for remark in found["remarks"]:
        say(f"  remark: {remark}")
    console.print()
    for view in found["pooled"]:
        groups = sorted(view["groups"], key=lambda g: g["rates"]["accuracy"]["value"] or 0.0)
        cut = "" if len(groups) <= 4 * most else f" (the {4 * most} least accurate of {len(groups)}; all in --out)"
        grid(
            f"Pooled, by {view['attribute']}: rates with {found['settings']['level']:.0%} Wilson intervals{cut}",
            ["group", "n", "positives", "selected", "TPR", "FPR", "precision", "accuracy", "note"],
            [
                [
                    g["group"],
                    g["n"],
                    g["positives"],
                    *(write.with_limits(g["rates"][r]) for r in write.SHOWN),
                    "; ".join(g["warnings"]),
                ]
                for g in groups[: 4 * most]
            ],
        )
        grid(
            f"Pooled, by {view['attribute']}: figures",
            ["metric", "value", "interval", "limit", "verdict"],
            [
                [
                    f["metric"].replace("_", " "),
                    write.number(f["value"]),
                    write.between_limits(f),
                    write.held_to(found, f),
                    f["verdict"] or "",
                ]
                for f in view["figures"]
            ],
        )
    if found["clients"]:
        bounded = [b["metric"] for b in found["limits"]]
        rows = []
        for c in found["clients"][: 2 * most]:
            figures = {f["metric"]: f for f in c["figures"]}
            rows.append([c["client"], c["rows"], *(write.number(figures[m]["value"]) for m in bounded), c["verdict"]])
        pooled = {f["metric"]: f for f in found["pooled"][-1]["figures"]}
        values = (write.number(pooled[m]["value"]) for m in bounded)
        rows.append(["pooled", found["pooled"][-1]["rows"], *values, found["pooled"][-1]["verdict"]])
        cut = "" if len(found["clients"]) <= 2 * most else f" ({2 * most} of {len(found['clients'])})"
        head = ["client", "rows", *(m.replace("_", " ") for m in bounded), "verdict"]
        grid(f"Clients by {found['pooled'][-1]['attribute']}, worst first{cut}", head, rows)
        say(write.POOLED_NOTE)
    say(write.intervals(found))
    for bound in found["limits"]:
        say(f"Limit: {bound['metric'].replace('_', ' ')} {bound['sign']} {bound['value']:g} ({bound['origin']})")
