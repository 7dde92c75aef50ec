"""How unequally a risk lies on the clients, and how high it is: one always beside the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..checks import BadInput
from ..types import Array
from . import reductions as r

__all__ = ["Dispersion", "dispersion"]


class Dispersion(NamedTuple):
    """Level and spread of a risk over K clients; NaN = undefined.

    ``mean`` and ``worst`` (the most exposed client) are the level. The spread: ``cov`` with the population standard
    deviation, ``fi`` (Jain's index), ``eod`` (largest minus smallest), ``gini``, ``mad``, and ``sen_welfare`` of
    ``1 - risk``. ``clients``: of how many the risk is defined; the others are left out.

    Raising the low risks shrinks ``cov``, ``eod``, ``gini`` and ``mad``, and lifts ``fi``, while nobody is protected
    better. So no spread says anything without the level.
    """

    mean: float
    worst: float
    cov: float
    fi: float
    eod: float
    gini: float
    mad: float
    sen_welfare: float
    clients: int


def dispersion(risk: Any) -> Dispersion:
    """Describe a risk over clients by its level and its spread.

    Parameters
    ----------
    risk : (K,) in 0..1, high is bad, such as the share of a client's records that an attack traced to it; NaN is left
        out

    Raises
    ------
    BadInput
        Not one number per client, or a risk outside 0..1.

    Examples
    --------
    >>> d = dispersion([0.2, 0.4, 0.6])
    >>> f"level {d.mean:.2f}, worst {d.worst:.2f}; CoV {d.cov:.3f}, FI {d.fi:.3f}, EOD {d.eod:.2f}, Gini {d.gini:.3f}"
    'level 0.40, worst 0.60; CoV 0.408, FI 0.857, EOD 0.40, Gini 0.222'
    >>> raised = dispersion([0.6, 0.6, 0.6])
    >>> raised.fi, raised.mean > d.mean
    (1.0, True)

    References
    ----------
    FinP (arXiv 2502.17748). Jain, Chiu and Hawe, A quantitative measure of fairness, 1984.

    Notes
    -----
    Figures of several rounds are averaged each by itself: the mean of ``fi`` is not ``1 / (1 + mean(cov)^2)``.
    FinP's code rounds risks to two decimals first; here nothing is rounded.
    """
    v: Array = np.asarray(risk, np.float64)
    if v.ndim != 1:
        raise BadInput(f"risk has shape {v.shape}; pass one number per client")
    bad = np.flatnonzero((v < 0) | (v > 1))
    if len(bad):
        raise BadInput(f"risk must lie in 0..1, got {v[bad[0]]:g} at position {bad[0]}; pass shares")
    return Dispersion(
        mean=float(r.mean(v)),
        worst=float(r.highest(v)),
        cov=float(r.coefficient_of_variation(v)),
        fi=float(r.jain(v)),
        eod=float(r.gap(v)),
        gini=float(r.gini(v)),
        mad=float(r.mean_absolute_difference(v)),
        sen_welfare=float(r.sen_welfare(1 - v)),
        clients=int((~np.isnan(v)).sum()),
    )
