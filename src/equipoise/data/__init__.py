"""Data sets as declarations, a user's own table, and splits among clients."""

from .fetch import fetch
from .files import how_to_get, where
from .groups import Groups, codes_of, groups_of
from .infer import Kind, kind_of, plain, read_columns
from .own import OwnTable, own_table, rows_of_member
from .partition import Dealt, by_quantity, dirichlet, equal, hold_out, natural
from .read import load
from .scaling import Scaling, fit_scaling, scale
from .splits import Split, describe, left_out
from .table import Table
from .task import Arrays, Column, File, Grouping, Task
from .tasks import TASKS

__all__ = [
    "TASKS",
    "Arrays",
    "Column",
    "Dealt",
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
    "codes_of",
    "describe",
    "dirichlet",
    "equal",
    "fetch",
    "fit_scaling",
    "groups_of",
    "hold_out",
    "how_to_get",
    "kind_of",
    "left_out",
    "load",
    "natural",
    "own_table",
    "plain",
    "read_columns",
    "rows_of_member",
    "scale",
    "where",
]
