"""Audit predictions: read, count, judge, write. No training, and nothing but counts leaves the rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from .. import __version__
from .judge import DEFAULT_LIMITS, Limit, audit_counts, parse_limits, verdict
from .rows import Counted, Question, count
from .table import Table, read
from .write import as_json, per_group_csv, to_folder, to_markdown

__all__ = [
    "DEFAULT_LIMITS",
    "Counted",
    "Limit",
    "Question",
    "Table",
    "as_json",
    "audit_counts",
    "audit_file",
    "count",
    "parse_limits",
    "per_group_csv",
    "read",
    "to_folder",
    "to_markdown",
    "verdict",
]

FORMAT = "equipoise.audit/1"


def audit_file(path: Path, asked: Question, **settings: Any) -> dict[str, Any]:
    """Audit a CSV or Parquet file of predictions.

    Parameters
    ----------
    path : the file
    asked : which columns mean what
    settings : bounds, level, replicates, seed; see ``audit_counts``

    Returns
    -------
    The audit as strict JSON: what ``audit_counts`` returns, with the question, the file's name and hash, and the
    account of its rows. The same file, question and settings give the same bytes.
    """
    asked.check()
    table = read(path, asked.columns, [asked.score] if asked.score is not None else [])
    counted = count(table, asked)
    found = audit_counts(counted.counts, counted.attributes, counted.clients, **settings)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    question = {
        "label": asked.label,
        "prediction": asked.prediction,
        "score": asked.score,
        "threshold": asked.threshold,
        "groups": list(asked.groups),
        "client": asked.client,
        "positive": asked.positive,
        "favourable": asked.favourable,
        "missing": asked.missing,
        "counted_as_positive": counted.favourable,
        "counted_as_negative": counted.unfavourable,
    }
    left_out = [{"reason": reason, "rows": n} for reason, n in counted.left_out.items()]
    head = {
        "format": FORMAT,
        "equipoise": __version__,
        "file": {"name": path.name, "sha256": digest},
        "question": question,
        "rows": {"read": counted.read, "counted": counted.counted, "left_out": left_out},
    }
    return {**head, **found}
