"""``equipoise new study.toml [--data mine.csv]``: a commented study to start from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import app

if TYPE_CHECKING:
    from ..data import Kind

if TYPE_CHECKING:
    pass

LABELS = (r"(y|label|target|class|outcome)$", r".*(label|target|default|outcome|approved|granted|churn|fraud)")
BAD = r"default|fraud|churn|bad|arrest|recid|reject|denied|dropout"
GROUPS = r"^(sex|gender|race|ethnicity|age|nationality|religion|disability|marital.*)$"
CLIENTS = r"^(bank|branch|client|site|institution|hospital|subsidiary|region|state)([ _-]?(id|name))?$"


@app.command()
def new(
    study: Annotated[Path, typer.Argument(help="The study file to write; an existing one is never overwritten.")],
    data: Annotated[Path | None, typer.Option(help="Your CSV or Parquet table; else German Credit.")] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    positive: Annotated[str | None, typer.Option(help="Value of the label that is coded 1.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Column that makes groups; may be repeated.")] = None,
    client: Annotated[str | None, typer.Option(help="Column that says whose row it is.")] = None,
) -> None:
    """Write a commented study to start from; what is not given is guessed from the table and marked as a guess."""
    from ..checks import BadInput

    if study.exists():
        raise BadInput(f"{study} exists already; choose another name or delete it first")
    if not study.parent.is_dir():
        raise BadInput(f"the folder {study.parent} does not exist; create it first")
    if data is None and (label or positive or group or client):
        raise BadInput("--label, --positive, --group and --client describe a table of yours; give --data as well")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", study.stem).strip("-.") or "study"
    section = GERMAN if data is None else own_section(data, label, positive, group or [], client)
    natural = client is not None or "\nclient = " in section
    text = TOP.format(name=_toml(name)) + section + (NATURAL if natural else DEALT) + REST
    with study.open("x", encoding="utf-8") as file:
        file.write(text)
    typer.echo(f"wrote {study}; read it, then: equipoise run {study}")
    if "# GUESS" in text:
        typer.echo(f"{text.count('# GUESS')} lines in it are guesses, marked GUESS: check them first")


def own_section(path: Path, label: str | None, positive: str | None, groups: list[str], client: str | None) -> str:
    """Return the ``[data]`` section for a table: what was given as it is, the rest guessed and marked."""
    from ..checks import BadInput, nearest
    from ..data import kind_of, plain, read_columns

    columns, _ = read_columns(path)
    rows = len(next(iter(columns.values())))
    for name in [label, client, *groups]:
        if name is not None and name not in columns:
            raise BadInput(f"{path} has no column {name!r}; {nearest(name, columns)}")
    if label is not None and label in (client, *groups):
        raise BadInput(f"column {label!r} was given as the label and in another role; give each role its own column")
    kinds = {n: kind_of(n, cells, rows) for n, cells in columns.items()}
    values = {n: sorted({plain(c) for c in cells if c}) for n, cells in columns.items()}
    guess = "  # GUESS"
    label_guess = "" if label else guess
    label = label or _label([n for n, v in values.items() if len(v) == 2 and n not in (*groups, client)], kinds)
    if label is None:
        raise BadInput(f"{path} has no column with exactly two values to predict; name one with --label")
    if len(values[label]) != 2:
        raise BadInput(f"the label {label!r} has {len(values[label])} values; it must have two: choose another column")
    if positive is not None and plain(positive) not in values[label]:
        raise BadInput(f"--positive {positive!r} is no value of {label!r}; {nearest(plain(positive), values[label])}")
    group_guess = "" if groups else guess
    usable = [n for n, k in kinds.items() if n not in (label, client) and k.kind in ("categorical", "numeric")]
    likely = [n for n in usable if re.match(GROUPS, n, re.I)]
    groups = groups or likely[:1] or [n for n in usable if 2 <= len(values[n]) <= 5][:1]
    if not groups:
        raise BadInput(f"{path} has no column that looks like a group of people; name one with --group")
    client_guess = "" if client else guess
    client = client or next((n for n in columns if re.match(CLIENTS, n, re.I) and n not in (label, *groups)), None)
    if client is not None and len(values[client]) < 2:
        client = None
    bins = [n for n in groups if kinds[n].kind in ("numeric", "row number") and len(values[n]) > 10]
    out = [n for n, k in kinds.items() if k.kind == "too many levels" and n not in (label, client, *groups)]
    missing = {n: k.missing for n, k in kinds.items() if k.missing and n not in out}
    lines = ["", "[data]", f"path = {_toml(str(path))}", "# what its columns look like:"]
    lines += [f"#   {n}: {k.says}{f'; {k.missing} missing cells' if k.missing else ''}" for n, k in kinds.items()]
    first, second = values[label]
    one, one_guess = (second, guess) if positive is None else (plain(positive), "")
    other = first if one == second else second
    bad = re.search(BAD, f"{label} {one}", re.I) is not None
    lines += [
        f"label = {_toml(label)}{label_guess}",
        f"positive = {_toml(one)}{one_guess}    # the value coded 1; the other one is {_toml(other)}",
        "# Which outcome is good for the person? That is another question than which one is coded 1.",
        f'favourable = {_toml(f"{label} = {other if bad else one}")}{guess}: say it in words, such as "loan granted"',
        f'favourable_is = "{"negative" if bad else "positive"}"{guess}: is the value coded 1 the good outcome?',
        f"sensitive = {_toml(groups)}{group_guess}    # columns that make groups of people",
    ]
    for n in bins:
        known = sorted(float(v) for v in values[n])
        middle = known[len(known) // 2]
        lines.append(f"bins.{_key(n)} = [{middle:g}]{guess}: cut points; a value on a cut belongs below it")
    lines += [
        f"# reference.{_key(groups[0])} = ...    # the group that the others are compared with",
        f"client = {_toml(client)}{client_guess}    # whose row it is"
        if client
        else '# client = "bank"    # column that says whose row it is, with kind = "natural" below',
        f"leave_out = {_toml(out)}{guess + ': too many levels' if out else '    # columns that are no features'}",
    ]
    if missing:
        counts = ", ".join(f"{n} {k}" for n, k in missing.items())
        lines.append(f'missing = "group"{guess}: empty cells ({counts}) become a level; or "drop", or "error"')
    else:
        lines.append('missing = "error"    # there are none now; "group" makes a level of them, "drop" drops rows')
    lines.append("test_fraction = 0.2    # a stratified pool, held out before the rows are dealt to clients")
    return "\n".join(" ".join(line.splitlines()) for line in lines) + "\n"


def _label(names: list[str], kinds: dict[str, Kind]) -> str | None:
    """Return the name most like a label's, else the last column, where tables keep it most often; whole ones first."""
    names = [n for n in names if not kinds[n].missing] or names
    likely = (n for pattern in LABELS for n in names if re.match(pattern, n, re.I))
    return next(likely, names[-1] if names else None)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


