"""The catalogue of data sets: one file each, a declaration and the function that reads its original files."""

from __future__ import annotations

from collections.abc import Mapping

from ..task import Task
from .acsincome import ACSINCOME
from .adult import ADULT
from .bank import BANK
from .compas import COMPAS
from .german import GERMAN
from .law import LAW
from .taiwan import TAIWAN

__all__ = ["ACSINCOME", "ADULT", "BANK", "COMPAS", "GERMAN", "LAW", "TAIWAN"]

TASKS: Mapping[str, Task] = {t.name: t for t in (GERMAN, ADULT, TAIWAN, COMPAS, ACSINCOME, BANK, LAW)}
"""Name -> declaration."""
