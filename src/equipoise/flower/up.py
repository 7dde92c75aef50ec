"""A whole federation on this machine: SuperLink, SuperNodes and a run as real processes over loopback, and no trace."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..checks import BadInput, extra
from ..records import replace_file, strict
from . import warm
from .certificates import Authority, NodeKey, authority, node_key
from .processes import POLL, Pause, Process, Processes, free_ports, listens, program, scripts, stoppable
from .server import NODES
from .warm import PROGRAM, write_stand_in

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
"""Environment of every process: nobody calls home, nothing is installed, one thread each, logs as they happen."""

HERE = "here"
"""Name of the connection in Flower's own configuration."""

START = 120.0
"""Seconds in which SuperLink and SuperNodes must have started."""

LOGS, MEMORIES = "flower-logs", "flower-memories"
"""Folders beside the records: logs by process; what clients keep between rounds, until the run is complete."""

Line = Mapping[str, Any]


class RunFailed(RuntimeError):
    """A federation or its run that did not come to its end; the message quotes the log that says why."""


@dataclass(frozen=True)
class Drill:
    """What is killed once a round is closed: a node for good, or the server, which is then started again.

    Parameters
    ----------
    round : the round that is hit; the kill happens as soon as the round before it is on record
    node : number of the node, or None
    server : whether the SuperLink and the ServerApp are killed
    """

    round: int
    node: int | None = None
    server: bool = False


@dataclass
class Federation:
    """What runs now: addresses, keys and processes. ``home`` is gone afterwards."""

    home: Path
    processes: Processes
    pause: Pause
    port: int
    node_ports: Sequence[int]
    keys: Sequence[NodeKey] = ()
    ca: Authority | None = None
    nodes: dict[int, Process] = field(default_factory=dict)
    server: tuple[Process, ...] = ()
    starts: int = 0
    ids: Mapping[int, int] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def trust(self) -> list[str | Path]:
        """How everybody but the SuperLink is told whom to trust."""
        return ["--root-certificates", self.ca.ca] if self.ca else ["--insecure"]

    def flwr(self, *words: str | Path) -> Any:
        """Call Flower's command line and return the JSON that it answers with."""
        name = "flwr-" + "-".join(str(w) for w in words[:2] if not str(w).startswith(("-", "/")))
        called = self.processes.start(name, [program("flwr"), *words, "--format", "json"], self.cli)
        self.wait(lambda: not called.alive, f"flwr {' '.join(map(str, words))}", [])
        self.processes.stop(called)
        answer = called.said
        try:
            return json.loads(answer[answer.find("{") :])
        except ValueError:
            raise RunFailed(f"flwr {words[0]} failed: {telling(answer)}; see {called.log}") from None

    @property
    def cli(self) -> dict[str, str]:
        """Where Flower's command line finds its configuration."""
        return {"FLWR_HOME": str(self.home / "cli")}

    def wait(self, ready: Callable[[], bool], what: str, needed: Sequence[Process], seconds: float = START) -> None:
        """Wait until something is ready; a needed process that ends before is an error."""
        until = time.monotonic() + seconds
        while not ready():
            for process in needed:
                if not process.alive:
                    raise RunFailed(f"{process.name} ended at its start: {telling(process.said)}; see {process.log}")
            if time.monotonic() > until:
                raise RunFailed(f"{what} was not there after {seconds:g} s; see {self.processes.logs}")
            self.pause(POLL)


def up(
    app: Path,
    out: Path,
    *,
    nodes: int,
    tls: bool = False,
    config: Mapping[str, Any] | None = None,
    drill: Drill | None = None,
    drilled: str | None = None,
    told: Callable[[Sequence[Line]], object] = lambda lines: None,
    say: Callable[[str], object] = lambda text: None,
) -> list[float]:
    """Run an app on a federation of this machine into a run folder, and return the seconds that each step took.

    Every process has a group of its own, and all are killed on the way out, whether by the end of the run, an error,
    Ctrl-C or SIGTERM. Keys, certificates and Flower's files lie in a temporary folder; logs in ``out/flower-logs``.

    Parameters
    ----------
    app : folder of a Flower app whose ServerApp writes ``rounds.jsonl`` into the run-config's ``out``
    nodes : SuperNodes; node i is client i
    tls : encrypt, and let nodes in whose keys are registered; else plain HTTP, and anybody on this machine
    config : keys of the run-config beside ``out``, ``num-clients`` and ``nodes-file``
    drill, drilled : what to kill, and the run whose rounds say when (any if None)
    told : called with the lines of each step of the journal
    say : called with what happens, in one line

    Raises
    ------
    BadInput : this system has no process groups; flwr is not installed
    RunFailed : a process did not start, or Flower's list says that the run failed
    KeyboardInterrupt : Ctrl-C, SIGTERM or SIGHUP, after everything was stopped
    """
    if not hasattr(os, "killpg"):
        raise BadInput("equipoise flower up needs process groups, which this system lacks; use Linux or macOS")
    path = os.pathsep.join(p for p in (scripts(), os.environ.get("PATH")) if p)  # Flower starts its parts by name
    with (
        stoppable() as pause,
        TemporaryDirectory(prefix="equipoise-flower-") as home,
        Processes(out / LOGS, {**QUIET, "PATH": path}) as processes,
    ):
        port, *node_ports = free_ports(1 + nodes)
        federation = Federation(Path(home), processes, pause, port, node_ports)
        began = time.monotonic()
        prepare(federation, tls)
        start_server(federation)
        start_nodes(federation, out)
        how = "TLS and node keys" if tls else "plain HTTP"
        took = time.monotonic() - began
        say(f"federation  {nodes} nodes and a server at {federation.address}, {how}, up in {took:.1f} s")
        given = {
            **(config or {}),
            "out": str(out.resolve()),
            "num-clients": nodes,
            "nodes-file": _nodes(federation, out),
        }
        return _follow(federation, app, out, given, drill, drilled, told, say)


