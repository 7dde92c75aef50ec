"""Source inference on SplitML: the server sees the layers that are shared, and no head to compute a loss with.

What it has are the clients' uploaded layers, public rows with labels, and the target record with its label. Both
functions give dissimilarities (n, K) that take the place of losses in ``source_inference``. The losses under every
client's own head, which only the laboratory knows, are an upper bound on what a head can tell: the *oracle head*.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...checks import BadInput, above, all_finite, same_length
from ...types import Array

__all__ = ["nearest_feature_losses", "probe_head_losses"]


def probe_head_losses(
    public_features: Any, public_y: Any, features: Any, y: Any, *, penalty: float = 0.01, steps: int = 200
) -> Array:
    """Loss of each target under a softmax head that the server trains on each client's layers with public rows.

        head_k = argmin_W mean_public CE(W phi_k(x), y) + penalty/2 ||W||^2,   loss_jk = CE(head_k phi_k(x_j), y_j)

    Parameters
    ----------
    public_features : (K, m, h) public rows, mapped by each client's uploaded layers
    public_y : (m,) class numbers
    features : (K, n, h) target records, mapped by the same layers
    y : (n,) class numbers
    penalty : on the head's weights, for features scaled to mean 0 and variance 1 over the public rows; above 0
    steps : of accelerated gradient descent from 0, for all clients side by side

    Returns
    -------
    (n, K) cross-entropy, finite

    Raises
    ------
    BadInput
        Shapes do not fit, features are not finite, there are no public rows, or a label is no class number.

    Examples
    --------
    >>> public, y = np.array([[[-1.0], [1.0]], [[-1.0], [1.0]]]), [0, 1]
    >>> record = [[[3.0]], [[0.0]]]  # far on the right side for client 0, in the middle for client 1
    >>> probe_head_losses(public, y, record, [1]).round(2)
    array([[0.  , 0.69]])

    Notes
    -----
    Ours: the papers attack whole models. Accelerated descent is Nesterov's, with the constants of a strongly convex
    function; the curvature of the softmax is at most 1/2 of that of the squared features.
    """
    public, records, at, of = _checked(public_features, public_y, features, y)
    above("penalty", penalty, 0)
    classes = int(max(at.max(), of.max(initial=0))) + 1
    middle, scale = public.mean(1, keepdims=True), public.std(1, keepdims=True)
    scale = np.where(scale > 0, scale, np.inf)  # a feature that never changes says nothing
    x, z = (np.concatenate([(v - middle) / scale, np.ones((*v.shape[:2], 1))], 2) for v in (public, records))
    truth, rows = np.eye(classes)[at], len(at)
    steepest = (np.linalg.norm(x, 2, axis=(1, 2)) ** 2 / (2 * rows) + penalty)[:, None, None]
    momentum = (1 - np.sqrt(penalty / steepest)) / (1 + np.sqrt(penalty / steepest))
    head = ahead = np.zeros((len(x), x.shape[2], classes))
    for _ in range(steps):
        slope = x.transpose(0, 2, 1) @ (np.exp(_log_softmax(x @ ahead)) - truth) / rows + penalty * ahead
        before, head = head, ahead - slope / steepest
        ahead = head + momentum * (head - before)
    return np.asarray(-_log_softmax(z @ head)[:, np.arange(len(of)), of].T)


def nearest_feature_losses(public_features: Any, public_y: Any, features: Any, y: Any) -> Array:
    """Say how far each target points from the public mean of its class, seen from the public mean of all.

        loss_jk = 1 - cos(phi_k(x_j) - mean_k, mean_k(y_j) - mean_k)

    Parameters
    ----------
    public_features, public_y, features, y : as in ``probe_head_losses``

    Returns
    -------
    (n, K) in 0..2; NaN where no public row has the class, or where a direction does not exist

    Examples
    --------
    >>> public, y = [[[1.0, 0.0], [0.0, 1.0]]] * 2, [0, 1]
    >>> record = [[[2.0, -1.0]], [[1.0, 1.0]]]  # on the way to its class for client 0, at a right angle for client 1
    >>> nearest_feature_losses(public, y, record, [0]).round(3) + 0.0
    array([[0., 1.]])

    Notes
    -----
    Ours. Training draws a record towards its class in the feature space of the client that holds it, and beyond it. A
    direction has no unit, so clients whose layers stretch the space by different amounts can be compared. Nothing is
    trained.
    """
    public, records, at, of = _checked(public_features, public_y, features, y)
    middle = public.mean(1, keepdims=True)
    out = np.full(records.shape[:2], np.nan)
    for c in np.unique(at):
        towards = public[:, at == c].mean(1, keepdims=True) - middle
        mine = records[:, of == c] - middle
        norms = np.linalg.norm(mine, axis=2) * np.linalg.norm(towards, axis=2)
        out[:, of == c] = 1 - np.divide(
            (mine * towards).sum(2), norms, out=np.full(norms.shape, np.nan), where=norms > 0
        )
    return np.asarray(out.T)


def _log_softmax(scores: Array) -> Array:
    scores = scores - scores.max(-1, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(-1, keepdims=True)))


def _checked(public_features: Any, public_y: Any, features: Any, y: Any) -> tuple[Array, Array, Array, Array]:
    public, records = all_finite("public features", public_features), all_finite("features", features)
    if (
        public.ndim != 3
        or records.ndim != 3
        or (public.shape[0], public.shape[2])
        != (
            records.shape[0],
            records.shape[2],
        )
    ):
        raise BadInput(
            f"features have shapes {public.shape} (public) and {records.shape}; pass (K, rows, h) with the same K and h"
        )
    if not public.shape[1]:
        raise BadInput("there are no public rows; the server can learn no classes without them")
    at, of = np.asarray(public_y), np.asarray(y)
    same_length(public_y=at, public_features=public[0])
    same_length(y=of, features=records[0])
    for what, labels in (("public_y", at), ("y", of)):
        if labels.size and (labels.dtype.kind not in "biu" or labels.min() < 0):
            raise BadInput(f"{what} must hold class numbers 0, 1, ..., got {labels.dtype} values; code it")
    return public, records, at.astype(np.int64), of.astype(np.int64)
