"""Which rows a client sees at which step: an index plan made by numpy, independent of engine, chunk and company."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..checks import BadInput
from ..rounds import stream
from ..types import Array, Shard

Sampling = Literal["replacement", "epoch", "poisson"]
Balance = Literal["class", "cell", "none"]

STEPS = 60
"""Local steps a round with replacement, where nothing else is said."""

LARGE = 1024
"""A full batch of more rows gains nothing from company: such a client trains alone, and unpadded."""

WIDTH = 32
"""Batches are padded to a multiple of this with rows of weight 0, for the reason told in ``optimisers``."""


def row_weights(shard: Shard, balance: Balance) -> Array:
    """Return the weight (n,) of each row in the loss, mean 1 over the client's rows.

    "class": 1 / (parts * share of the row's label among the client's rows), so that all classes that the client has
    count the same; parts is their number, at least 2, so that a client with one class gets 0.5 throughout. "cell": the
    same over the (label, group) cells that it has. "none": 1.

    Examples
    --------
    >>> row_weights(Shard(np.zeros((4, 1)), np.array([1, 0, 0, 0]), np.zeros(4, int)), "class").round(3)
    array([2.   , 0.667, 0.667, 0.667])
    """
    n = len(shard.y)
    if balance == "none" or n == 0:
        return np.ones(n)
    label = np.asarray(shard.y).astype(np.int64)
    cell = label if balance == "class" else label + (label.max() + 1) * np.asarray(shard.group, np.int64)
    sizes = np.bincount(cell)
    present = int(np.count_nonzero(sizes))
    parts = max(2, present) if balance == "class" else present
    return np.asarray(n / (parts * sizes[cell]))


class Pool:
    """The rows of all shards ever seen, as one tensor per column, so that a step gathers from one place.

    Attributes
    ----------
    x : (N, f) features
    y, weight : (N,) labels and loss weights, in the run's dtype
    group : (N,) int64
    """

    def __init__(self, dtype: torch.dtype, balance: Balance) -> None:
        self.dtype, self.balance = dtype, balance
        self.x, self.y, self.weight = (torch.zeros(0, dtype=dtype) for _ in range(3))
        self.group = torch.zeros(0, dtype=torch.int64)
        self._start: dict[int, int] = {}
        self._held: list[Shard] = []  # keeps the ids in _start taken

    def add(self, shards: list[Shard]) -> None:
        """Take in those shards that are new."""
        new = list({id(s): s for s in shards if id(s) not in self._start}.values())
        at = len(self.y)
        for shard in new:
            self._start[id(shard)] = at
            at += len(shard.y)
        self._held += new
        if not any(len(s.y) for s in new):
            return

        def grown(old: Tensor, arrays: list[Array], dtype: torch.dtype) -> Tensor:
            fresh = torch.from_numpy(np.concatenate(arrays)).to(dtype)
            return torch.cat([old, fresh]) if len(old) else fresh

        filled = [s for s in new if len(s.y)]
        widths = {np.shape(s.x)[1] for s in filled} | ({self.x.shape[1]} if len(self.x) else set())
        if len(widths) > 1:
            raise BadInput(f"rows have {' and '.join(map(str, sorted(widths)))} features; all clients need the same")
        self.x = grown(self.x, [np.asarray(s.x) for s in filled], self.dtype)
        self.y = grown(self.y, [np.asarray(s.y) for s in filled], self.dtype)
        self.group = grown(self.group, [np.asarray(s.group) for s in filled], torch.int64)
        self.weight = grown(self.weight, [row_weights(s, self.balance) for s in filled], self.dtype)

    def place(self, shard: Shard) -> slice:
        """Say where the rows of a shard lie."""
        at = self._start[id(shard)]
        return slice(at, at + len(shard.y))


def padded(n: int, batch: int | None) -> int:
    """Return the padded batch size of a client with n rows: it depends on this client alone.

    A full batch is padded to the next power of two, so that clients of about one size can train side by side; beyond
    ``LARGE`` rows each trains alone, and there is nothing to pad for.
    """
    if batch is None:
        return n if n > LARGE else max(WIDTH, 1 << (n - 1).bit_length())
    return -(-batch // WIDTH) * WIDTH


def local_steps(n: int, steps: int | None, batch: int | None, sampling: Sampling, epochs: int) -> int:
    """Return the local steps of a client with n rows; see ``plan``."""
    if sampling == "replacement":
        return STEPS if steps is None else steps
    passes = epochs * (1 if batch is None else -(-n // batch))
    if steps is None:
        return passes
    return min(steps, passes) if sampling == "epoch" else steps


def drawn(
    n: int,
    steps: int | None,
    batch: int,
    sampling: Sampling,
    seed: int,
    t: int,
    client: int,
    epochs: int = 1,
) -> Array:
    """Return how many rows each step of a client has, (T,); see ``plan``."""
    count = local_steps(n, steps, batch, sampling, epochs)
    if sampling == "replacement":
        return np.full(count, batch)
    if sampling == "epoch":
        return np.minimum(batch, n - batch * (np.arange(count) % -(-n // batch)))
    return stream(seed, "batch sizes", t, client).binomial(n, min(1.0, batch / n), count)


def width(
    n: int,
    steps: int | None,
    batch: int | None,
    sampling: Sampling,
    seed: int,
    t: int,
    client: int,
    epochs: int = 1,
) -> int:
    """Return the padded batch size of a client's plan, which depends on this client alone."""
    if batch is None or sampling != "poisson":
        return padded(n, batch)
    return padded(n, max(1, int(drawn(n, steps, batch, sampling, seed, t, client, epochs).max())))