def prepare(federation: Federation, tls: bool) -> None:
    """Make certificates and keys where they are wanted, and Flower's configuration for its command line."""
    home = federation.home
    (home / "cli").mkdir()
    connection: dict[str, Any] = {"address": federation.address}
    if tls:
        federation.ca = authority(home)
        federation.keys = [node_key(home, f"node{i}") for i in range(len(federation.node_ports))]
        connection["root-certificates"] = str(federation.ca.ca)
    else:
        connection["insecure"] = True
    _write_toml(home / "cli" / "config.toml", {"superlink": {"default": HERE, HERE: connection}})


def start_server(federation: Federation) -> None:
    """Start the SuperLink and, in its group, what starts ServerApps for it; then register the nodes' keys.

    Left to itself the SuperLink puts the latter into a session of its own, where a kill of its group does not reach.
    """
    federation.starts += 1
    number = f"-{federation.starts}" if federation.starts > 1 else ""
    ca, home = federation.ca, {"FLWR_HOME": str(federation.home / "server")}
    files = ["--ssl-ca-certfile", ca.ca, "--ssl-certfile", ca.certificate, "--ssl-keyfile", ca.key] if ca else []
    secure = [*files, "--enable-supernode-auth"] if ca else ["--insecure"]
    superlink = federation.processes.start(
        f"superlink{number}",
        [program("flower-superlink"), *secure, "--host", "127.0.0.1", "--port", str(federation.port),
         "--database", federation.home / "state.db", "--isolation", "process"],
        home,
    )  # fmt: skip
    federation.server = (superlink,)
    federation.wait(lambda: listens(federation.port), "the SuperLink", federation.server)
    words = [program("flower-superexec"), *federation.trust, "--runtime-api-address", federation.address]
    federation.server += (federation.processes.start(f"server-superexec{number}", words, home, group=superlink.group),)
    if federation.starts == 1:
        for i, key in enumerate(federation.keys):
            federation.flwr("supernode", "register", key.public, HERE, "--name", f"node{i}")


def start_nodes(federation: Federation, out: Path) -> None:
    """Start every SuperNode and wait until the SuperLink has let it in."""
    count = len(federation.node_ports)
    for i, port in enumerate(federation.node_ports):
        given = federation.home / f"node{i}.toml"
        memory = str((out / MEMORIES / str(i)).resolve())
        _write_toml(given, {"partition-id": i, "num-partitions": count, "memory-dir": memory})
        key: list[str | Path] = []
        if federation.keys:
            key = ["--auth-supernode-private-key", federation.keys[i].private]
        stand_in, door = federation.home / f"node{i}.bin", federation.home / f"node{i}.socket"
        write_stand_in(stand_in, door, program(PROGRAM))
        own = {
            "FLWR_HOME": str(federation.home / f"node{i}.d"),
            "PATH": f"{stand_in}{os.pathsep}{federation.processes.environment['PATH']}",
        }
        node = federation.processes.start(
            f"node{i}",
            [program("flower-supernode"), *federation.trust, *key, "--superlink", federation.address,
             "--host", "127.0.0.1", "--port", str(port), "--node-config", given],
            own,
        )  # fmt: skip
        federation.nodes[i] = node
        words: list[str | Path] = [sys.executable, "-m", warm.__name__, door]
        federation.processes.start(f"node{i}-clients", words, own, group=node.group)
    found: dict[int, int] = {}

    def all_in() -> bool:
        for i, process in federation.nodes.items():
            if i not in found and (said := re.search(r"SuperNode ID: (\d+)", process.said)):
                found[i] = int(said[1])
        return len(found) == count

    federation.wait(all_in, "one of the SuperNodes", [*federation.nodes.values(), *federation.server])
    federation.ids = dict(sorted(found.items()))


