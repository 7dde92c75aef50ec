"""``equipoise list``: what there is to choose from, with its formula and its source, read from the docstrings."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..checks import BadInput, one_of
from . import app

# Rooms are read, not imported: models and objectives need torch, and a list should not. ``room:name`` picks one name.
ROOMS = {
    "rules": ("weights", "aggregate._fairfed:fairfed", "aggregate._equidistant:equidistant", "robust"),
    "scores": ("scores",),
    "metrics": ("metrics.named",),
    "terms": ("objectives.*",),
    "attacks": ("objectives.bias", "attacks.*"),
    "partitions": ("data.partition",),
    "models": ("models.*",),
}
KINDS = (*ROOMS, "datasets")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a catalogue."""

    name: str
    what: str
    formula: str
    parameters: str
    source: str


@app.command("list")
def catalogue(
    kind: Annotated[str, typer.Argument(help=" | ".join(KINDS))],
    as_json: Annotated[bool, typer.Option("--json", help="Print strict JSON, and nothing else.")] = False,
) -> None:
    """List rules, scores, metrics, terms, attacks, partitions, models or datasets, each with its formula and source."""
    one_of("catalogue", kind, KINDS)
    found = list(_datasets() if kind == "datasets" else _functions(kind))
    if as_json:
        from ..records import strict

        print(strict({kind: [{name: getattr(e, name) for name in Entry.__slots__} for e in found]}, indent=1))
        return
    for e in found:
        print(e.name)
        for label, text in (("", e.what), ("", e.formula), ("parameters", e.parameters), ("source", e.source)):
            lines = text.splitlines() or [""]
            if lines[0]:
                print("\n".join("    " + (f"{label}: " if label and not i else "") + x for i, x in enumerate(lines)))
        print()


def described(name: str, doc: str, parameters: str = "") -> Entry:
    """Take a docstring apart by the convention of docs/conventions.md; what is missing is left empty.

    Examples
    --------
    >>> described("half", '''Halve a score.
    ...
    ...     s / 2
    ...
    ... References
    ... ----------
    ... Common sense.
    ... ''')
    Entry(name='half', what='Halve a score.', formula='s / 2', parameters='', source='Common sense.')
    """
    opening, _, _ = re.split(r"\n(?=\w+\n-+(?:\n|$))|\Z", doc, maxsplit=1)[0].partition("\nSource:")
    what = " ".join(opening.split("\n\n")[0].split())
    block = re.search(r"(?:^|\n\n)((?: {4}.*(?:\n|$))+)", opening)
    quoted = re.search(r"``([^`]* [^`]*)``", opening)
    formula = block.group(1) if block else quoted.group(1) if quoted else ""
    formula = "\n".join(line.strip() for line in formula.strip().splitlines())
    section = re.search(r"^References\n-+\n(.*?)(?=\n\w+\n-+\n|\Z)", doc, re.S | re.M)
    inline = re.search(r"^Source: (.*?)(?=\n\n|\Z)", doc, re.S | re.M)
    source = section.group(1) if section else inline.group(1) if inline else ""
    plain = (text.replace("``", "") for text in (what, formula, parameters, " ".join(source.split())))
    return Entry(name, *plain)


def _functions(kind: str) -> Iterator[Entry]:
    for place in ROOMS[kind]:
        room, _, wanted = place.partition(":")
        for file in _files(room):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
            for name in [wanted] if wanted else _catalogue(tree):
                if node := functions.get(name):
                    shown = name.replace("_", "-") if kind == "rules" else name
                    yield described(shown, ast.get_docstring(node) or "", _defaults(node))


def _files(room: str) -> list[Path]:
    package = room.removesuffix(".*")
    spec = importlib.util.find_spec(f"equipoise.{package}")
    if spec is None or spec.origin is None:
        raise BadInput(f"equipoise.{package} is not installed; reinstall equipoise")
    path = Path(spec.origin)
    return sorted(path.parent.glob("*.py")) if room.endswith(".*") else [path]


def _catalogue(tree: ast.Module) -> list[str]:
    """Return ``__all__`` of a module, [] if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _defaults(node: ast.FunctionDef) -> str:
    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return ", ".join(a.arg + (f" = {_constant(d)}" if d else "") for a, d in pairs)


def _constant(node: ast.expr) -> str:
    from .. import weights

    text = ast.unparse(node)
    return str(getattr(weights, text, text)) if text.isidentifier() else text


def _datasets() -> Iterator[Entry]:
    from ..data.tasks import TASKS

    for task in TASKS.values():
        if task.columns:
            holds = f"{len(task.columns)} columns; groups by {', '.join(task.groupings)}"
            favourable = f"y = 1: {task.meaning}\nfavourable: {task.favourable}"
        else:
            holds, favourable = f"{len(task.classes)} classes; no groups", f"y: {task.meaning}"
        what = f"{task.title}: {task.rows:,} rows, {holds}."
        options = ", ".join(f"{name} = {values[0]}" for name, values in task.options.items())
        yield Entry(task.name, what, favourable, options, f"{task.source} ({task.licence})")
