"""The catalogue of data sets: one file each, a declaration and the function that reads its original files."""

from __future__ import annotations

from collections.abc import Mapping

from ..task import Task
from .acsincome import ACSINCOME
from .adult import ADULT
from .bank import BANK
from .cifar10 import CIFAR10
from .compas import COMPAS
from .digits import DIGITS
from .femnist import FEMNIST
from .german import GERMAN
from .har import HAR
from .law import LAW
from .mnist import MNIST
from .taiwan import TAIWAN

TABLES = (GERMAN, ADULT, TAIWAN, COMPAS, ACSINCOME, BANK, LAW)
ARRAYS = (DIGITS, HAR, CIFAR10, FEMNIST, MNIST)

TASKS: Mapping[str, Task] = {t.name: t for t in (*TABLES, *ARRAYS)}
"""Name -> declaration."""