def _nodes(federation: Federation, out: Path) -> str:
    """Write which node is which client; a run that goes on finds its clients behind new numbers of nodes."""
    clients = {str(i): str(node) for i, node in federation.ids.items()}
    listed = federation.home / "nodes.json"
    listed.write_text(strict(clients), encoding="utf-8")
    earlier = out / NODES
    if earlier.exists():
        try:
            known = dict(json.loads(earlier.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise BadInput(f"{earlier} is damaged; choose another --out") from None
        replace_file(earlier, strict({**known, "clients": clients}, indent=1) + "\n")
    return str(listed)


def _submit(federation: Federation, app: Path, config: Mapping[str, Any]) -> Process:
    """Hand in the run; the process lasts as long as the run, and its log is the ServerApp's."""
    given = federation.home / "run.toml"
    _write_toml(given, config)
    name = f"run-{federation.starts}" if federation.starts > 1 else "run"
    words: list[str | Path] = [program("flwr"), "run", app, HERE, "--stream", "--run-config", given]
    return federation.processes.start(name, words, federation.cli)


def _follow(
    federation: Federation,
    app: Path,
    out: Path,
    config: Mapping[str, Any],
    drill: Drill | None,
    drilled: str | None,
    told: Callable[[Sequence[Line]], object],
    say: Callable[[str], object],
) -> list[float]:
    """Hand in the run and watch its journal until it ends; carry out the drill on the way."""
    journal = tail(out / "rounds.jsonl")
    closed, seconds = _closed(lines := next(journal), drilled), []
    told(lines)
    run, last, at = _submit(federation, app, config), time.monotonic(), 0
    while run.alive:
        federation.pause(POLL)
        for process in federation.server:
            if not process.alive:
                raise RunFailed(f"{process.name} ended in the middle: {telling(process.said)}; see {process.log}")
        lines = next(journal)
        if lines:
            told(lines)
            closed = max(closed, _closed(lines, drilled))
            if (step := _closed(lines, None)) not in (0, at):  # the rest of a step that was half on disk is no new one
                seconds.append(time.monotonic() - last)
                last, at = time.monotonic(), step
        if drill and closed >= drill.round - 1:
            if drill.node is not None:
                federation.processes.stop(federation.nodes.pop(drill.node))
                say(f"drill       node {drill.node} killed; round {closed} was the last to be closed")
            if drill.server:
                federation.processes.stop(*federation.server, run)
                say(f"drill       server killed; round {closed} was the last to be closed")
                start_server(federation)
                run = _submit(federation, app, {**config, "resume": True})
                say("drill       server started again on its database, run handed in again with resume")
            drill = None
    told(next(journal))
    _refuse_failure(federation, run)
    return seconds


def _closed(lines: Sequence[Line], run: str | None) -> int:
    """The last round that these lines close in a run, or in any; 0 if none."""
    rounds = [x["round"] for x in lines if not x.get("closing") and run in (None, x.get("run"))]
    return max(rounds, default=0)


def _refuse_failure(federation: Federation, run: Process) -> None:
    """Ask Flower's list what became of the run: the exit code of ``flwr run`` is 0 either way."""
    told = run.said
    number = re.search(r"started run (\d+)", told)
    if number is None:
        raise RunFailed(f"the run was not accepted: {telling(told)}; see {run.log}")
    until = time.monotonic() + START
    while True:
        runs = {r["run-id"]: r for r in federation.flwr("list", HERE).get("runs", [])}
        status = str(runs.get(number[1], {}).get("status", "unknown"))
        if status.startswith("finished") or time.monotonic() > until:
            break
        federation.pause(1.0)
    if status != "finished:completed":
        details = str(runs.get(number[1], {}).get("status-details", ""))
        why = telling(told) or telling(federation.server[-1].said) or details
        raise RunFailed(f"the run ended as {status}: {why}; see {federation.processes.logs}")


def telling(log: str) -> str:
    r"""Return the last line of a log that says something: an exception, or a numbered error of Flower's.

    Examples
    --------
    >>> telling("Traceback (most recent call last):\n  File x\nequipoise.checks.BadInput: no rows; add some\nbye\n")
    'no rows; add some'
    >>> telling("INFO: starting\nport is taken\n\n")
    'port is taken'
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    for said in (r"([A-Za-z_][\w.]*\.)?\w*(Error|Exception|BadInput)\w*: ", r"\[code: \d+\]"):
        if found := [line for line in lines if re.match(said, line)]:
            return re.sub(r"^equipoise\.\S+: ", "", found[-1])
    return lines[-1] if lines else ""


def tail(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield, each time it is asked, the complete lines that a file of JSON lines has gained."""
    at = 0
    while True:
        new = []
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                whole, end, _ = file.read().rpartition(b"\n")
            at += len(whole) + len(end)
            new = [json.loads(line) for line in whole.splitlines() if line]
        yield new


def _write_toml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(extra("tomli_w", "flower").dumps(values), encoding="utf-8")
