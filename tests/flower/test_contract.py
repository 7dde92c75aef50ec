"""The names of Flower that we use, one by one: a release that moves one of them fails here, with its name."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib import metadata
from pathlib import Path

import pytest

from equipoise import flower

ROOM = Path(flower.__file__).parent
PRIVATE = {("flwr.supercore.run", "Run"), ("flwr.supercore.task_identity", "TaskIdentity")}


def imported() -> list[tuple[str, str]]:
    """All (module, name) that our room imports from Flower."""
    found = set()
    for path in ROOM.glob("*.py"):
        for module, names in re.findall(r"^from (flwr[\w.]*) import \(?([^)\n]+)", path.read_text(), re.M):
            found |= {(module, name.split(" as ")[0].strip()) for name in names.split(",") if name.strip()}
    return sorted(found)


@pytest.mark.parametrize(("module", "name"), imported())
def test_flower_still_has(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name), f"flwr {metadata.version('flwr')} has no {module}.{name}"


def test_only_two_private_names_are_used() -> None:
    private = {(m, n) for m, n in imported() if m.split(".")[1] not in ("app", "serverapp", "clientapp")}
    assert private == PRIVATE


def test_the_calls_we_make_have_the_arguments_we_give() -> None:
    from flwr.app import Context, Error, Message
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
    from flwr.supercore.run import Run

    def takes(function: object, *names: str) -> None:
        have = inspect.signature(function).parameters  # type: ignore[arg-type]
        assert set(names) <= set(have), f"{function} takes {list(have)}, not {names}"

    takes(Message.__init__, "dst_node_id", "message_type", "ttl", "group_id", "reply_to", "metadata")
    takes(Context.__init__, "run_id", "node_id", "node_config", "state", "run_config")
    takes(Error.__init__, "code", "reason")
    takes(Run.create_empty, "run_id")
    takes(Strategy.start, "grid", "initial_arrays", "num_rounds", "timeout", "train_config")
    assert Grid.__abstractmethods__ == {
        "create_message", "get_node_ids", "pull_messages", "push_messages", "run", "send_and_receive", "set_run",
    }  # fmt: skip
    assert Strategy.__abstractmethods__ == {
        "aggregate_evaluate", "aggregate_train", "configure_evaluate", "configure_train", "summary",
    }  # fmt: skip


def test_the_extra_takes_the_tested_range() -> None:
    wanted = [
        r
        for r in metadata.requires("equipoise") or ()
        if r.startswith("flwr") and "extra == 'flower'" in r.replace('"', "'")
    ]
    assert len(wanted) == 1 and ">=1.42" in wanted[0] and "<" in wanted[0], wanted
