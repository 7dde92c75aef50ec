"""Data sets as declarations, a user's own table, and splits among clients."""

from .partition import Split, by_quantity, describe, dirichlet, equal, hold_out, natural
from .read import load
from .table import Groups, Scaling, Table, fit_scaling, groups_of, scale
from .task import Column, File, Grouping, Task
from .tasks import TASKS

__all__ = [
    "TASKS",
    "Column",
    "File",
    "Grouping",
    "Groups",
    "Scaling",
    "Split",
    "Table",
    "Task",
    "by_quantity",
    "describe",
    "dirichlet",
    "equal",
    "fit_scaling",
    "groups_of",
    "hold_out",
    "load",
    "natural",
    "scale",
]
