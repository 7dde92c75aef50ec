"""White-box membership inference of FinP's artifact: the way of a record's gradient beside the client's update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...checks import BadInput, extra, same_length
from ...rounds import stream
from ...types import Array

__all__ = ["cosine_attack", "cosine_features"]


def cosine_features(gradients: Any, update: Any, layers: Sequence[int] | Array) -> Array:
    """Compare each record's gradient with what the client sent, layer by layer.

        a_jl = <g_j, Delta>_l / (||g_j||_l ||Delta||_l)

    Parameters
    ----------
    gradients : (n, d) gradient of each record's loss at the model that the client received
    update : (d,) trained minus received
    layers : (L,) numbers of parameters of the layers, in order; sum d

    Returns
    -------
    (n, L) in -1..1, NaN where the gradient or the update is 0 on a layer. A record trained on tends to be negative:
    the update walks against its gradient

    Raises
    ------
    BadInput
        The lengths do not fit.

    Examples
    --------
    >>> cosine_features([[3.0, 4.0, 1.0]], [-3.0, -4.0, 0.0], layers=[2, 1])
    array([[-1., nan]])
    """
    g, delta, sizes = np.asarray(gradients, np.float64), np.asarray(update, np.float64), np.asarray(layers, np.int64)
    if g.ndim != 2 or delta.shape != g.shape[1:] or sizes.min(initial=1) < 1 or sizes.sum() != len(delta):
        raise BadInput(
            f"gradients {g.shape}, update {delta.shape} and layers of {sizes.sum()} parameters do not fit; "
            "pass (n, d), (d,) and sizes above 0 that sum to d"
        )
    starts = np.cumsum(sizes) - sizes
    dot, of_g, of_delta = (np.add.reduceat(v, starts, axis=-1) for v in (g * delta, g**2, delta**2))
    norms = np.sqrt(of_g) * np.sqrt(of_delta)
    return np.asarray(np.divide(dot, norms, out=np.full(dot.shape, np.nan), where=norms > 0))


def cosine_attack(train_features: Any, train_member: Any, test_features: Any, *, seed: int, trees: int = 200) -> Array:
    """Learn from mock trainings what members look like, and score other records by it.

    Parameters
    ----------
    train_features : (m, L) ``cosine_features`` of records in mock trainings whose members are known
    train_member : (m,) 1 where the record was trained on there, else 0
    test_features : (n, L) those of the records that are attacked
    seed : of the random forest
    trees : in the forest

    Returns
    -------
    (n,) in 0..1, higher = a surer member; ``decisions`` with threshold 0.5 gives the forest's own verdict

    Raises
    ------
    BadInput
        The shapes do not fit, or the mock trainings hold members only or none.
    MissingExtra
        scikit-learn is not installed.

    Examples
    --------
    >>> member = [1, 1, 1, 1, 0, 0, 0, 0]
    >>> known = [[-0.9], [-0.8], [-0.9], [-0.7], [0.1], [0.0], [0.2], [0.1]]
    >>> cosine_attack(known, member, [[-0.8], [0.1]], seed=1).round()
    array([1., 0.])

    References
    ----------
    FinP (arXiv 2502.17748), artifact: a random forest of 200 trees on 30 mock trainings.

    Notes
    -----
    A layer without a cosine (NaN) stays missing; the forest learns which side such records belong to.
    """
    known, records, member = np.asarray(train_features), np.asarray(test_features), np.asarray(train_member)
    if known.ndim != 2 or records.ndim != 2 or known.shape[1] != records.shape[1]:
        raise BadInput(
            f"features have shapes {known.shape} and {records.shape}; pass (rows, L) with the same L in both"
        )
    same_length(train_features=known, train_member=member)
    if set(np.unique(member).tolist()) != {0, 1}:
        raise BadInput("train_member must hold 1 and 0, some of each; the forest learns to tell them apart")
    forest = extra("sklearn.ensemble", "privacy").RandomForestClassifier(
        trees, random_state=int(stream(seed, "forest").integers(2**31))
    )
    forest.fit(known, member.astype(np.int64))
    return np.asarray(forest.predict_proba(records)[:, 1], np.float64) if len(records) else np.zeros(0)
