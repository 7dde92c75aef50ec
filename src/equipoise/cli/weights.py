"""``equipoise weights``: what a rule makes of clients' reports, and the worst that it allows."""

from __future__ import annotations

import csv
import functools
import inspect
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from ..checks import BadInput, between, nearest, one_of, outside
from ..types import Array
from . import app

COLUMNS = ("client", "size", "score")


class Table(NamedTuple):
    """Reports of K clients: names, sizes (K,), and M scores (M, K), NaN where the cell is empty."""

    clients: list[str]
    sizes: Array
    scores: Array


class Result(NamedTuple):
    """One rule on a table: weights, marginals and worst cases, each (K,) except marginals (M, K) for several scores."""

    rule: str
    parameters: dict[str, Any]
    weights: Array
    marginal: Array
    worst: Array


@app.command()
def weights(
    reports: Annotated[Path, typer.Argument(help="CSV: client, size, score (in 0..1, higher is worse).")],
    rule: Annotated[
        list[str] | None, typer.Option(help="fairis if not given; may be repeated; or your own module:function.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every rule, side by side.")] = False,
    eta: Annotated[float | None, typer.Option(help="fairis, fairis-n, joint: above 1; 1.01 if not given.")] = None,
    share: Annotated[
        float | None, typer.Option(help="In place of eta: what a fully biased client may keep, below 1/K.")
    ] = None,
    honest: Annotated[
        float | None, typer.Option(help="With --share: the score that honest clients stay below; 0 if not given.")
    ] = None,
    power: Annotated[float | None, typer.Option(help="joint: 0 ignores sizes, 1 weighs by them.")] = None,
    beta: Annotated[float | None, typer.Option(help="fairfed: 0 is FedAvg; 1 if not given.")] = None,
    f_global: Annotated[
        float | None, typer.Option(help="fairfed: the population's figure; the size-weighted mean score if not given.")
    ] = None,
    undefined: Annotated[
        str, typer.Option(help="What an empty score counts as: neutral 0.5, worst 1, zero 0, or error.")
    ] = "neutral",
    as_json: Annotated[bool, typer.Option("--json", help="Print strict JSON, and nothing else.")] = False,
) -> None:
    """Weigh the clients of a table by one rule or all, with the worst case for this K and each client's marginal.

    Besides the client's name and its number of rows, every column whose name begins with "score" is a score; the
    first one counts, and the rule joint takes them all. fairfed is shown as one step from n_k / n.
    """
    from .. import weights as room

    table = read(reports)
    used, fallbacks = settle(table, undefined)
    known = {name: getattr(room, name) for name in room.__all__} | {"fairfed": fairfed}
    names = list(known) if every else [_key(name, known) for name in rule or ["fairis"]]
    if share is not None:
        if eta is not None:
            raise BadInput(f"--eta {eta:g} and --share {share:g} were both given; give one of them")
        eta = room.eta_for_cap(share, len(table.clients), honest or 0.0)
    elif honest is not None:
        raise BadInput(f"--honest {honest:g} belongs to --share; give --share too, or leave it out")
    given = {"eta": eta, "power": power, "beta": beta, "f_global": f_global}
    given = {name: value for name, value in given.items() if value is not None}
    rules = {name: known.get(name) or _own(name) for name in names}
    for option in given:
        if not any(option in inspect.signature(r).parameters for r in rules.values()):
            said = "share" if share is not None and option == "eta" else option.replace("_", "-")
            raise BadInput(f"--{said} belongs to none of the rules {', '.join(names)}; leave it out or add its rule")
    results = [weigh(name, r, given, table.sizes, used) for name, r in rules.items()]
    if as_json:
        print(_json(table, used, fallbacks, results))
    else:
        _show(table, used, fallbacks, results, honest or 0.0)


