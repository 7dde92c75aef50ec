"""The one place where rounds become Flower's records and come back: what is sent, what is answered, what is refused.

Everything a client answers is a claim. Here it is checked for form: types, names, shapes, ranges; a reply that does
not fit is rejected with the reason and never ends a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from ..checks import BadInput
from ..layout import Layout
from ..types import Array, Broadcast, Reports

COUNTS = "counts."
"""Metric names of count tables begin with it: ``counts.trained`` is G x 4 integers, row after row."""

NEVER_NEGATIVE = frozenset({"trace_error"})
"""Figures that no honest client reports below 0."""


@dataclass(frozen=True)
class Request:
    """What a client is asked for: one row of a ``Broadcast``.

    ``federation``: the number drawn when the run folder was made, by which a client tells runs apart; ``last``: the
    round of this run in which the server last heard from the client, 0 if never.
    """

    run: str
    round: int
    client: int
    model: Mapping[str, Array]
    news: Mapping[str, float]
    asks: frozenset[str]
    federation: str = ""
    last: int = 0


@dataclass(frozen=True)
class Reply:
    """What a client answers: its trained shared part by name, its training rows, figures, counts (G, 4), counters."""

    arrays: Mapping[str, Array]
    size: float
    figures: Mapping[str, float]
    counts: Mapping[str, Array]


def requests(
    run: str,
    broadcast: Broadcast,
    layout: Layout,
    asks: Collection[str],
    federation: str = "",
    last: Mapping[int, int] | None = None,
) -> list[Request]:
    """Cut a broadcast into what each of its clients is sent."""
    model = layout.split(broadcast.model)
    return [
        Request(
            run,
            broadcast.round,
            int(client),
            model,
            {name: float(values[i]) for name, values in broadcast.news.items()},
            frozenset(asks),
            federation,
            (last or {}).get(int(client), 0),
        )
        for i, client in enumerate(broadcast.clients)
    ]


def pack_request(request: Request) -> RecordDict:
    """Turn a request into Flower's records: ``arrays``, ``config`` and ``news``."""
    config = ConfigRecord(
        {
            "run": request.run,
            "server-round": request.round,
            "client": request.client,
            "asks": sorted(request.asks),
            "federation": request.federation,
            "last": request.last,
        }
    )
    return RecordDict(
        {"arrays": pack_arrays(request.model), "config": config, "news": MetricRecord(dict(request.news))}
    )


def open_request(content: RecordDict) -> Request:
    """Read a request at the client; one that another version of the server sent is refused by name."""
    try:
        config = content.config_records["config"]
        return Request(
            str(config["run"]),
            int(config["server-round"]),  # type: ignore[arg-type]
            int(config["client"]),  # type: ignore[arg-type]
            {name: _numbers(name, array) for name, array in content.array_records["arrays"].items()},
            {name: float(value) for name, value in content.metric_records["news"].items()},  # type: ignore[arg-type]
            frozenset(str(name) for name in config["asks"]),  # type: ignore[union-attr]
            _plain(str(config["federation"])),
            int(config["last"]),  # type: ignore[arg-type]
        )
    except (KeyError, TypeError, ValueError) as e:
        raise BadInput(
            f"the server's message lacks or garbles {e}; install the same version of equipoise there and here"
        ) from None


def _plain(name: str) -> str:
    """A name from the server becomes a folder at the client, and must not lead out of where memories lie."""
    if not re.fullmatch(r"[0-9a-f]{0,64}", name):
        raise BadInput(f"the server calls the federation {_short(name)}, which is no number; do not trust this server")
    return name


def pack_reply(reports: Reports, layout: Layout, received: Array) -> RecordDict:
    """Turn a client's own row of the reports into Flower's records: ``arrays`` and ``metrics``."""
    counters = {name: values[0] for name, values in reports.counters.items()}
    metrics: dict[str, Any] = {"num-examples": int(reports.sizes[0])}
    metrics |= {name: float(values[0]) for name, values in reports.figures.items()}
    metrics |= {COUNTS + moment: table[0].ravel().tolist() for moment, table in reports.counts.items()}
    arrays = layout.split((received + reports.updates[0]).astype(received.dtype)) | counters
    return RecordDict({"arrays": pack_arrays(arrays), "metrics": MetricRecord(metrics)})


