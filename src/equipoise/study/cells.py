"""Tables become federations: groups, test pool, partition, scaling; one federation per (data set, K, seed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import data
from ..checks import BadInput
from ..data import partition
from ..rounds import stream
from ..types import Array, Federation, Shard
from .lookup import catalogue, check_types, lookup, parameters, refuse_unknown
from .schema import Study


@dataclass(frozen=True)
class Source:
    """One data set of a study, read and grouped."""

    name: str
    table: data.Table
    group: Array
    group_names: tuple[str, ...]
    sensitive: str
    favourable: str
    favourable_label: int
    log: tuple[str, ...]
    hashes: Mapping[str, str]


@dataclass(frozen=True)
class Cell:
    """One federation of a study, and what is known about how it was made."""

    source: Source
    clients: int
    seed: int
    federation: Federation
    client_names: tuple[str, ...]
    train_rows: int
    scaling: data.Scaling
    log: tuple[str, ...] = field(default_factory=tuple)


def sources(study: Study) -> list[Source]:
    """Read every data set of the study."""
    section = study.data
    out = []
    for name in section.name or (Path(str(section.path)).stem,):
        if section.path is not None:
            table = data.own_table(data.OwnTable(**section.own()))
        else:
            folder = None if section.folder is None else Path(section.folder)
            table = data.load(name, folder, **section.options)
        sensitive = "&".join(section.sensitive) if isinstance(section.sensitive, list) else section.sensitive
        group, names, log = data.groups_of(table, sensitive)
        task = table.task
        if table.client is not None and study.partition.kind != "natural":
            kind = study.partition.kind
            log += (f'note: the client column is not used: partition.kind is {kind!r}; "natural" makes clients of it',)
        out.append(
            Source(
                name=name,
                table=table,
                group=group,
                group_names=tuple(names),
                sensitive=sensitive or task.default,
                favourable=task.favourable,
                favourable_label=int(task.favourable_is == "positive"),
                log=(*table.log, *log),
                hashes=table.hashes,
            )
        )
    return out


def _deal(source: Source, rows: Array, clients: int, seed: int, study: Study) -> partition.Dealt:
    """Deal these rows to clients; natural clients come sorted by name."""
    section, table = study.partition, source.table
    deal = lookup("partition.kind", section.kind, catalogue(partition), "turns labels and groups into K row arrays")
    own = parameters(deal, wired=("clients", "seed"))
    given = section.model_extra or {}
    refuse_unknown(f"partition {section.kind}", given, own)
    check_types(f"partition {section.kind}", deal, given, {})
    settings = {k: v for k, v in section.model_dump().items() if k in own}
    if deal is partition.natural:
        if table.client is None:
            raise BadInput(
                f'partition.kind = "natural" needs a client column, and {source.name} has none; '
                "set data.client, or choose another kind"
            )
        dealt = deal(table.client[rows], table.y[rows], seed=seed, **settings)
        return partition.Dealt([rows[p] for p in dealt.parts], dealt.names, dealt.log)
    parts = deal(table.y[rows], source.group[rows], clients=clients, seed=seed, **settings)
    if ":" in section.kind:
        parts = _each_row_once(section.kind, parts, len(rows), clients)
    idle = data.left_out(parts, table.y[rows], table.classes)
    names = tuple(f"client {k}" for k in range(clients))
    return partition.Dealt([rows[p] for p in parts], names, (idle,) if idle else ())


def _each_row_once(kind: str, given: Any, n: int, clients: int) -> list[Array]:
    """Make sure that a partition of a user's own hands out every row once, and some to each client."""
    what = f"partition.kind {kind!r}"
    try:
        parts = [np.asarray(p).astype(np.int64, casting="same_kind") for p in given]
        rows = np.sort(np.concatenate(parts))
    except (TypeError, ValueError) as e:
        raise BadInput(f"{what} returned no arrays of row numbers ({e}); return {clients} of them") from None
    if len(parts) != clients or not all(len(p) for p in parts):
        sizes = ", ".join(str(len(p)) for p in parts)
        raise BadInput(f"{what} returned parts of {sizes} rows; return {clients} parts with at least one row each")
    if not np.array_equal(rows, np.arange(n)):
        raise BadInput(
            f"{what} handed out {len(rows)} rows, {len(np.unique(rows))} of them different, numbered {rows[0]} to "
            f"{rows[-1]}; hand out each of 0 to {n - 1} once"
        )
    return parts


