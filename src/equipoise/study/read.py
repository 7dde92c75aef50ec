"""Reading a study: a file or a ready study by name, the short ways to write a rule, and ``--set``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..checks import BadInput, nearest
from .schema import Study, check


def ready() -> dict[str, Path]:
    """Return the studies that ship with the package, by name."""
    folder = resources.files("equipoise") / "studies"
    return {
        p.name.removesuffix(".toml"): Path(str(p))
        for p in sorted(folder.iterdir(), key=lambda p: p.name)
        if p.name.endswith(".toml")
    }


def _make_rules_tables(raw: dict[str, Any]) -> None:
    """Turn ``rule = "krum"``, a list of such names, or one [rule] into what [[rule]] gives: a list of tables."""
    if "rule" in raw:
        rules = raw["rule"] if isinstance(raw["rule"], list) else [raw["rule"]]
        raw["rule"] = [{"name": rule} if isinstance(rule, str) else rule for rule in rules]


def _assign(raw: dict[str, Any], setting: str) -> None:
    """Apply one ``key.path=value`` of ``--set``; on the list of rules it applies to those that have the key."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise BadInput(f"--set {setting!r} is no assignment; write --set section.key=value")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *path, last = key.strip().split(".")
    target: Any = raw
    for depth, name in enumerate(path):
        target = target.setdefault(name, {}) if isinstance(target, dict) else None
        if not isinstance(target, dict | list) or (isinstance(target, list) and depth < len(path) - 1):
            raise BadInput(f"--set {key}: {'.'.join(path[: depth + 1])} is no table of the study")
    if isinstance(target, list):
        tables = [t for t in target if isinstance(t, dict)]
        having = [t for t in tables if last in t] or (tables if len(tables) == 1 else [])
        if not having:
            raise BadInput(
                f"--set {key}: no [[{path[-1]}]] of the study has {last!r}; "
                "add it in the file, or give the whole rule in a study of your own"
            )
        for t in having:
            t[last] = value
    else:
        target[last] = value


def read(source: str, settings: Sequence[str] = ()) -> Study:
    """Read a study file, or a ready study by name, and apply ``--set`` assignments.

    Raises
    ------
    BadInput : no such file or study, no TOML, an unknown or misspelt key, a value out of range
    """
    path = Path(source)
    if not path.is_file():
        studies = ready()
        if source not in studies:
            raise BadInput(f"{source!r} is neither a file nor a ready study; {nearest(source, studies)}")
        path = studies[source]
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise BadInput(f"{path} is not TOML: {e}") from None
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply to be a study; write plain tables") from None
    _make_rules_tables(raw)
    raw.setdefault("rule", [{"name": "fairis"}])  # the default, so that --set rule.eta=... has a rule to change
    for setting in settings:
        _assign(raw, setting)
        _make_rules_tables(raw)
    study = check(raw, str(source))
    return study if "name" in raw else study.model_copy(update={"name": path.stem})