def read(path: Path) -> Table:
    """Read the reports, or say in one sentence what is wrong with them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = "is not UTF-8 text" if isinstance(e, UnicodeDecodeError) else f"cannot be read ({e.strerror})"
        raise BadInput(f"{path} {reason}; give a CSV file with the columns {', '.join(COLUMNS)}") from None
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = [(lines.line_num, row) for row in lines if any(cell.strip() for cell in row)]
    except csv.Error as e:
        raise BadInput(f"{path}, line {lines.line_num}: {e}; give a CSV file") from None
    if not rows:
        raise BadInput(f"{path} is empty; give a CSV file with the columns {', '.join(COLUMNS)}")
    header = [name.strip().lower() for name in rows[0][1]]
    for name in COLUMNS:
        if name not in header and not (name == "score" and any(h.startswith("score") for h in header)):
            raise BadInput(f"{path} has no column {name!r} (it has {', '.join(header)}); add it")
    if twice := [name for name in header if header.count(name) > 1]:
        raise BadInput(f"{path} has two columns {twice[0]!r}; keep one of them")
    clients: dict[str, int] = {}
    sizes, scores = [], []
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise BadInput(f"{path}, line {line}: {len(row)} cells for {len(header)} columns; quote commas in names")
        cells = dict(zip(header, (cell.strip() for cell in row), strict=True))
        client = cells["client"]
        if not client:
            raise BadInput(f"{path}, line {line}: the client has no name; give each client one")
        if client in clients:
            raise BadInput(f"client {client!r} is in line {clients[client]} and again in line {line}; keep one of them")
        clients[client] = line
        where = f"client {client!r}: "
        sizes.append(_number(where + "size", cells["size"]))
        scores.append([_number(where + h, cells[h], 1, empty=True) for h in header if h.startswith("score")])
    if len(clients) < 2:
        raise BadInput(f"{path} holds {len(clients)} client; a weight is a share among at least 2")
    if not any(sizes):
        raise BadInput(f"{path}: every size is 0; at least one client must have rows")
    return Table(list(clients), np.array(sizes), np.array(scores).T)


def settle(table: Table, policy: str) -> tuple[Array, dict[str, str]]:
    """Put the policy's value where a score is empty, and say so by client."""
    from ..aggregate import UNDEFINED

    if policy == "previous":
        raise BadInput("policy 'previous' needs rounds, and a table holds one; take neutral, worst, zero or error")
    one_of("policy for undefined scores", policy, [p for p in UNDEFINED if p != "previous"])
    missing = np.isnan(table.scores)
    names = [table.clients[k] for k in np.flatnonzero(missing.any(axis=0))]
    if names and policy == "error":
        raise BadInput(f"client {names[0]!r} has no score; give one, or a policy such as --undefined neutral")
    note = f"score undefined: {policy} {UNDEFINED[policy]:g}" + ", for reproduction only" * (policy == "zero")
    return np.where(missing, UNDEFINED[policy], table.scores), dict.fromkeys(names, note)


def fairfed(scores: Array, sizes: Array, *, beta: float = 1.0, f_global: float | None = None) -> Array:
    """One step of FairFed from n_k / n, the scores standing for local metrics.

        w_k ~ max(0, n_k / n - beta (gap_k - mean gap)),   gap_k = |s_k - F_global|

    Without ``f_global`` the population's figure is the size-weighted mean score.
    """
    from ..aggregate import fairfed_step

    if not (math.isfinite(beta) and beta >= 0):
        raise BadInput(f"beta must be 0 or more, got {beta:g}")
    if f_global is not None:
        between("f-global", f_global, -1, 1, "a gap between rates")
    start = sizes / sizes.sum()
    everyone = start @ scores if f_global is None else f_global
    new = fairfed_step(start, np.abs(scores - everyone), beta=beta)
    return np.asarray(new / new.sum()) if new.sum() > 0 else start


def weigh(name: str, rule: Callable[..., Array], given: Mapping[str, Any], sizes: Array, scores: Array) -> Result:
    """Apply a rule: its weights, their slopes, and what each client would keep at score 1 among clients of score 0."""
    from .. import weights as room

    own = {p.name: p.default for p in inspect.signature(rule).parameters.values() if p.kind is p.KEYWORD_ONLY}
    parameters = own | {key: value for key, value in given.items() if key in own}
    s = scores if rule is room.joint else scores[0]
    worst = np.empty(len(sizes))
    for k in range(len(sizes)):
        alone = np.zeros_like(s)
        alone[..., k] = 1
        worst[k] = rule(alone, sizes, **parameters)[k]
    values = rule(s, sizes, **parameters)
    return Result(name.replace("_", "-"), parameters, values, room.marginal(rule, s, sizes, **parameters), worst)


def _number(what: str, cell: str, most: float = math.inf, *, empty: bool = False) -> float:
    if empty and cell.lower() in ("", "na", "nan", "null"):
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (0 <= value <= most and math.isfinite(value)):
        wanted = "a number in 0..1 or an empty cell" if empty else "a number of rows, 0 or more"
        raise BadInput(f"{what} is {cell!r}; give {wanted}")
    return value