def plan(
    n: int,
    steps: int | None,
    batch: int | None,
    sampling: Sampling,
    seed: int,
    t: int,
    client: int,
    epochs: int = 1,
) -> tuple[Array, Array]:
    """Draw a client's batches for one round.

    Parameters
    ----------
    n : rows of the client, at least 1
    steps : local steps; None = 60 with replacement, else what ``epochs`` take. For "epoch" at most so many
    batch : rows a step; None = all of them, which is one step an epoch
    sampling : "replacement" draws each batch with replacement; "epoch" passes ``epochs`` times over the rows, each
        time freshly shuffled, and the last batch of a pass may be short; "poisson" lets every row into every batch
        independently with probability q = min(1, batch / n), so that a batch may also be empty, ``epochs`` / q steps

    Returns
    -------
    rows : (T, B) int64 row numbers in 0..n-1; T = 1 for a full batch, which is the same at each step
    valid : (T,) how many of the B come from the plan; the rest is padding and repeats row 0

    Examples
    --------
    >>> rows, valid = plan(70, None, 64, "epoch", seed=1, t=1, client=0, epochs=2)
    >>> rows.shape, valid.tolist()
    ((4, 64), [64, 6, 64, 6])
    >>> sorted([*rows[0], *rows[1, :6]]) == sorted([*rows[2], *rows[3, :6]]) == list(range(70))
    True
    >>> plan(70, 4, 7, "poisson", seed=1, t=1, client=0)[1].tolist()  # q = 0.1
    [11, 2, 5, 6]
    """
    key = seed, t, client
    wide = width(n, steps, batch, sampling, *key, epochs)
    if batch is None:
        rows, valid = np.zeros((1, wide), np.int64), np.array([n])
        rows[0, :n] = np.arange(n)
        return rows, valid
    valid = drawn(n, steps, batch, sampling, *key, epochs)
    rows = np.zeros((len(valid), wide), np.int64)
    random = stream(seed, "batch", t, client)
    if sampling == "replacement":
        rows[:, :batch] = random.integers(0, n, (len(valid), batch))
    elif sampling == "epoch":
        each = -(-n // batch)
        passes = np.zeros((-(-len(valid) // each), each * batch), np.int64)
        for order in passes:
            order[:n] = random.permutation(n)
        rows[:, :batch] = passes.reshape(-1, batch)[: len(valid)]
    else:  # given its size, a batch of independent rows is a uniform choice
        for row, size in zip(rows, valid, strict=True):
            row[:size] = random.choice(n, size, replace=False, shuffle=False)
    return rows, valid
