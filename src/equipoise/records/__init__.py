"""A run on disk: study, environment, rounds.jsonl, clients.csv, checkpoint, summary; and resume."""

from .checkpoint import Checkpoint, load, save
from .files import replace_file
from .journal import Journal, entry, plain, read, strict, table
from .summary import degenerate, summarise, write_clients

__all__ = [
    "Checkpoint",
    "Journal",
    "degenerate",
    "entry",
    "load",
    "plain",
    "read",
    "replace_file",
    "save",
    "strict",
    "summarise",
    "table",
    "write_clients",
]
