"""Data sets as declarations, a user's own table, and splits among clients."""

from .fetch import fetch
from .files import how_to_get, where
from .infer import Kind, kind_of, plain, read_columns
from .own import OwnTable, own_table
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
    "Kind",
    "OwnTable",
    "Scaling",
    "Split",
    "Table",
    "Task",
    "by_quantity",
    "describe",
    "dirichlet",
    "equal",
    "fetch",
    "fit_scaling",
    "groups_of",
    "hold_out",
    "how_to_get",
    "kind_of",
    "load",
    "natural",
    "own_table",
    "plain",
    "read_columns",
    "scale",
    "where",
]
