"""The command line: parses, calls, prints. One file per command; this one holds the app and its exit codes."""

from __future__ import annotations

import sys

import typer

from ..checks import BadInput

app = typer.Typer(
    name="equipoise",
    help="Fair weights for federated learning: train, attack, weigh and audit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def fail(error: BaseException) -> int:
    """Print one clear sentence on standard error and return exit code 2."""
    print(f"error: {error}", file=sys.stderr)
    return 2


def main(argv: list[str] | None = None) -> int:
    """Run the command line; bad input exits 2 with one sentence, Ctrl-C exits 130."""
    try:
        app(args=argv, standalone_mode=False)
    except BadInput as e:
        sys.exit(fail(e))
    return 0
