"""The command line: parses, calls, prints. One file per command; this one holds the app and its exit codes."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, cast

import typer

from ..checks import BadInput

app = typer.Typer(
    name="equipoise",
    help="Fair weights for federated learning: train, attack, weigh and audit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = ("run", "new", "report", "audit", "weights", "catalogue", "data", "flower")
"""Files of this room, each with one command, in the order in which help lists them."""

INTERRUPTED = 130

ClickException = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])
"""click's own up to typer 0.25; later typers bring a copy of click, and click itself need not be there."""


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"equipoise {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that come before a command."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit.

    0: done; 2: bad input, one sentence on standard error; 130: Ctrl-C; 1: a fault of ours, with its traceback.
    """
    try:
        for name in COMMANDS:
            importlib.import_module(f".{name}", __name__)
        code = app(args=argv, standalone_mode=False)
    except BadInput as e:
        code = _fail(str(e))
    except ClickException as e:
        code = _fail(e.format_message())
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    except OSError as e:
        what = e.filename or "a file"
        code = _fail(
            f"{what} cannot be read or written ({e.strerror or e}); check the path, its permissions and the disk"
        )
    except MemoryError as e:
        code = _fail(f"not enough memory ({e}); ask for less at once, or take a larger machine")
    if code == INTERRUPTED:
        print("stopped; what was written is whole", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    if message:  # a call without arguments has been answered with the help
        print(f"error: {message}", file=sys.stderr)
    return 2
