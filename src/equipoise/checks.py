"""The few validations, their one style of message, and the value of a figure that does not exist."""

from __future__ import annotations

import difflib
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PureWindowsPath
from types import ModuleType
from typing import Any

import numpy as np

from .types import Array


class BadInput(ValueError):
    """An input that cannot be used: one sentence with the thing, its value and the remedy. The command line exits 2."""


class MissingExtra(BadInput, ImportError):
    """An optional dependency is not installed; the message holds the command that installs it."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """A figure that does not exist, with the reason; never 0 and never 1.

    Attributes
    ----------
    reason : one clause, such as ``"no positives: TPR is 0/0"``
    group : the group or client it concerns, where there is one
    counts : the counts that show it, such as ``{"tp": 0, "fn": 0}``

    Examples
    --------
    >>> Undefined("no positives", "b", {"tp": 0, "fn": 0}).to_json()
    {'undefined': 'no positives', 'group': 'b', 'counts': {'tp': 0, 'fn': 0}}
    """

    reason: str
    group: str | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the parts that say something, ready for strict JSON."""
        parts: dict[str, Any] = {"undefined": self.reason}
        if self.group is not None:
            parts["group"] = self.group
        if self.counts:
            parts["counts"] = self.counts
        return parts


def extra(module: str, name: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Examples
    --------
    >>> extra("no_such_module", "train")
    Traceback (most recent call last):
    ...
    equipoise.checks.MissingExtra: no_such_module is not installed; install it with: pip install 'equipoise[train]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name is None or e.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        package = module.split(".", maxsplit=1)[0]
        message = f"{package} is not installed; install it with: pip install 'equipoise[{name}]'"
        raise MissingExtra(message) from None


def outside(what: str, where: str, turns: str) -> Callable[..., Any]:
    """Return a user's own function, named ``module:function``, as ``guarded``; the current folder is looked into first.

    Parameters
    ----------
    what : what the function is, such as "rule"
    turns : what such a function does, for the message when there is none

    Raises
    ------
    BadInput : not of this form, the name of a file, a module that cannot be imported, no such function in it

    Examples
    --------
    >>> outside("rule", "math:hypot", "turns two sides into a third")(3, 4)
    5.0
    >>> outside("rule", "math:hypotenuse", "turns two sides into a third")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: rule 'math:hypotenuse': math has no function 'hypotenuse'; name one that turns ...
    >>> outside("rule", "my/rules.py:mine", "turns two sides into a third")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: rule 'my/rules.py:mine' names a file; name its module: my.rules:mine
    """
    place, _, name = where.rpartition(":")
    if not place or not name:
        raise BadInput(f"{what} {where!r} must be written module:function, such as my_functions:mine")
    file = PureWindowsPath(place.removesuffix(".py"))  # of any system: it takes / and \ alike
    if file.name != place:
        if file.anchor or ".." in file.parts:
            raise BadInput(f"{what} {where!r} names a file; run in its folder and name its module: {file.name}:{name}")
        raise BadInput(f"{what} {where!r} names a file; name its module: {'.'.join(file.parts)}:{name}")
    try:
        with _current_folder_first():
            function = getattr(importlib.import_module(place), name, None)
    except (Exception, SystemExit) as e:  # whatever the user's module raises; a script may well exit
        why = _one_line(e) if isinstance(e, ImportError) else f"{type(e).__name__}: {_one_line(e)}"
        top = place.partition(".")[0]
        raise BadInput(
            f"{what} {where!r} cannot be imported ({why}); run in the folder that holds {top}, or put it on PYTHONPATH"
        ) from e
    if not callable(function):
        raise BadInput(f"{what} {where!r}: {place} has no function {name!r}; name one that {turns}")
    return guarded(f"{what} {where!r}", function)


def guarded(what: str, function: Callable[..., Any], gives: type | None = None) -> Callable[..., Any]:
    """Return a user's function that says in one sentence which function failed, and with what, or gave what.

    Examples
    --------
    >>> guarded("rule 'mine:f'", lambda x: 1 / x)(0)
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: rule 'mine:f' failed (ZeroDivisionError: division by zero); mend it
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with _current_folder_first():  # an import may stand inside the function
                found = function(*args, **kwargs)
        except BadInput:
            raise
        except Exception as e:  # whatever the user's function raises
            raise BadInput(f"{what} failed ({type(e).__name__}: {_one_line(e)}); mend it") from e
        if gives is not None and not isinstance(found, gives):
            raise BadInput(f"{what} returned a {type(found).__name__}; return {gives.__name__}")
        return found

    return call


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Let imports look into the current folder: ``python -m`` does, a console script looks into its own."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        if "" in sys.path:  # what else the user's code did to the path stays
            sys.path.remove("")


def _one_line(e: BaseException) -> str:
    return " ".join(str(e).split())


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word is meant, or list them all.

    Examples
    --------
    >>> nearest("farid", ["fairis", "fedavg"])
    "did you mean 'fairis'?"
    >>> nearest("xyz", ["fairis", "fedavg"])
    'known: fairis, fedavg'
    """
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(words)}"


def one_of(what: str, word: str, known: Iterable[str]) -> str:
    """Return ``word`` if it is known; otherwise refuse it and name the nearest right one."""
    words = list(known)
    if word not in words:
        raise BadInput(f"{what} {word!r} is unknown; {nearest(word, words)}")
    return word


def above(what: str, value: float, bound: float, why: str = "") -> float:
    """Return ``value`` if it is finite and > bound; otherwise refuse it."""
    if not (np.isfinite(value) and value > bound):
        raise BadInput(f"{what} must be above {bound:g}, got {value:g}{f' ({why})' if why else ''}")
    return float(value)


def between(what: str, value: float, low: float, high: float, why: str = "") -> float:
    """Return ``value`` if low <= value <= high; otherwise refuse it."""
    if not low <= value <= high:
        raise BadInput(f"{what} must lie in {low:g}..{high:g}, got {value:g}{f' ({why})' if why else ''}")
    return float(value)


def same_length(**arrays: Sequence[Any] | Array) -> int:
    """Return the common length of the named arrays, or refuse and print every length."""
    lengths = {name: len(a) for name, a in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise BadInput(
            "lengths differ: "
            + ", ".join(f"{k} has {v}" for k, v in lengths.items())
            + "; pass one value per row in each"
        )
    return next(iter(lengths.values()))


def all_finite(what: str, values: Array) -> Array:
    """Return ``values`` as float64 if all are finite; otherwise say how many are not and where the first lies."""
    v = np.asarray(values, np.float64)
    bad = np.flatnonzero(~np.isfinite(v))
    if len(bad):
        raise BadInput(
            f"{what} has {len(bad)} of {v.size} values that are not finite "
            f"(first at position {bad[0]}: {v.ravel()[bad[0]]}); clean or drop them"
        )
    return v