TOP = """\
# A study of Equipoise: who trains, who attacks, and how the server weighs them.
# Run it with: equipoise run THIS_FILE    A list of values makes a grid: seeds, clients, rule parameters.
name = {name}
seeds = [42]
rounds = 16
"""
GERMAN = """
[data]
name = "german"              # or a list; `equipoise data list` says what there is
# sensitive = "sex"          # another grouping of `equipoise data show german`; "sex & age" makes intersections
test_fraction = 0.2          # a stratified pool, held out before the rows are dealt to clients
"""
NATURAL = """
[partition]
kind = "natural"             # every value of the client column is a client
"""
DEALT = """
[partition]
kind = "dirichlet"           # or "equal", "by-quantity"
over = "cells"               # the (label, group) cells; or "labels", "groups"
alpha = 0.5                  # small: clients differ much; large: they are alike
clients = 3
"""
REST = """
[model]
architecture = "splitml"     # the first layers are shared, the rest stays with each client; or "full", "silo"
shared = 2
hidden = [64, 32, 16]

[training]
steps = 60                   # per round and client
batch = "auto"               # all rows when fewer than 2,000 train, else 64
optimiser = "adam"
lr = 0.005

[score]
metric = "equal_opportunity_difference"
undefined = "neutral"        # a gap that does not exist (a group without positives) counts as 0.5

[[rule]]                     # each [[rule]] is run on the same rows; `equipoise list rules` says what there is
name = "fedavg"

[[rule]]
name = "fairis"
eta = 1.01

[clip]
norm = "calibrated"          # from an honest pilot run; or a number, or "none"

[adversary]                  # remove this section for an honest federation
kind = "disparity"
members = [0]                # clients by number, in the order of their names
strength = 2.0
"""
