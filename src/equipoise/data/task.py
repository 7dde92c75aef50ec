"""A data set as a declaration: what its columns mean, who is compared with whom, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from ..checks import BadInput, nearest
from ..types import Array


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


class Arrays(NamedTuple):
    """What a reader takes from files of signals or images: numbers already, nothing left to encode.

    ``x`` (n, f) float32, rows flat; ``y`` (n,) int64 in 0..C-1; ``client``: (n,) natural ids or None. ``shape``: what
    a row is before it is laid flat, channels first, or None where it is a plain list of ``features``, which then have
    names. ``scaled``: whether every feature is standardised on the training rows, or left as it is.
    """

    x: Array
    y: Array
    log: list[str]
    client: Array | None = None
    shape: tuple[int, ...] | None = None
    features: tuple[str, ...] = ()
    scaled: bool = False


class Get(Protocol):
    """How a reader gets at its files."""

    def __call__(self, *names: str) -> tuple[str, bytes]:
        """(file name, other names of the same file ...) -> (name of the first one found, its bytes, unpacked)."""

    def every(self, pattern: str) -> list[str]:
        """Names of the files of this form, such as ``train/*.json``, in the first place that has any; sorted."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a data set: sha256 of its unpacked bytes ("" where no published one is known), and where it lies.

    ``name`` may hold folders, and ``*`` where a data set comes in as many files as there happen to be. ``also``:
    sha256 of other copies that were compared with it. ``archives``: names of zip and tar files that hold it.
    """

    name: str
    sha256: str = ""
    url: str = ""
    also: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A data set as a declaration; ``read`` turns its original files into columns or arrays, nothing else is code.

    A table of people has ``columns`` of text (``Raw``), two labels and ``groupings``, of which the first one is the
    default. Signals and images come as ``Arrays``, with as many labels as there are classes and neither columns nor
    groupings.

    ``labels``: value of the target -> its number in 0..C-1, of which 0 and 1 make two classes; ``meaning`` says in
    words what 1 is, or what the classes are. ``favourable`` is the outcome that is good for the person, in words
    ("" where no outcome is), and ``favourable_is`` whether that is y=1 ("positive") or y=0 ("negative"): two different
    questions. ``options``: option -> allowed values, the first is the default; ``several`` are the options that also
    take a list of them. ``folders``: other names of the folder it may lie in. ``rows``: of the published file, before
    any are dropped. ``library``: (module, our extra that installs it) of the package that brings the data instead of
    files.
    """

    name: str
    title: str
    target: str
    labels: Mapping[str, int]
    meaning: str
    rows: int
    faults: tuple[str, ...]
    licence: str
    source: str
    citation: str
    columns: tuple[Column, ...] = ()
    favourable: str = ""
    favourable_is: Literal["positive", "negative"] = "positive"
    groupings: Mapping[str, Grouping] = field(default_factory=dict)
    dropped: str = "none"
    files: tuple[File, ...] = ()
    library: tuple[str, str] | None = None
    read: Callable[[Get, Mapping[str, Any]], Raw | Arrays] | None = None
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    several: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def default(self) -> str:
        """Name of the grouping that is used unless another one is asked for; "" where people have no groups."""
        return next(iter(self.groupings), "")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels 0..C-1; where several values of the target mean one label, the first of them."""
        names: dict[int, str] = {}
        for value, label in self.labels.items():
            names.setdefault(label, value)
        return tuple(names[label] for label in sorted(names))

    def column(self, name: str) -> Column:
        """Return the declared column of that name, or refuse and name the nearest one."""
        for column in self.columns:
            if column.name == name:
                return column
        if not self.columns:
            raise BadInput(f"{self.name} has no column {name!r}: it is read as arrays, without columns; leave it out")
        raise BadInput(f"{self.name} has no column {name!r}; {nearest(name, [c.name for c in self.columns])}")
