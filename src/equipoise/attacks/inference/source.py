"""Source inference: whose record is this? The server accuses the client whose local model knows the record best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...checks import BadInput, above, same_length
from ...metrics import coefficient_of_variation, mean, mean_absolute_difference
from ...rounds import stream
from ...types import Array

__all__ = ["Exposure", "Losses", "credits", "exposure", "loss_dispersion", "loss_matrix", "source_inference", "targets"]


@dataclass(frozen=True, slots=True)
class Exposure:
    """What source inference found out, as sums that add over rounds or batches of targets.

    ``credit`` (K, G): accusations that hit a client's own records of each group, a tie of m clients counting 1/m;
    ``targets`` (K, G): its records that were tried. Without a sensitive attribute G = 1. Shares are NaN where nothing
    was tried.
    """

    credit: Array
    targets: Array

    @property
    def success(self) -> Array:
        """(K,) share of each client's targets that were traced to it."""
        return _share(self.credit.sum(1), self.targets.sum(1))

    @property
    def by_group(self) -> Array:
        """(G,) share of each group's targets that were traced to their client, over all clients."""
        return _share(self.credit.sum(0), self.targets.sum(0))

    @property
    def by_client_and_group(self) -> Array:
        """(K, G) share of the targets of each client and group."""
        return _share(self.credit, self.targets)

    @property
    def overall(self) -> float:
        """Share of all targets."""
        return float(_share(self.credit.sum(), self.targets.sum()))

    @property
    def chance(self) -> float:
        """Share that blind accusation reaches, 1/K."""
        return 1 / len(self.credit)


class Losses(NamedTuple):
    """How the clients' models differ on each other's records: level ``mean``, then the spread; NaN = undefined.

    ``clients``: rows of the loss matrix in which ``cov`` exists; the others are left out of it.
    """

    mean: float
    cov: float
    fi: float
    mad: float
    clients: int


def source_inference(losses: Any, owner: Any, clients: Any = None) -> Array:
    """Share of each client's records for which the attack accuses that client.

        accused(z) = argmin_k loss of local model k on z

    Parameters
    ----------
    losses : (n, K) loss of each client's local model on each target record
    owner : (n,) client that really trained on it
    clients : (K,) ids of the clients in the order of the columns; without them 0..K-1

    Returns
    -------
    (K,) in 0..1, NaN for a client without targets; blind accusation reaches 1/K

    Raises
    ------
    BadInput
        Shapes do not fit, or an owner is none of the clients.

    Examples
    --------
    >>> losses = [[0.1, 0.5, 0.9], [0.2, 0.2, 0.4], [0.7, 0.7, 0.7]]
    >>> source_inference(losses, owner=[0, 1, 2]).round(3)
    array([1.   , 0.5  , 0.333])

    References
    ----------
    Hu, Salcic, Sun, Dobbie and Zhang, Source inference attacks in federated learning, ICDM 2021 (arXiv 2109.05659).

    Notes
    -----
    With ties the first of the least would be accused, and the client listed first would look exposed. Here m tied
    clients share the accusation. A loss that is NaN accuses nobody, as an infinite one; where no model has a finite
    loss all K tie, since nothing can be inferred. The paper reports the maximum over rounds of the overall share.
    """
    return exposure(losses, owner, clients).success


def exposure(losses: Any, owner: Any, clients: Any = None, group: Any = None, groups: int = 1) -> Exposure:
    """Run source inference and keep its hits per client and sensitive group; see ``source_inference``.

    Parameters
    ----------
    losses, owner, clients : as in ``source_inference``
    group : (n,) integers in 0..groups-1, the sensitive group of each target
    groups : G

    Examples
    --------
    >>> found = exposure([[0.1, 0.5], [0.9, 0.5], [0.1, 0.5]], owner=[0, 1, 1], group=[0, 0, 1], groups=2)
    >>> found.success, found.by_group, found.overall, found.chance
    (array([1. , 0.5]), array([1., 0.]), 0.6666666666666666, 0.5)
    """
    table, at = _columns(losses, owner, clients)
    of = np.zeros(len(at), np.int64) if group is None else np.asarray(group)
    same_length(owner=at, group=of)
    if of.dtype.kind not in "biu" or not ((of >= 0) & (of < groups)).all():
        raise BadInput(f"group must hold integers in 0..{groups - 1}; code it, and say how many groups there are")
    shape = (table.shape[1], groups)
    cell = at * groups + of
    credit = np.bincount(cell, _credits(table, at), shape[0] * shape[1]).reshape(shape)
    return Exposure(credit, np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape))


def credits(losses: Any, owner: Any, clients: Any = None) -> Array:
    """Return (n,) by how much each target was traced to its owner: 1, 1/m where m clients tie, else 0.

    Examples
    --------
    >>> credits([[0.1, 0.5], [0.5, 0.5], [0.1, float("nan")]], owner=[0, 0, 1])
    array([1. , 0.5, 0. ])
    """
    return _credits(*_columns(losses, owner, clients))


def loss_matrix(losses: Any, owner: Any, clients: Any = None) -> Array:
    """Average the losses over each client's targets.

        l_ij = mean over targets z of client i of the loss of local model j on z

    Returns
    -------
    (K, K), rows are owners and columns models; NaN where a client has no targets or a mean is not finite

    Examples
    --------
    >>> loss_matrix([[0.2, 0.6], [0.4, 0.6], [0.9, 0.1]], owner=[0, 0, 1]).round(3)
    array([[0.3, 0.6],
           [0.9, 0.1]])
    """
    table, at = _columns(losses, owner, clients)
    k = table.shape[1]
    bad = ~np.isfinite(table)
    total, broken, n = np.zeros((k, k)), np.zeros((k, k), bool), np.bincount(at, minlength=k)
    np.add.at(total, at, np.where(bad, 0.0, table))
    np.logical_or.at(broken, at, bad)
    return np.where(broken, np.nan, _share(total, np.broadcast_to(n[:, None], (k, k))))


