"""The learner: slots of all works in, reports and memories out."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from ..checks import BadInput, above
from ..types import Array, Done, Federation, Learner, Measure, Memory, Work
from .batches import Balance, Pool, Sampling
from .chunks import Recipe, Term, divide, make
from .figures import Logits, measured, stacked_logits
from .forwards import Name, choose
from .loop import Loop
from .measuring import Count, counts_of, fits, outputs_of, rows_of
from .optimisers import adam, sgd
from .parts import Build, parts_of
from .private import Private
from .private import check as check_private
from .table import check, close_table, first_model, names_of, open_table, slots_of
from .training import Stack


def stacked(
    build: Build,
    *,
    shared: Sequence[str],
    terms: Mapping[str, Term],
    count: Count,
    steps: int | None = None,
    epochs: int = 1,
    batch: int | Literal["full"] = 64,
    sampling: Sampling = "replacement",
    optimiser: Literal["adam", "sgd"] = "adam",
    lr: float = 5e-3,
    momentum: float = 0.0,
    keep_optimiser: bool = True,
    balance: Balance = "class",
    dtype: Literal["float32", "float64"] = "float32",
    chunk: int = 30,
    engine: Name = "auto",
    measures: Sequence[Measure] = (),
    private: Private | None = None,
) -> Learner:
    """Return a learner that trains all clients of all works it is handed as one program.

    Parameters
    ----------
    build : makes the module; x (B, f) -> logits (B,) or (B, 1), or (B, C) for C > 2 classes
    shared : names of the tensors that travel (see ``models.shared_names``); the rest stays with the client
    terms : name -> term of the local loss; a client's coefficients stand in ``federation.terms``
    count : (y, yhat, group, G) -> (G, 4) integers tp fp tn fn; yhat is a class number where there are more than two
    steps : local steps a round; None = 60 with "replacement", as many as ``epochs`` take with the others. With "epoch"
        at most so many
    epochs : passes over a client's rows; not for "replacement"
    batch : rows a step, or "full"
    sampling : "replacement" draws every batch anew; "epoch" passes over freshly shuffled rows, and the last batch of a
        pass may be short; "poisson" lets every row into every batch independently with probability batch / n, so that
        ``batch`` is the expected size and a batch may be empty: it has gradient 0, also in terms that read no rows
    optimiser, lr, momentum : Adam (0.9, 0.999, 1e-8), or SGD with momentum
    keep_optimiser : a client's optimiser state lives on from round to round, over shared and private layers alike
    balance : "class" weighs rows so that both labels count the same at each client, "cell" each (label, group), "none"
    dtype : of parameters, data and updates
    chunk : slots that train side by side, at least 2; for speed only, results do not depend on it
    engine : "chain" (Linear and ReLU only), "swap", "vmap" or "loop"; "auto" takes the first that gives the module's
        own results in float64
    measures : figures that clients compute on their trained model and rows when they are asked for them; a client that
        does not train, or whose figure is not finite, reports NaN
    private : clip each record's gradient and add noise (DP-SGD), in the loop; see ``Private``

    Notes
    -----
    A client with no rows, or with no term, does not train: its update is 0. A run's bits depend neither on the other
    works nor on ``chunk``, on one thread. The engines agree within 1e-10 in float64 over a whole run.
    """
    above("lr", lr, 0)
    if min(1 if steps is None else steps, epochs, 1 if batch == "full" else batch, chunk - 1) < 1:
        raise BadInput(
            f"steps, epochs and batch must be >= 1 and chunk >= 2, got {steps}, {epochs}, {batch} and {chunk}"
        )
    if sampling == "replacement" and epochs > 1:
        raise BadInput(f"there are no epochs with replacement, got {epochs}; set steps, or use sampling 'epoch'")
    with torch.random.fork_rng(devices=[]):  # building draws from torch's global generator, which is not ours
        module = build()
    parts = parts_of(module, shared)
    if private is not None:
        check_private(private, module, parts, balance, batch == "full" or sampling == "poisson", engine)
    kind = torch.float64 if dtype == "float64" else torch.float32
    module = module.to(kind).train()
    quiet = copy.deepcopy(module).eval()
    rule = adam(lr) if optimiser == "adam" else sgd(lr, momentum)
    kept = rule.state if keep_optimiser else ()
    figures, keeps = names_of(measures)
    taken = ("received", "trained", *figures, "private", "t", *rule.state, *parts.counters, *keeps)
    if twice := [n for n in (*figures, *keeps) if taken.count(n) > 1]:
        raise BadInput(f"a measure calls something {twice[0]!r}, and that name is taken; give it another")
    recipe = Recipe(terms, steps, None if batch == "full" else batch, sampling, epochs)
    pool = Pool(kind, balance)
    chosen: list[tuple[Stack | Loop, Logits | None]] = []  # filled at the first training, on whose rows ways are tried

    def init(federation: Federation, seed: int) -> tuple[Array, Memory]:
        return first_model(build, parts, kept, measures, len(federation.clients), seed, np.dtype(dtype))

    def engine_for(x: torch.Tensor) -> tuple[Stack | Loop, Logits | None]:
        forward = None if private else choose(engine, module, parts, x)
        if forward is None:
            return Loop(module, parts, terms, rule, pool, private, recipe.batch), None
        return Stack(forward, parts, terms, rule, pool), stacked_logits(quiet, parts, x)

    def work(works: Sequence[Work]) -> list[Done]:
        check(works, terms)
        for w in works:
            moments = ("received", *w.asks.difference(figures))
            pool.add([s for m in moments for s in rows_of(w.federation, m, figures)[1]])
        if len(pool.x):
            fits(works, outputs_of(quiet, pool.x[:1]))
        table = open_table(works, parts, rule.state, kept, measures, kind)
        slots = slots_of(works, table, pool, rule.counts)
        for some in divide(slots, recipe.width, chunk):
            group = make(some, recipe, pool)
            if not chosen:
                chosen.append(engine_for(pool.x[group.rows[0]]))
            chosen[0][0].train(group, table)
        if slots:
            measured(measures, slots, table, quiet, parts, pool, chosen[0][1], chunk)

        def counted(w: Work, models: Mapping[str, torch.Tensor]) -> Mapping[str, Array]:
            return counts_of(w, w.asks.difference(figures), models, quiet, parts, pool, count)

        return close_table(works, table, parts, kept, counted)

    return Learner(init, work)
