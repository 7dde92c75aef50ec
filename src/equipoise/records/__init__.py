"""A run on disk: study, environment, rounds.jsonl, clients.csv, checkpoint, summary; and resume."""

from .checkpoint import Checkpoint, load, save
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
    "save",
    "strict",
    "summarise",
    "table",
    "write_clients",
]