def _key(name: str, known: Mapping[str, Any]) -> str:
    key = name.replace("-", "_")
    if ":" in name or key in known:
        return name if ":" in name else key
    hint = nearest(key, [k.replace("_", "-") for k in known])
    raise BadInput(f"rule {name!r} is unknown; {hint}, or give your own as module:function")


def _own(name: str) -> Callable[..., Array]:
    from ..aggregate import on_simplex

    rule = outside("rule", name, "turns scores (K,) and sizes (K,) into weights (K,)")

    @functools.wraps(rule)
    def checked(scores: Array, sizes: Array, **parameters: Any) -> Array:
        return on_simplex(rule, rule(scores, sizes, **parameters), len(sizes))

    return checked


def _json(table: Table, used: Array, fallbacks: Mapping[str, str], results: list[Result]) -> str:
    from ..records import strict

    one = len(used) == 1
    rows = []
    for r in results:
        row = {**r._asdict(), "worst_share": r.worst.max()}
        rows.append(row | ({"note": NO_MASS} if np.isnan(r.weights).any() else {}))
    return strict(
        {
            "clients": table.clients,
            "sizes": table.sizes,
            "raw_scores": table.scores[0] if one else table.scores,
            "scores": used[0] if one else used,
            "fallbacks": dict(fallbacks),
            "equal_share": 1 / len(table.clients),
            "rules": rows,
        },
        indent=1,
    )


NO_MASS = "every mass is 0, so a share is 0/0; a run weighs equally in such a round and says so"


def _show(table: Table, used: Array, fallbacks: Mapping[str, str], results: list[Result], honest: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(width=None if len(results) < 4 else max(Console().width, 60 + 13 * len(results)))
    single = len(results) == 1
    grid = Grid(box=box.SIMPLE_HEAD, title=None if single else "weights", title_justify="left")
    grid.add_column("client")
    for name in ["size", *(["score"] * len(used)), *(r.rule for r in results)]:
        grid.add_column(name if not single or name != results[0].rule else "weight", justify="right")
    if single:
        for name in ["d weight / d score", "if score 1, others 0"]:
            grid.add_column(name, justify="right")
    for k, client in enumerate(table.clients):
        marked = [f"{s[k]:.3f}" + ("*" if np.isnan(raw[k]) else "") for s, raw in zip(used, table.scores, strict=True)]
        row = [client, f"{table.sizes[k]:g}", *marked, *(_figure(r.weights[k]) for r in results)]
        if single:
            row += [_slope(results[0].marginal, k), _figure(results[0].worst[k])]
        grid.add_row(*row)
    console.print(grid)
    if not single:
        slopes = Grid(box=box.SIMPLE_HEAD, title="d weight / d score", title_justify="left")
        slopes.add_column("client")
        for r in results:
            slopes.add_column(r.rule, justify="right")
        for k, client in enumerate(table.clients):
            slopes.add_row(client, *(_slope(r.marginal, k) for r in results))
        console.print(slopes)
    for client, note in fallbacks.items():
        print(f"* client {client}: {note}")
    _worst_case(len(table.clients), results, honest)


def _worst_case(k: int, results: list[Result], honest: float) -> None:
    from .. import weights as room

    print(f"K = {k}: equal weights are {1 / k:.4g}. A fully biased client among perfectly fair ones keeps at most")
    for r in results:
        inside = ", ".join(f"{name} = {_value(value)}" for name, value in r.parameters.items() if value is not None)
        print(f"  {_figure(r.worst.max())}  {r.rule}" + (f" ({inside})" if inside else ""))
        if honest and r.rule == "fairis":
            share = room.worst_share(r.parameters["eta"], k, honest)
            print(f"  {_figure(share)}  {r.rule}, among clients that all score {honest:g}")
        if np.isnan(r.weights).any():
            print(f"          {NO_MASS}")
        if r.rule == "fairfed":
            print("          one step from n_k / n; over several rounds its weights go on moving")
    if any("eta" in r.parameters for r in results):
        top = room.largest_default_eta(k)
        print(f"eta = (K+1)/K = {top:.4g} would leave it 1/K^2 = {1 / k**2:.4g} (sizes apart); --share C finds the eta")
        print("that leaves it C; with --honest H that is a cap as long as the others score below H.")
        print("Among clients that are all equally biased each keeps its equal share, whatever eta.")


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _figure(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.4f}"


def _slope(marginal: Array, k: int) -> str:
    return " ".join("undefined" if np.isnan(v) else f"{v + 0.0:.4f}" for v in np.atleast_2d(marginal)[:, k])
