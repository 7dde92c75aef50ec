"""A node's ClientApps without their imports: forked from a process that has read flwr and torch already.

Flower starts the program ``flwr-clientapp`` for every message, and most of what it does is importing. On a node that is
started here the program of that name on the PATH hands its words to this server, which forks and goes on as Flower's
own program would: one fresh process per message as before, some six CPU seconds sooner.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

PROGRAM = "flwr-clientapp"

STAND_IN = """\
import json, os, socket, sys
try:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect({socket!r})
        s.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
        taken = s.recv(1)
except OSError:
    taken = b""
if not taken:
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""


def write_stand_in(folder: Path, address: Path, program: str) -> None:
    """Write a program of Flower's name that hands its words to the server, or starts Flower's own if there is none."""
    folder.mkdir()
    code, script = folder / "stand_in.py", folder / PROGRAM
    code.write_text(STAND_IN.format(socket=str(address), program=program), encoding="utf-8")
    python = f"{shlex.quote(sys.executable)} -S -E {shlex.quote(str(code))}"
    script.write_text(f'#!/bin/sh\nexec {python} "$@"\n', encoding="utf-8")
    script.chmod(0o755)


def serve(address: str, run: Callable[[], Any] | None = None, modules: Sequence[str] = ("torch", __package__)) -> None:
    """Fork a process for every call that comes in at a Unix socket, and never return.

    ``run`` is Flower's program if not given; it finds the caller's words in ``sys.argv``.
    """
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen(64)  # who calls before the imports are done waits here
        if run is None:
            (program,) = entry_points(group="console_scripts", name=PROGRAM)
            run = program.load()
        for name in modules:
            with suppress(ImportError):
                import_module(name)
        gc.freeze()  # the children share what is there now
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no funeral
        while True:
            caller, _ = door.accept()
            with caller, caller.makefile("rb") as words:
                line = words.readline()
                if line.endswith(b"\n") and os.fork() == 0:
                    door.close()
                    caller.sendall(b"1")
                    caller.close()
                    _become(run, json.loads(line))


def _become(run: Callable[[], Any], words: list[str]) -> None:
    """Go on as the program, and end with its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = [PROGRAM, *words]
    code = 1
    try:
        run()
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
