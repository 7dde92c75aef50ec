"""The door: columns as users have them -> arrays that can be counted. Checked once, here, and not again.

One rule for every container (list, tuple, NumPy, pandas, polars ...): a value counts as missing when it is None, NaN,
NaT or NA, or a text that is empty or reads nan, nat, na, n/a, <na>, null or ?. Texts are stripped. Codes behave alike
however they are typed: 1, 1.0, "1" and "1.0" are one level, named "1". Levels are sorted, numbers by value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..checks import BadInput, same_length
from ..types import Array
from .counts import counts

__all__ = ["Encoded", "encode", "levels"]

MISSING = "missing"
MAX_GROUPS = 10_000
_MISSING_TEXTS = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "nat", "null", "?"})
Missing = Literal["error", "group"]
Levels = tuple[Array, tuple[str, ...]]
"""Codes (n,) of a column and the names of its levels."""

_ZERO_ONE = ({"0", "1"}, {"False", "True"})


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows that can be counted: ``y``, ``yhat`` (n,) in {0, 1}; ``group`` (n,) in 0..G-1 with names ``groups``.

    ``positive`` names the label coded 1, ``negative`` the other one (None where no row has it). ``attributes``: name of
    each sensitive column -> its levels; with several columns the groups are all their combinations, in this order,
    whether observed or not.
    """

    y: Array
    yhat: Array
    group: Array
    groups: tuple[str, ...]
    positive: str
    negative: str | None
    attributes: Mapping[str, tuple[str, ...]]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Count table (G, 4)."""
        return counts(self.y, self.yhat, self.group, len(self.groups))


def encode(
    y_true: Any,
    y_pred: Any,
    sensitive: Any,
    positive: Any = None,
    *,
    missing: Missing = "error",
    score: bool = False,
    threshold: float = 0.5,
) -> Encoded:
    """Check labels, predictions and sensitive values, and code them for counting.

    Parameters
    ----------
    y_true : (n,) labels of two classes
    y_pred : (n,) predicted labels; or scores with ``score=True``, where score >= threshold is positive
    sensitive : (n,) one attribute, or a mapping of names to several; then the groups are their combinations ("F&B")
    positive : the label that counts as 1; may be left out only when the labels are 0/1 or bool
    missing : what to do with a missing sensitive value: refuse (and say how many), or make it a group of its own

    Raises
    ------
    BadInput
        Lengths or indices differ, a label is missing or not one of two, ``positive`` is needed or unknown, a sensitive
        value is missing.

    Examples
    --------
    >>> rows = encode(["yes", "no", "yes"], ["yes", "yes", "no"], {"sex": ["F", "M", "M"]}, positive="yes")
    >>> rows.groups, rows.counts.tolist()
    (('F', 'M'), [[1, 0, 0, 0], [0, 1, 0, 1]])
    >>> encode(["yes", "no"], ["yes", "no"], ["a", "b"])
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: labels are 'no', 'yes'; say which one is positive
    >>> encode([1, 0], [1, 0], {"sex": ["a", None]})
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: 'sex' has 1 missing row of 2 (first: row 1); fill it in or use missing="group"
    """
    if isinstance(sensitive, Mapping):
        columns = dict(sensitive)
    else:
        columns = {getattr(sensitive, "name", None) or "sensitive": sensitive}
    if not columns:
        raise BadInput("no sensitive attribute was given; name at least one")
    n = same_length(y_true=y_true, y_pred=y_pred, **{str(k): v for k, v in columns.items()})
    if not n:
        raise BadInput("there are no rows to count; pass at least one")
    _same_index({"y_true": y_true, "y_pred": y_pred, **columns})
    attributes = {str(name): levels(str(name), column, missing) for name, column in columns.items()}
    group, groups = cross(attributes)
    truth = levels("y_true", y_true)
    if score:
        (y,), zero, one = code_labels([truth], positive)
        yhat = above_threshold(y_pred, threshold)
    else:
        (y, yhat), zero, one = code_labels([truth, levels("y_pred", y_pred)], positive)
    return Encoded(y, yhat, group, groups, one, zero, {name: names for name, (_, names) in attributes.items()})


def levels(what: str, values: Any, missing: Missing = "error") -> Levels:
    """Code a column by its levels: (n,) integers and the names of the levels, sorted, "missing" last.

    Examples
    --------
    >>> codes, names = levels("age", [30.0, 4, "30", "4.0"])
    >>> codes.tolist(), names
    ([1, 0, 1, 0], ('4', '30'))
    """
    codes, raw = _factorise(what, values)
    return merge(what, codes, raw, missing)


def merge(what: str, codes: Array, raw: Sequence[Any], missing: Missing = "error") -> Levels:
    """Turn codes of raw values into codes of named levels; see ``levels``."""
    texts = [text(what, value) for value in raw]
    lost = np.array([t is None for t in texts], bool)
    if missing == "error" and lost.any() and (at := np.flatnonzero(lost[codes])).size:
        rows = "1 missing row" if at.size == 1 else f"{at.size} missing rows"
        raise BadInput(f'{what!r} has {rows} of {len(codes)} (first: row {at[0]}); fill it in or use missing="group"')
    names = sorted({t for t in texts if t is not None}, key=_order)
    if lost.any():
        if MISSING in names:
            raise BadInput(f"{what!r} has missing values and a level called {MISSING!r}; rename the level")
        names.append(MISSING)
    place = {name: i for i, name in enumerate(names)}
    to = np.array([place[MISSING if t is None else t] for t in texts], np.int64)
    return to[codes], tuple(names)


def text(what: str, value: Any) -> str | None:
    """Return the name of a level, None for a missing value; containers are refused.

    Examples
    --------
    >>> [text("x", v) for v in (1, 1.0, "1.0", " F ", True, None, float("nan"), "nan")]
    ['1', '1', '1', 'F', 'True', None, None, None]
    """
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (bytes, np.ndarray)) or not isinstance(value, (str, int, float, np.generic)):
        if type(value).__name__ in {"Decimal", "date", "datetime", "Timestamp"}:
            return str(value)
        raise _no_level(what, value)
    if isinstance(value, str):
        word = value.strip()
        if word.lower() in _MISSING_TEXTS:
            return None
        if word.lower() in {"true", "false"}:
            return word.lower().capitalize()
        if not word[-1].isdigit() and word[-1] != ".":
            return word
        try:
            number = float(word)
        except ValueError:
            return word
        # "007" and "1_000" are names, not numbers; "1.0" is the number 1.
        return _number(number) if "." in word and math.isfinite(number) and "_" not in word else word
    return _number(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def _no_level(what: str, value: Any) -> BadInput:
    return BadInput(f"{what!r} holds a {type(value).__name__} ({value!r}); use plain texts or numbers, one per row")


def _number(value: float) -> str | None:
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _order(name: str) -> tuple[int, float, str]:
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)


def _factorise(what: str, values: Any) -> tuple[Array, list[Any]]:
    array = values if isinstance(values, (list, tuple)) else np.asarray(values)
    if isinstance(array, np.ndarray):
        if array.ndim != 1:
            raise BadInput(f"{what!r} has shape {array.shape}; pass one value per row")
        if array.dtype.kind in "Mm":
            array = array.astype(str)
        if array.dtype.kind != "O":
            raw, codes = np.unique(array, return_inverse=True)
            return codes.astype(np.int64), raw.tolist()
    seen: dict[Any, int] = {}
    keys = array if isinstance(array, (list, tuple)) else array.tolist()
    try:
        # True == 1 in a dict; the type keeps a bool apart from a number until both have names.
        codes = np.fromiter((seen.setdefault((type(v), v), len(seen)) for v in keys), np.int64, len(keys))
    except TypeError:
        raise _no_level(what, next(v for v in keys if type(v).__hash__ is None)) from None
    return codes, [value for _, value in seen]


def cross(attributes: Mapping[str, Levels]) -> Levels:
    """Combine attributes: codes of all combinations of levels, observed or not, and their names joined by "&"."""
    size = math.prod(len(names) for _, names in attributes.values())
    if size > MAX_GROUPS:
        each = " x ".join(f"{len(names)} of {what!r}" for what, (_, names) in attributes.items())
        raise BadInput(f"{each} make {size} groups, more than {MAX_GROUPS}; band the values or use fewer attributes")
    (codes, names), *rest = attributes.values()
    for more_codes, more in rest:
        codes = codes * len(more) + more_codes
        names = tuple(f"{a}&{b}" for a in names for b in more)
    return codes, names


def code_labels(columns: Sequence[Levels], positive: Any) -> tuple[list[Array], str | None, str]:
    """Code label columns as 0/1 by one rule: the coded columns, the name of class 0 (None if unseen), of class 1."""
    seen = sorted({name for _, names in columns for name in names}, key=_order)
    if {"0", "1"} & set(seen) and {"False", "True"} & set(seen):  # one column holds 0/1, the other bool
        as_code = {"False": "0", "True": "1"}
        columns = [(codes, tuple(as_code.get(name, name) for name in names)) for codes, names in columns]
        seen = sorted({as_code.get(name, name) for name in seen}, key=_order)
    labels = ", ".join(repr(s) for s in seen[:10]) + (" ..." if len(seen) > 10 else "")
    if len(seen) > 2:
        raise BadInput(f"labels are {labels}: {len(seen)} classes; recode them to two (one against the rest)")
    if positive is None:
        zero_one = next((z for z in _ZERO_ONE if set(seen) <= z), None)
        if zero_one is None:
            raise BadInput(f"labels are {labels}; say which one is positive")
        one = max(zero_one)
    else:
        one = text("positive", positive) or ""
        if one not in seen:  # True and 1 mean the same label
            one = {"1": "True", "0": "False", "True": "1", "False": "0"}.get(one, one)
        if one not in seen:
            raise BadInput(f"positive {str(positive)!r} is not among the labels {labels}; name one of them")
    others = [s for s in seen if s != one]
    coded = [np.array([name == one for name in names], np.int64)[codes] for codes, names in columns]
    return coded, (others[0] if others else None), one


def above_threshold(scores: Any, threshold: float) -> Array:
    """Return 1 where score >= threshold, else 0; a score that is NaN, infinite or no number is refused.

    Examples
    --------
    >>> above_threshold([0.2, 0.5, 0.8], 0.5).tolist()
    [0, 1, 1]
    """
    if not math.isfinite(threshold):
        raise BadInput(f"threshold must be a finite number, got {threshold}; it is compared with the scores")
    try:
        s = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as e:
        raise BadInput(f"scores must be numbers ({e}); for predicted labels leave score out") from None
    bad = np.flatnonzero(~np.isfinite(s))
    if bad.size:
        first = f"first: row {bad[0]}, {s[bad[0]]}"
        raise BadInput(f"{bad.size} of {s.size} scores are not finite ({first}); fill them in or drop the rows")
    return (s >= threshold).astype(np.int64)


def _same_index(columns: Mapping[str, Any]) -> None:
    """Refuse two pandas objects whose rows have different labels or order: by position they would be paired wrongly."""
    indexed = {k: v.index for k, v in columns.items() if hasattr(v, "iloc") and hasattr(v, "index")}
    names = list(indexed)
    for name in names[1:]:
        if not indexed[names[0]].equals(indexed[name]):
            both = f"{names[0]!r} and {name!r}"
            raise BadInput(f"{both} have different indices; align them, or pass .to_numpy() to pair by position")
