"""Names become functions: ours by catalogue, yours as ``package.module:function``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from ..checks import BadInput, nearest, outside

Function = Callable[..., Any]


def catalogue(room: ModuleType, names: Iterable[str] | None = None) -> dict[str, Function]:
    """Return the functions that a room lists in its ``__all__``, by name."""
    return {name: getattr(room, name) for name in names or room.__all__}


def lookup(what: str, name: str, ours: Mapping[str, Function], turns: str) -> Function:
    """Return the function that ``name`` means; hyphens and underscores are the same; yours comes from ``outside``.

    Parameters
    ----------
    what : what the function is, such as "rule"
    ours : the catalogue
    turns : what such a function does, for the message when there is none

    Raises
    ------
    BadInput : an unknown name (the nearest is named), or what ``outside`` refuses

    Examples
    --------
    >>> lookup("rule", "my-rule", {"my_rule": max}, "picks")
    <built-in function max>
    >>> lookup("rule", "my-rle", {"my_rule": max}, "picks")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: rule 'my-rle' is unknown; did you mean 'my_rule'? Your own is named ...
    """
    if ":" in name:
        return outside(what, name, turns)
    key = name.replace("-", "_")
    if key not in ours:
        hint = nearest(key, ours)
        stop = "" if hint.endswith("?") else "."
        raise BadInput(f"{what} {name!r} is unknown; {hint}{stop} Your own is named package.module:function")
    return ours[key]


def parameters(function: Function, wired: Iterable[str] = ()) -> dict[str, Any]:
    """Return the keyword-only parameters that a study may set, with their defaults (``empty`` where there is none)."""
    try:
        own = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C do not tell
        return {}
    return {p.name: p.default for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in wired}


def refuse_unknown(what: str, given: Iterable[str], own: Mapping[str, Any]) -> None:
    """Refuse the first parameter that the function does not have."""
    for name in given:
        if name not in own:
            hint = nearest(name, own) if own else "it has none"
            raise BadInput(f"{name!r} is no parameter of the {what}; {hint}")


def check_types(what: str, function: Function, given: Mapping[str, Any], also: Mapping[str, Any]) -> None:
    """Refuse a value that is not of the type that the function states for it (``also``: types that it does not state).

    A text is no number, true is no number, and "no" is not false. A function without annotations takes anything.
    """
    try:
        hints = get_type_hints(inspect.unwrap(function)) | dict(also)
    except Exception:  # annotations of a user's that cannot be evaluated
        return
    for name, value in given.items():
        if name not in hints:
            continue
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError:
            raise BadInput(f"{name} of the {what} is {value!r}; give {_in_words(hints[name])}") from None
        except PydanticUserError:  # a type that pydantic does not know
            continue


def _in_words(hint: Any) -> str:
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_in_words(h) for h in get_args(hint) if h is not type(None))
    if get_origin(hint) in (list, tuple, Sequence):
        return "a list"
    return words.get(hint) or str(getattr(hint, "__name__", hint))