def _describe(source: Source, parts: Sequence[Array], names: Sequence[str]) -> list[str]:
    """A sentence per client: rows, and of each group how many with y = 1; or of each class, where they are many."""
    y, classes = source.table.y, source.table.classes
    split = data.describe(parts, y, source.group, len(source.group_names))
    out = []
    for name, cells, distance in zip(names, split.cells, split.distance, strict=True):
        if len(classes) > 2:
            of = cells.sum(1)
            each = ", ".join(f"{c} {n}" for c, n in zip(classes, of, strict=False) if n)
            groups = each if len(classes) <= 10 else f"{(of > 0).sum()} of {len(classes)} classes"
        else:
            groups = ", ".join(
                f"{g} {c.sum()} ({c[1:].sum()} with y = 1)" for g, c in zip(source.group_names, cells.T, strict=True)
            )
        out.append(f"  {name}: {cells.sum()} rows; {groups}; {distance:.2f} from the whole (total variation, 0..1)")
    return out


def _hold_out(source: Source, parts: Sequence[Array], fraction: float, seed: int, what: str) -> tuple[Any, Any]:
    """Take a stratified share of every client's rows aside: (what stays, what is held out), per client."""
    stays, held = [], []
    for k, rows in enumerate(parts):
        own = int(stream(seed, "held" if what == "held_fraction" else what, 0, k).integers(2**31))
        keep, out = data.hold_out(source.table.y[rows], source.group[rows], fraction, own, what)
        stays.append(rows[keep])
        held.append(rows[out])
    return stays, held


def cell(source: Source, clients: int, seed: int, study: Study) -> Cell:
    """Hold out the stratified test pool, partition the rest, scale on training rows, and set up the federation.

    Natural clients each give their own share to the pool, which is also what they hold out unless more is asked for;
    otherwise the pool is drawn before the rows are dealt. The partition depends on the data set, the seed and the
    number of clients alone, so every rule, the pilot and the adversary-free control of a seed see the same rows.
    """
    t, section = source.table, study.data
    held: list[Array] = []
    if study.partition.kind == "natural":
        dealt = _deal(source, np.arange(len(t.y)), clients, seed, study)
        parts, held = _hold_out(source, dealt.parts, section.test_fraction, seed, "test_fraction")
        test = np.sort(np.concatenate(held))
    else:
        train, test = data.hold_out(t.y, source.group, section.test_fraction, seed)
        dealt = _deal(source, train, clients, seed, study)
        parts = dealt.parts
    names = dealt.names
    if not len(test):
        raise BadInput(
            f"data.test_fraction = {section.test_fraction:g} holds out none of the {len(t.y)} rows of {source.name}; "
            "raise it, or nothing can be measured"
        )
    if len(parts) < 2:
        raise BadInput(
            f"{source.name} is dealt to 1 client ({names[0]}); a weight is a share among at least 2: "
            "raise partition.clients, or choose another partition.kind"
        )
    if section.held_fraction > 0:
        parts, held = _hold_out(source, parts, section.held_fraction, seed, "held_fraction")
    every = np.concatenate(parts)
    scaling = data.fit_scaling(t.x, t.numeric, every)
    x = data.scale(t.x, scaling).astype(np.dtype(study.training.dtype))

    def shard(rows: Array) -> Shard:
        return Shard(x[rows], t.y[rows], source.group[rows])

    pool = shard(test)
    views: dict[str, Sequence[Shard]] = {"test": [pool] * len(parts)}
    if held:
        views["held"] = [shard(rows) for rows in held]
    log = (
        f"{source.name}, seed {seed}: {len(test)} rows held out as the test pool, "
        f"{len(every)} for training at {len(parts)} clients"
        + (f", {sum(map(len, held))} held out at the clients" if held else ""),
        *dealt.log,
        *_describe(source, parts, names),
    )
    ids = np.arange(len(parts), dtype=np.int64)
    federation = Federation(
        ids, [shard(rows) for rows in parts], {}, len(source.group_names), views, len(source.table.classes)
    )
    return Cell(source, len(parts), seed, federation, names, len(every), scaling, log)


def member_shard(cell: Cell, path: Path, study: Study) -> Shard:
    """Return a member's own rows as the study's model takes them: its levels, its groups, its scaling."""
    table = data.rows_of_member(path, cell.source.table, missing=study.data.own().get("missing", "error"))
    x = data.scale(table.x, cell.scaling).astype(np.dtype(study.training.dtype))
    return Shard(x, table.y, data.codes_of(table, cell.source.sensitive))
