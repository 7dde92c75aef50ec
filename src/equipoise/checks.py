"""The few validations, their one style of message, and the value of a figure that does not exist."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
