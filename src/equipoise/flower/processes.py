"""Processes that are started together and end together: each in a group of its own, all killed on the way out."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..checks import BadInput

POLL = 0.2
"""Seconds between two looks at processes and files."""

Pause = Callable[[float], None]
"""A sleep that ends with KeyboardInterrupt once somebody wants to stop."""


@dataclass(frozen=True)
class Process:
    """A process of ours: ``group`` numbers its process group, ``log`` holds what it and its children say.

    A log goes on where an earlier process of the same name has ended: ``at`` is where this one begins.
    """

    name: str
    handle: subprocess.Popen[bytes]
    group: int
    log: Path
    at: int

    @property
    def alive(self) -> bool:
        """Whether the process itself still runs."""
        return self.handle.poll() is None

    @property
    def said(self) -> str:
        """What it has written into its log."""
        with self.log.open("rb") as file:
            file.seek(self.at)
            return file.read().decode(errors="replace")


def kill(group: int) -> None:
    """Send SIGKILL to a process group; one that is gone already is no error."""
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter where only the dead are left
        os.killpg(group, signal.SIGKILL)


def alive(group: int) -> bool:
    """Whether a process group has members."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class Processes:
    """Starts processes, each in a group of its own with a log named after it; leaving the block kills every group.

    SIGKILL at once: whatever these processes have to keep is on disk already, and one that catches SIGTERM may leave
    children behind.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as logs, Processes(Path(logs)) as some:
    ...     sleeper = some.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
    ...     sleeper.alive
    True
    >>> sleeper.alive, alive(sleeper.group)
    (False, False)
    """

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self.logs, self.environment = logs, dict(environment or {})
        self._started: list[Process] = []
        logs.mkdir(parents=True, exist_ok=True)

    def start(
        self, name: str, words: Sequence[str | Path], environment: Mapping[str, str] | None = None, group: int = 0
    ) -> Process:
        """Start a process, in the group of an earlier one if ``group`` is given."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as file:
            at = file.tell()
            handle = subprocess.Popen(
                [str(w) for w in words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment, **(environment or {})},
                process_group=group,
            )
        made = Process(name, handle, group or handle.pid, log, at)
        self._started.append(made)
        return made

    def stop(self, *processes: Process) -> None:
        """Kill whole groups, and wait until they are gone."""
        groups = {p.group for p in processes}
        for group in groups:
            kill(group)
        until = time.monotonic() + 5  # children are reaped by init, and some containers have none that does
        for p in self._started:
            if p.group in groups:
                p.handle.wait()
        while any(map(alive, groups)) and time.monotonic() < until:
            time.sleep(0.02)
        self._started = [p for p in self._started if p.group not in groups]  # their numbers may be given anew

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(*self._started)


@contextmanager
def stoppable() -> Iterator[Pause]:
    """Yield a sleep; Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt in it, and nowhere else.

    So no process is started and then forgotten, and cleaning up is not interrupted.
    """
    asked = threading.Event()

    def pause(seconds: float) -> None:
        if asked.wait(seconds):
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield pause
        return
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, lambda *_: asked.set())
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def program(name: str) -> str:
    """Return the path of a program of this environment; one of another environment is not taken."""
    found = shutil.which(name, path=scripts())
    if found is None:
        raise BadInput(f"{name} is not beside {sys.executable}; install it there with: pip install 'equipoise[flower]'")
    return found


def scripts() -> str:
    """Return the folder of this environment's programs."""
    return sysconfig.get_path("scripts")


def free_ports(n: int) -> list[int]:
    """Return so many ports of the loopback that nobody listens on."""
    taken = []
    try:
        for _ in range(n):
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            taken.append(s)
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in taken]
    finally:
        for s in taken:
            s.close()


def listens(port: int) -> bool:
    """Whether somebody accepts connections on a port of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0
