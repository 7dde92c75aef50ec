"""The ServerApp of a study: who is who, then the study's runs, round after round, into a run folder."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ..checks import BadInput
from ..records import replace_file, strict
from ..study import Plan, Program, Step, execute, plan, read
from ..types import Round, Run, Snapshot
from .strategy import Peers, federate, first_snapshot

NODES = "nodes.json"

DEFAULTS: Mapping[str, Any] = {
    "out": "runs/flower",
    "resume": False,
    "num-clients": 0,
    "quorum": 1,
    "deadline-s": 3600.0,
    "start-deadline-s": 120.0,
    "nodes-file": "",
}
"""Keys of the run-config that the server reads. ``num-clients`` 0: as many as the study has."""


def server_app(study: Path | str, settings: Sequence[str] = ()) -> ServerApp:
    """Return the ServerApp that runs a study, for Flower's ``serverapp`` component.

    Parameters
    ----------
    study : a study file; ``settings`` change it, as ``--set`` does

    Notes
    -----
    The run-config's ``out`` names the run folder on the server's machine; it is the folder that ``equipoise run``
    writes, with ``nodes.json`` beside it: which node is which client.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        parsed = read(str(study), settings)
        if parsed.inference is not None:
            print("[inference] is left out: attacks on privacy need the clients' rows beside their models; "
                  "run them with `equipoise run`")  # fmt: skip
            parsed = parsed.model_copy(update={"inference": None})
        serve(plan(parsed), grid, context.run_config)

    return app


def serve(planned: Plan, grid: Grid, config: Mapping[str, Any]) -> None:
    """Run a plan over a grid into the folder that the run-config names."""
    given = {**DEFAULTS, **{k: v for k, v in config.items() if k in DEFAULTS}}
    refuse_omniscient(planned)
    folder = Path(str(given["out"]))
    most = max(p.cell.clients for program in planned.programs for p in program.runs)
    wanted = int(given["num-clients"]) or most
    if not 1 <= int(given["quorum"]) <= wanted <= most:
        raise BadInput(
            f"num-clients is {wanted} and quorum {given['quorum']}; the study has {most} clients, and "
            f"1 <= quorum <= num-clients <= {most} must hold"
        )
    peers: Peers | None = None

    def rounds(program: Program, runs: Sequence[Run], started: Mapping[str, Snapshot]) -> Iterator[list[Round]]:
        nonlocal peers
        peers = peers or _enrol(folder, grid, wanted, given)  # now, as the folder is ours only once it is opened
        first = {r.name: started.get(r.name) or first_snapshot(r, program.first_model(r)) for r in runs}
        yield from federate(runs, first, program.layout, grid, peers)

    def say(step: Step) -> None:
        rejected = [x for line in step.lines for x in line.get("rejected", {}).items()]
        told = "".join(f"; client {c}: {why}" for c, why in rejected)
        print(f"{step.program}: round {step.round} of {step.rounds}{told}", flush=True)

    execute(planned, folder, resume=bool(given["resume"]), command="flwr run", progress=say, rounds_of=rounds)


def refuse_omniscient(planned: Plan) -> None:
    """Refuse a study whose attacker knows what the other clients send, which no client of a deployment does."""
    for program in planned.programs:
        for p in program.runs:
            if p.omniscient:
                raise BadInput(
                    f"adversary.kind = {p.attack!r} knows what the other clients send, which no client does; "
                    "run it with `equipoise run`"
                )


def _enrol(folder: Path, grid: Grid, wanted: int, given: Mapping[str, Any]) -> Peers:
    """Say which node is which client, once and for all: by the operator's list, else in the order of node ids."""
    path = folder / NODES
    known = _read(path) if path.exists() else None
    listed = Path(str(given["nodes-file"])) if given["nodes-file"] else None
    quorum, until = int(given["quorum"]), time.monotonic() + float(given["start-deadline-s"])
    if known is None and listed is not None:
        known = {"federation": secrets.token_hex(8), "clients": _read(listed)}
    while True:
        here = set(grid.get_node_ids())
        if known is None and len(here) >= wanted:
            clients = dict(enumerate(sorted(here)[:wanted]))
            known = {"federation": secrets.token_hex(8), "clients": {str(c): str(n) for c, n in clients.items()}}
        if known is not None and sum(int(n) in here for n in known["clients"].values()) >= min(wanted, quorum):
            break
        if time.monotonic() > until:
            missing = "of those in " + str(path if path.exists() else listed) if known else "connected"
            raise BadInput(
                f"{len(here)} nodes are here after {given['start-deadline-s']:g} s, {wanted} are wanted {missing}; "
                "start the others, or raise start-deadline-s"
            )
        time.sleep(0.5)
    replace_file(path, strict(known, indent=1) + "\n")
    nodes = {int(c): int(n) for c, n in known["clients"].items()}
    return Peers(nodes, str(known["federation"]), quorum, float(given["deadline-s"]))


def _read(path: Path) -> Any:
    """Read a map of nodes; each client and each node stands in it once."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        clients = found.get("clients", found)
        nodes = {int(c): int(n) for c, n in clients.items()}
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as e:
        raise BadInput(f'{path} is no map of nodes ({e}); write {{"0": "<node id>", "1": ...}}') from None
    if len(set(nodes.values())) < len(nodes):
        raise BadInput(f"{path} gives one node to two clients; give each client a node of its own")
    return found
