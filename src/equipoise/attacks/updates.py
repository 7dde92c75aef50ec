"""Hostile updates: (reports, broadcast) -> reports, on members' rows only.

Law: a member's row comes out the same whether honest rows stand beside it or not, so that an attack also runs inside
a client that sees nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from ..checks import all_finite
from ..types import Broadcast, Reports

__all__ = ["inflate"]

Tamper = Callable[[Reports, Broadcast], Reports]


def inflate(members: Iterable[int], by: float) -> Tamper:
    """Send the members' updates enlarged, which norm clipping exists to contain.

        Delta_k <- by Delta_k

    Examples
    --------
    >>> sent = Reports(np.array([0, 1]), np.array([[1.0], [1.0]]), np.array([5.0, 5.0]))
    >>> inflate([1], 10)(sent, None).updates
    array([[ 1.],
           [10.]])
    """
    ids = np.array(sorted(members), np.int64)
    factor = float(all_finite("inflation", np.array([by]))[0])

    def tamper(reports: Reports, broadcast: Broadcast) -> Reports:
        updates = reports.updates.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # the server rejects what leaves the range of a float
            updates[np.isin(reports.clients, ids)] *= updates.dtype.type(factor)
        return replace(reports, updates=updates)

    return tamper


def both(*tampers: Tamper) -> Tamper:
    """Apply several attacks, the first one first.

    Examples
    --------
    >>> sent = Reports(np.array([0, 1]), np.array([[1.0], [1.0]]), np.array([5.0, 5.0]))
    >>> both(inflate([0], 2), inflate([0, 1], 3))(sent, None).updates
    array([[6.],
           [3.]])
    """

    def tamper(reports: Reports, broadcast: Broadcast) -> Reports:
        for one in tampers:
            reports = one(reports, broadcast)
        return reports

    return tamper
