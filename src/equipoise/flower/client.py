"""The ClientApp of a study, and helpers for people who keep their own training code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ..checks import BadInput, extra
from ..rounds import part
from ..study import Plan, member_shard, plan, read
from ..types import Array, Broadcast, Shard, Work
from .memory import keep, recall
from .messages import COUNTS, Request, open_request, pack_reply

REFUSED = 400
"""Error code of a reply that says what the client could not do."""


def client_app(
    study: Path | str, settings: tuple[str, ...] = (), *, own: Callable[[Context], Shard] | None = None
) -> ClientApp:
    """Return the ClientApp that trains as the study says, for Flower's ``clientapp`` component.

    Parameters
    ----------
    study : the study file, the same one that the server has
    own : context -> the rows of this member, features as the study's model takes them. Without it, the node-config's
        ``data-file`` names a CSV or Parquet file with the columns of the study's table; without that too the client
        takes the rows that the study deals to its number, which is for trying a study out

    Notes
    -----
    Which client it is, the server says, who knows it by its node. Its memory lies in the node-config's ``memory-dir``.
    """
    app = ClientApp()

    def reply(message: Message, context: Context, train: bool) -> Message:
        try:
            content = _answer(_planned(str(study), settings), open_request(message.content), context, own, train)
        except BadInput as e:
            return Message(Error(REFUSED, str(e)), reply_to=message)
        return Message(content, reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return reply(message, context, True)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return reply(message, context, False)

    return app


@lru_cache(maxsize=1)
def _planned(study: str, settings: tuple[str, ...]) -> Plan:
    extra("torch", "train").set_num_threads(1)
    return plan(read(study, settings))


def _answer(
    planned: Plan, request: Request, context: Context, own: Callable[[Context], Shard] | None, train: bool
) -> RecordDict:
    """Train one client for one round, from its memory of before that round."""
    program, member = planned.find(request.run)
    run = member.run(1.0)
    if request.client not in run.federation.clients:
        raise BadInput(f"the study has no client {request.client}; give server and clients the same study file")
    federation = part(run.federation, np.array([request.client]))
    if own is not None or "data-file" in context.node_config:
        rows = own(context) if own else member_shard(member.cell, _data_file(context), planned.study)
        federation = replace(federation, shards=[rows], views={})
    model = program.layout.join(request.model)
    first, fresh = program.learner.init(federation, run.seed)
    folder = _memories(context) / (request.federation or "any") / request.run / str(request.client)
    memory = (recall(folder, request.round, request.last) if fresh else None) or fresh
    news = {name: np.array([value]) for name, value in request.news.items()}
    sent = Broadcast(request.round, federation.clients, model.astype(first.dtype), news)
    asks = frozenset(m for m in request.asks if "@" not in m or m.partition("@")[2] in federation.views)
    (done,) = program.learner.work([Work(federation, sent, memory, run.seed, asks, train=train)])
    if train and fresh:
        keep(folder, request.round, done.memory)
    return pack_reply(run.tamper(done.reports, sent) if train else done.reports, program.layout, sent.model)


def _data_file(context: Context) -> Path:
    return Path(str(context.node_config["data-file"]))


def _memories(context: Context) -> Path:
    given = context.node_config.get("memory-dir")
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"))
    return Path(str(given)) if given else home / "equipoise" / str(context.node_id)


def fairness_record(y: Array, yhat: Array, group: Array, groups: int = 2) -> MetricRecord:
    """Return what a fairness rule asks of a client: training rows, and counts tp fp tn fn of each group.

        counts.trained = [tp_0, fp_0, tn_0, fn_0, tp_1, ...],   num-examples = n

    Parameters
    ----------
    y, yhat : (n,) labels and predictions of the trained model on the client's training rows, 0 or 1
    group : (n,) in 0..groups-1

    Returns
    -------
    MetricRecord, the ``metrics`` of a reply; the gap itself is the server's to compute

    Raises
    ------
    BadInput : lengths differ, a label is not 0 or 1, a group is outside its range

    Examples
    --------
    >>> record = fairness_record(np.array([1, 1, 0]), np.array([1, 0, 0]), np.array([0, 1, 1]))
    >>> record["counts.trained"], record["num-examples"]
    ([1, 0, 0, 0, 0, 0, 1, 1], 3)
    """
    from ..metrics import counts

    table = counts(np.asarray(y), np.asarray(yhat), np.asarray(group), groups)
    return MetricRecord({"num-examples": int(table.sum()), f"{COUNTS}trained": table.ravel().tolist()})


def curvature_record(model: Any, data: tuple[Array, Array], seed: int = 0) -> MetricRecord:
    """Return what FinP asks of a client: the top Hessian eigenvalue and the trace of its loss.

        H = Hessian of mean_i CE(model(x_i), y_i),   eigenvalue = max lambda(H),   trace = tr H

    Parameters
    ----------
    model : a torch module, x (B, f) -> logits (B,), (B, 1) or (B, C); frozen parameters are left out
    data : x (n, f) and y (n,), all training rows of the client
    seed : of the random vectors

    Returns
    -------
    MetricRecord with ``num-examples``, ``eigenvalue``, ``trace`` and ``trace_error``

    Raises
    ------
    BadInput : no rows, or lengths differ

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(1, 1, bias=False)
    >>> torch.nn.init.zeros_(net.weight).shape
    torch.Size([1, 1])
    >>> record = curvature_record(net, (np.array([[2.0], [2.0]]), np.array([0, 1])))  # p (1 - p) x^2 = 1
    >>> round(record["eigenvalue"], 4), round(record["trace"], 4)
    (1.0, 1.0)

    References
    ----------
    FinP (arXiv 2502.17748); see ``curvature.exact``.
    """
    from .. import curvature, learners

    figures = learners.figures_of(model, curvature.exact(), *data, seed=seed)
    return MetricRecord({"num-examples": len(data[1]), **figures})