def open_reply(content: RecordDict, groups: int, asks: Collection[str], *, trained: bool = True) -> Reply:
    """Read a client's reply at the server.

    Parameters
    ----------
    groups : G of the count tables
    asks : figures and moments that the rule cannot do without; a reply without one of them is refused

    Raises
    ------
    BadInput : something is missing, of another type or shape, no number of rows, or outside its range
    """
    try:
        metrics = content.metric_records["metrics"]
        records = content.array_records["arrays"] if trained else {}
    except KeyError as e:
        raise BadInput(f"the reply has no record {e}; send 'arrays' and 'metrics'") from None
    size = metrics.get("num-examples", math.nan)
    if not isinstance(size, int | float) or not (math.isfinite(size) and size >= 0):
        raise BadInput(
            f"num-examples is {_short(size)}, which is no number of rows; send how many rows were trained on"
        )
    counts = {n.removeprefix(COUNTS): _table(n, v, groups) for n, v in metrics.items() if n.startswith(COUNTS)}
    figures = {n: _figure(n, v) for n, v in metrics.items() if n != "num-examples" and not n.startswith(COUNTS)}
    if lacking := sorted(set(asks) - set(counts) - set(figures)):
        raise BadInput(f"the reply lacks {lacking[0]!r}, which the rule asks for; send it with the others")
    for moment, table in counts.items():
        if "@" not in moment and table.sum() != size:
            raise BadInput(
                f"{COUNTS}{moment} counts {table.sum()} rows, but num-examples is {size:g}; "
                "count every training row once"
            )
    arrays = {name: _numbers(name, array) for name, array in records.items()}
    return Reply(arrays, float(size), figures, counts)


def stack(replies: Mapping[int, Reply]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return figures (K,) and counts (K, G, 4) in the order of the client ids, of what every reply holds."""
    each = [replies[c] for c in sorted(replies)]
    figures = {n: np.array([r.figures[n] for r in each]) for n in _common([r.figures for r in each])}
    return figures, {m: np.stack([r.counts[m] for r in each]) for m in _common([r.counts for r in each])}


def _common(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    return [n for n in (mappings[0] if mappings else ()) if all(n in m for m in mappings)]


def pack_arrays(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Turn named arrays into Flower's record."""
    return ArrayRecord({name: FlowerArray(np.asarray(a, order="C")) for name, a in arrays.items()})


def _numbers(name: str, array: FlowerArray) -> Array:
    try:
        values = array.numpy()
    except (ValueError, TypeError, EOFError, OSError, MemoryError, SyntaxError) as e:
        raise BadInput(f"{name!r} cannot be read ({_short(str(e))}); send a NumPy array of numbers") from None
    if values.dtype.kind not in "fiu":
        raise BadInput(f"{name!r} holds {values.dtype}; send a NumPy array of numbers")
    return values


def _figure(name: str, value: Any) -> float:
    if not isinstance(value, int | float):
        raise BadInput(f"{name} is {_short(value)}; send one number, NaN where there is none")
    if math.isinf(value) or (name in NEVER_NEGATIVE and value < 0):
        raise BadInput(
            f"{name} is {value:g}, which no figure of this kind can be; send a number, NaN where there is none"
        )
    return float(value)


def _table(name: str, value: Any, groups: int) -> Array:
    if not isinstance(value, list) or len(value) != 4 * groups or not all(isinstance(v, int) for v in value):
        raise BadInput(
            f"{name} is {_short(value)}; send {4 * groups} integers: tp, fp, tn, fn of each of {groups} groups"
        )
    if min(value, default=0) < 0 or max(value, default=0) >= 2**53:
        raise BadInput(f"{name} has a count of {min(value) if min(value) < 0 else max(value)}; send numbers of rows")
    return np.array(value, np.int64).reshape(groups, 4)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
