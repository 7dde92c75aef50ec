"""Records of a run folder -> one self-contained HTML page, readable without a network, a server or JavaScript."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from .. import __version__
from ..checks import extra
from ..records import replace_file
from . import ink, plots, runs, story, summary, words
from .folder import Folder, open_folder

__all__ = ["page", "write"]

LARGEST = 2_000_000
"""Bytes of the page beyond which charts do not answer the pointer and, if that is not enough, runs are only named.

The figures of those runs stand in the table and in clients.csv.
"""


def page(folder: Path) -> str:
    """Return the report of a run folder as one HTML page.

    The same records give the same text: there is no clock and no chance in it.

    Raises
    ------
    BadInput : the folder is no run folder, is not complete, or a record does not fit the format
    MissingExtra : jinja2 is not installed
    """
    records = open_folder(folder)
    jinja2 = extra("jinja2", "report")
    files = resources.files(__name__)
    texts = {
        name: (files / name).read_text(encoding="utf-8")
        for name in ("page.html.j2", "table.html.j2", "run.html.j2", "style.css.j2", "script.js.j2")
    }
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(texts),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = ink.number
    safe = environment.filters["safe"]
    whole, context = environment.get_template("page.html.j2"), _context(records)
    rest = whole.render(**context, sections=[], left_out=[row.run for row in records.rows])
    sections, left_out = _sections(records, environment.get_template("run.html.j2"), LARGEST - len(rest.encode()))
    text: str = whole.render(**context, sections=[safe(s) for s in sections], left_out=left_out)
    return text


def write(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a run folder and return where it lies (``report.html`` in the folder, unless told).

    Raises
    ------
    BadInput : as ``page``, or the file cannot be written
    """
    target = out if out is not None else folder / "report.html"
    text = page(folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text)
    except OSError as e:
        raise words.cannot_write(target, e) from None
    return target


def _sections(records: Folder, template: Any, room: int) -> tuple[list[str], list[str]]:
    """Render every run by itself, attacked ones first, while there is room (bytes); and name the runs left out.

    What charts say under the pointer is half of them: it goes first, and from all, so that runs look alike.
    """
    named = words.labels(records)
    attacked_first = sorted(records.rows, key=lambda row: not records.abouts[row.run].adversaries)
    views = (runs.view(records, row, named[row.run]) for row in attacked_first)
    texts = [template.render(r=view, open=i == 0) for i, view in enumerate(views)]
    if sum(len(text.encode()) for text in texts) > room:
        texts = [plots.silent(text) for text in texts]
    sections: list[str] = []
    left_out: list[str] = []
    for row, text in zip(attacked_first, texts, strict=True):
        room -= len(text.encode())
        if room < 0 or left_out:
            left_out.append(row.run)
        else:
            sections.append(text)
    return sections, left_out


def _context(records: Folder) -> dict[str, Any]:
    cells = summary.cells(records)
    name = str(records.setting("name") or records.path.resolve().name)
    several = len(cells) > 1
    return {
        "name": name,
        "description": records.setting("description") or "",
        "facts": story.facts(records, cells),
        "cells": [
            {
                "title": cell.title if several else "",
                "sentences": story.sentences(cell),
                "several": any(len(rows) > 1 for rows in cell.rules.values()),
                "pictures": summary.pictures(cell),
                "table": summary.table(cell),
                "controls": summary.table(cell, controls=True) if cell.controls else None,
            }
            for cell in cells
        ],
        "columns": list(dict.fromkeys(c for cell in cells for c in summary.columns(cell))),
        "rules": summary.rules(records),
        "asks": summary.asks(records),
        "favours": any(cell.about.favours for cell in cells),
        "undefined": summary.undefined(records),
        "notes": records.notes,
        "log": [str(line) for line in records.study.get("log", [])],
        "reproduction": summary.reproduction(records, name),
        "hashes": records.hashes,
        "version": __version__,
    }
