"""Load a data set of the catalogue from its original files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..checks import BadInput, nearest, one_of
from .files import finder
from .table import Table, encode
from .task import Task
from .tasks import TASKS


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    add: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    client: str | None = None,
    **options: Any,
) -> Table:
    """Load a data set: its original files, encoded by the levels its task declares.

    Files are searched in ``folder`` (NAME/file or file), in ``$EQUIPOISE_DATA``, in the user's cache, and inside the
    package (German and Adult only). What was read, dropped and encoded is said in ``Table.log``.

    Parameters
    ----------
    name : german, adult, taiwan, compas, acsincome, bank or law
    add, leave_out : columns to use as features although the task does not, and the other way round
    client : a column whose values are the natural clients
    options : options of the data set, such as ``part="both"`` of adult; see ``TASKS[name].options``

    Raises
    ------
    BadInput
        A name, option or column is unknown; a file is missing, cut off, empty, a web page; a cell is not as declared.

    Examples
    --------
    >>> table = load("german")
    >>> table.x.shape, len(table.attributes), int(table.y.sum())
    ((1000, 63), 20, 700)
    >>> len(load("adult").y), len(load("adult", part="both", incomplete="keep").y)
    (30162, 48842)
    """
    task = TASKS[one_of("data set", name, TASKS)]
    if task.read is None:
        raise BadInput(f"{name} has no reader")
    chosen = options_of(task, options)
    log: list[str] = []
    hashes: dict[str, str] = {}
    raw = task.read(finder(task, folder, log, hashes), chosen)
    raw = raw._replace(log=log + raw.log)
    return encode(task, raw, add=add, leave_out=leave_out, client=client, hashes=hashes)


def options_of(task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Return every option of the task, those not given at their defaults; refuse unknown names and values."""
    for key, value in options.items():
        if key not in task.options:
            hint = nearest(key, task.options) if task.options else "it has none"
            raise BadInput(f"{task.name} has no option {key!r}; {hint}")
        if value not in task.options[key]:
            raise BadInput(f"option {key} of {task.name} is {value!r}; allowed: {', '.join(map(str, task.options[key]))}")
    return {key: options.get(key, allowed[0]) for key, allowed in task.options.items()}