def loss_dispersion(matrix: Any) -> Losses:
    """Describe how far the clients' models part on each other's records.

        cov = mean_i std_j(l_ij) / mean_j(l_ij),  fi = 1 / (1 + cov^2),  mad = mean_i (1/K^2) sum_jj' |l_ij - l_ij'|

    Parameters
    ----------
    matrix : (K, K) from ``loss_matrix``; NaN is left out

    Examples
    --------
    >>> d = loss_dispersion([[0.1, 0.3], [0.2, 0.2]])
    >>> f"level {d.mean:.2f}: CoV {d.cov:.2f}, FI {d.fi:.3f}, MAD {d.mad:.2f}"
    'level 0.20: CoV 0.25, FI 0.941, MAD 0.05'

    References
    ----------
    FinP (arXiv 2502.17748): FI(Loss) is the index of the mean coefficient of variation, not the mean of the indices.

    Notes
    -----
    A row whose mean is 0 has no coefficient of variation (0/0) and is left out of ``cov`` and ``fi``.
    """
    v = np.asarray(matrix, np.float64)
    if v.ndim != 2:
        raise BadInput(f"the loss matrix has shape {v.shape}; pass one row per owner and one column per model")
    each = coefficient_of_variation(v)
    cov = float(mean(each))
    spread = float(mean(mean_absolute_difference(v)))
    return Losses(float(mean(v.ravel())), cov, 1 / (1 + cov**2), spread, int((~np.isnan(each)).sum()))


def targets(
    sizes: Sequence[int] | Array,
    *,
    seed: int,
    clients: Iterable[int] | None = None,
    per_client: int = 100,
    even: bool = True,
    held: Sequence[int] | Array | None = None,
) -> list[Array]:
    """Choose the records that are attacked: row numbers of each client's training rows, without replacement.

    Parameters
    ----------
    sizes : (K,) training rows of each client
    seed : a client's choice depends on it and on the client's id only
    clients : (K,) ids; without them 0..K-1
    per_client : at most so many of each client
    even : no client gives more than the smallest one that has rows, so that all weigh the same
    held : (K,) rows of each client that it never trains on, to be drawn from as well; row ``sizes[k] + i`` is row i of
        these. For reproduction only: such a record has no source to be found

    Returns
    -------
    K sorted arrays of row numbers; fewer targets are a part of more

    Raises
    ------
    BadInput
        ``per_client`` below 1, a negative number of rows, lengths that differ.

    Examples
    --------
    >>> [rows.tolist() for rows in targets([4, 2], seed=1, per_client=3)]
    [[0, 2], [0, 1]]
    >>> [len(rows) for rows in targets([4, 2], seed=1, per_client=3, even=False)]
    [3, 2]

    References
    ----------
    Hu et al. (arXiv 2109.05659) reduce all clients to min(100, smallest client).

    Notes
    -----
    FinP's code draws its targets on HAR from all records of a subject, so that a fifth of them was never trained on;
    ``held`` reproduces that.
    """
    trained = np.asarray(sizes, np.int64)
    pool = trained if held is None else trained + np.asarray(held, np.int64)
    ids = range(len(trained)) if clients is None else [int(c) for c in clients]
    same_length(sizes=trained, pool=pool, clients=ids)
    above("per_client", per_client, 0)
    if len(pool) and min(trained.min(), (pool - trained).min()) < 0:
        raise BadInput(f"a client has {min(trained.min(), (pool - trained).min())} rows; pass numbers of rows >= 0")
    most = int(pool.min(where=pool > 0, initial=per_client)) if even else per_client
    # The head of one whole permutation: how many are taken does not change which come first.
    return [
        np.sort(stream(seed, "targets", 0, client).permutation(int(n))[:most])
        for client, n in zip(ids, pool, strict=True)
    ]


def _columns(losses: Any, owner: Any, clients: Any) -> tuple[Array, Array]:
    """Check the losses (n, K) and say in which column each owner's model lies (n,)."""
    table, of = np.asarray(losses, np.float64), np.asarray(owner)
    if table.ndim != 2 or not table.shape[1]:
        raise BadInput(f"losses have shape {table.shape}; pass one row per record and one column per client's model")
    same_length(losses=table, owner=of)
    ids = np.arange(table.shape[1]) if clients is None else np.asarray(clients)
    if ids.shape != table.shape[1:] or len(np.unique(ids)) < len(ids):
        raise BadInput(f"clients must name each of the {table.shape[1]} columns of the losses once, got {ids.tolist()}")
    order = np.argsort(ids)
    at = order[np.searchsorted(ids, of, sorter=order).clip(max=len(ids) - 1)]
    wrong = np.flatnonzero(ids[at] != of)
    if len(wrong):
        raise BadInput(
            f"owner {of[wrong[0]]} of record {wrong[0]} is none of the clients; leave out records without their model"
        )
    return table, at


def _credits(table: Array, at: Array) -> Array:
    known = np.where(np.isnan(table), np.inf, table)
    least = known == known.min(1, keepdims=True)
    return np.asarray(least[np.arange(len(at)), at] / least.sum(1))


def _share(part: Any, whole: Any) -> Array:
    whole = np.asarray(whole, np.float64)
    return np.asarray(np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0))
