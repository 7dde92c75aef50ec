"""Names become functions: ours by catalogue, yours as ``package.module:function``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from ..checks import BadInput, nearest

Function = Callable[..., Any]


def catalogue(room: ModuleType, names: Iterable[str] | None = None) -> dict[str, Function]:
    """Return the functions that a room lists in its ``__all__``, by name."""
    return {name: getattr(room, name) for name in names or room.__all__}


def lookup(what: str, name: str, ours: Mapping[str, Function], turns: str) -> Function:
    """Return the function that ``name`` means; hyphens and underscores are the same.

    Parameters
    ----------
    what : what the function is, such as "rule"
    ours : the catalogue
    turns : what such a function does, for the message when there is none

    Raises
    ------
    BadInput : an unknown name (the nearest is named), a module that cannot be imported, something that is no function

    Examples
    --------
    >>> lookup("rule", "my-rule", {"my_rule": max}, "picks")
    <built-in function max>
    >>> lookup("rule", "my-rle", {"my_rule": max}, "picks")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: rule 'my-rle' is unknown; did you mean 'my_rule'? Your own is named ...
    """
    if ":" not in name:
        key = name.replace("-", "_")
        if key not in ours:
            hint = nearest(key, ours)
            raise BadInput(f"{what} {name!r} is unknown; {hint} Your own is named package.module:function")
        return ours[key]
    module, _, attribute = name.partition(":")
    if "" not in sys.path:  # a script's own folder is on the path, the current one is not
        sys.path.append("")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise BadInput(f"{what} {name!r} cannot be imported ({e}); is its folder on PYTHONPATH?") from None
    if not callable(function):
        raise BadInput(f"{what} {name!r} is no function; name one that {turns}")
    return function  # type: ignore[no-any-return]


def parameters(function: Function, wired: Iterable[str] = ()) -> dict[str, Any]:
    """Return the keyword-only parameters that a study may set, with their defaults (``empty`` where there is none)."""
    own = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in wired}


def refuse_unknown(what: str, given: Iterable[str], own: Mapping[str, Any]) -> None:
    """Refuse the first parameter that the function does not have."""
    for name in given:
        if name not in own:
            hint = nearest(name, own) if own else "it has none"
            raise BadInput(f"{name!r} is no parameter of the {what}; {hint}")
