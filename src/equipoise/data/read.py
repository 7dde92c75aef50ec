"""Load a data set of the catalogue from its original files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..checks import BadInput, nearest, one_of
from .files import Finder, Folder
from .table import Table, encode
from .task import Arrays, Get, Raw, Task
from .tasks import TASKS


def load(
    name: str,
    folder: Folder = None,
    *,
    add: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    client: str | None = None,
    flip: bool = False,
    **options: Any,
) -> Table:
    """Load a data set: its original files, encoded by the levels its task declares.

    Files are searched in ``folder`` (NAME/file or file), in ``$EQUIPOISE_DATA``, in the user's cache, and inside the
    package (German and Adult only; the digits come with scikit-learn). What was read, dropped and encoded is said in
    ``Table.log``.

    Parameters
    ----------
    name : of a table of people (german, adult, taiwan, compas, acsincome, bank, law), or of signals and images (har,
        cifar10, mnist, femnist, digits)
    add, leave_out : columns to use as features although the task does not, and the other way round
    client : a column whose values are the natural clients
    flip : code the other class as y = 1, where a source leaves open which one it took; favourable stays favourable
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
    >>> int(load("german", flip=True).y.sum())  # now y = 1 is a bad risk
    300
    """
    task = TASKS[one_of("data set", name, TASKS)]
    if flip:
        task = _flipped(task)
    log: list[str] = []
    hashes: dict[str, str] = {}
    get = Finder(task, folder, log, hashes)
    return encode(task, read(task, get, options, log), add=add, leave_out=leave_out, client=client, hashes=hashes)


def _flipped(task: Task) -> Task:
    if len(task.classes) != 2:
        raise BadInput(f"flip swaps two classes, and {task.name} has {len(task.classes)}; leave it out")
    return replace(
        task,
        labels={value: 1 - y for value, y in task.labels.items()},
        meaning=f"not {task.meaning}",
        favourable_is="negative" if task.favourable_is == "positive" else "positive",
    )


def read(task: Task, get: Get, options: Mapping[str, Any], log: list[str]) -> Raw | Arrays:
    """Read the original files that ``get`` finds into columns of text or arrays, the options checked."""
    if task.read is None:
        raise BadInput(f"{task.name} has no original files to read; it was declared from a table of your own")
    raw = task.read(get, options_of(task, options))
    return raw._replace(log=log + raw.log)


def options_of(task: Task, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option of the task, those not given at their defaults; refuse unknown names and values.

    Examples
    --------
    >>> options_of(TASKS["adult"], {"part": "both"})
    {'part': 'both', 'incomplete': 'drop'}
    >>> options_of(TASKS["adult"], {"parts": "both"})
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: adult has no option 'parts'; did you mean 'part'?
    """
    for key, value in options.items():
        if key not in task.options:
            hint = nearest(key, task.options) if task.options else "it has none"
            raise BadInput(f"{task.name} has no option {key!r}; {hint}")
        values = value if key in task.several and isinstance(value, list | tuple) else [value]
        for v in values:
            if v not in task.options[key]:
                raise BadInput(
                    f"option {key} of {task.name} is {v!r}; allowed: {', '.join(map(str, task.options[key]))}"
                )
        if not values or len(set(values)) < len(values):
            raise BadInput(f"option {key} of {task.name} is {value!r}; give each value once, and at least one")
    return {key: options.get(key, allowed[0]) for key, allowed in task.options.items()}
