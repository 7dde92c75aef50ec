"""Flower's apps in one process: the same ServerApp and ClientApp, without a network, and equal bits every time."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

# Two private names, for which there is no public one: Message() reads the first, Grid.run must return the second.
# tests/flower/test_contract.py fails with their names when a release of flwr moves them.
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity

SERVER = 1


class LocalGrid(Grid):
    """A grid whose nodes are contexts in this process; a message is answered as soon as it is sent.

    Parameters
    ----------
    client_app : that every node runs
    nodes : how many; they have the ids 2, 3, ...
    run_config, node_config : what the apps find in their context; a node's config also has its ``partition-id``
    """

    def __init__(
        self,
        client_app: ClientApp,
        nodes: int,
        run_config: Mapping[str, Any] | None = None,
        node_config: Mapping[str, Any] | None = None,
    ) -> None:
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = SERVER
        self._run = FlowerRun.create_empty(run_id=SERVER)
        self._app = client_app
        self._replies: dict[str, Message] = {}
        self.contexts = {
            node: Context(
                run_id=SERVER,
                node_id=node,
                node_config={"num-partitions": nodes, **(node_config or {}), "partition-id": node - SERVER - 1},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node in range(SERVER + 1, SERVER + 1 + nodes)
        }

    def set_run(self, run: FlowerRun) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> FlowerRun:
        """The run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message, as Flower's deprecated call does."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let every node answer; one that raises has answered with an error."""
        ids = []
        for message in messages:
            number = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = number  # has no setter; the grid is who gives it
            ids.append(number)
            context = self.contexts[message.metadata.dst_node_id]
            try:  # a copy: what a client does to its message must not reach the next one
                sent = Message(copy.deepcopy(message.content), metadata=message.metadata)  # type: ignore[call-overload]
                self._replies[number] = self._app(sent, context)
            except Exception as e:  # a client may raise anything; the others go on
                self._replies[number] = Message(Error(0, f"{type(e).__name__}: {e}"), reply_to=message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send in the order of the nodes and return all replies."""
        return self.pull_messages(self.push_messages(sorted(messages, key=lambda m: m.metadata.dst_node_id)))


def run_locally(
    server_app: ServerApp, client_app: ClientApp, nodes: int, run_config: Mapping[str, Any] | None = None
) -> None:
    """Run both apps in this process, with so many nodes, as ``flwr run`` does across machines.

    Clients keep their memories in a folder that is gone afterwards.
    """
    given = dict(run_config or {})
    with TemporaryDirectory() as folder:
        grid = LocalGrid(client_app, nodes, given, {"memory-dir": str(Path(folder))})
        server_app(grid, Context(SERVER, SERVER, {}, RecordDict(), given))
