"""A data set as a declaration: what its columns mean, who is compared with whom, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..checks import BadInput, nearest


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the original file.

    ``levels``: code -> meaning ("" where the code speaks for itself) makes it categorical; none makes it numeric.
    Levels are declared here and never learnt from rows, so that a width cannot depend on a split or on a seed.
    ``missing``: the level that an empty cell becomes where empty cells are kept. ``used``: whether it is a feature
    unless the user says otherwise; ``why`` says why it is not.
    """

    name: str
    levels: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    used: bool = True
    why: str = ""


def numeric(*names: str) -> tuple[Column, ...]:
    """Declare numeric columns.

    Examples
    --------
    >>> [c.name for c in numeric("age", "amount")]
    ['age', 'amount']
    """
    return tuple(Column(name) for name in names)


def levels(name: str, *codes: str, missing: str = "") -> Column:
    """Declare a categorical column whose codes speak for themselves.

    Examples
    --------
    >>> list(levels("sex", "Female", "Male").levels)
    ['Female', 'Male']
    """
    return Column(name, dict.fromkeys(codes, ""), missing)


@dataclass(frozen=True, slots=True)
class Grouping:
    """How one column makes groups of people.

    Either ``groups``: group name -> codes of a categorical column; or ``groups`` with empty codes and ``cuts`` of a
    numeric one: group i holds cuts[i-1] < value <= cuts[i], and a last group beyond these holds missing numbers.
    Groups keep this order, whoever is present. ``reference`` is the group that the others are compared with (called
    privileged in the literature), "" if none is stated.
    """

    column: str
    groups: Mapping[str, tuple[str, ...]]
    reference: str
    cuts: tuple[float, ...] = ()
    note: str = ""


class Raw(NamedTuple):
    """What a reader takes from the original files: columns of stripped text, "" where a cell is missing."""

    columns: Mapping[str, Sequence[str]]
    log: list[str]
    keep_missing: bool = False


Get = Callable[..., tuple[str, bytes]]
"""(file name, other names of the same file ...) -> (name of the first one found, its bytes, unpacked)."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a data set: sha256 of its unpacked bytes ("" where no published one is known), and where it lies.

    ``also``: sha256 of other copies that were compared with it. ``archives``: names of zip files that hold it.
    """

    name: str
    sha256: str = ""
    url: str = ""
    also: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A data set as a declaration; ``read`` turns its original files into columns of text, nothing else is code.

    ``labels``: value of the target -> 0 or 1; ``meaning`` says in words what 1 is. ``favourable`` is the outcome that
    is good for the person, in words, and ``favourable_is`` whether that is y=1 ("positive") or y=0 ("negative"): two
    different questions. ``groupings``: the first one is the default. ``options``: option -> allowed values, the
    first is the default; ``several`` are the options that also take a list of them. ``folders``: other names of the
    folder it may lie in. ``rows``: of the published file, before any are dropped.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    target: str
    labels: Mapping[str, int]
    meaning: str
    favourable: str
    favourable_is: Literal["positive", "negative"]
    groupings: Mapping[str, Grouping]
    rows: int
    dropped: str
    faults: tuple[str, ...]
    licence: str
    source: str
    citation: str
    files: tuple[File, ...]
    read: Callable[[Get, Mapping[str, Any]], Raw] | None = None
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    several: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def default(self) -> str:
        """Name of the grouping that is used unless another one is asked for."""
        return next(iter(self.groupings))

    def column(self, name: str) -> Column:
        """Return the declared column of that name, or refuse and name the nearest one."""
        for column in self.columns:
            if column.name == name:
                return column
        raise BadInput(f"{self.name} has no column {name!r}; {nearest(name, [c.name for c in self.columns])}")
