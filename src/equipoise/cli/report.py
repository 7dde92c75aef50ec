"""``equipoise report``: the page of a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import app


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder that `equipoise run` has written.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where to write the page; RUN_DIR/report.html if not given."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run: weights, accuracy, fairness, and why."""
    from ..report import write

    typer.echo(str(write(run_dir, out)))
