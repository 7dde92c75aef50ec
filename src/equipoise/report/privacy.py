"""What a run gave away: whose records were traced, what clients report and are told, and what DP-SGD has spent."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import NamedTuple

import numpy as np

from ..accounting import NOT_COVERED, NOT_COVERED_CENTRALLY
from ..records.privacy import ranked
from . import ink, plots
from .charts import Figure, Holes, column, members, rounds_of, styled
from .folder import About, Line, Private, Traced
from .ink import number
from .plots import Mark
from .words import counted, short

SHOWN_UP_TO = 24
"""With more clients than these the charts of exposure show the most exposed; clients.csv has all."""

SOURCE = {
    "loss": "the least loss",
    "probe_head": "the least loss under a head trained on its features",
    "nearest": "the nearest features",
}
"""What gives the owner of a record away, by attack."""


class Followed(NamedTuple):
    """A figure between clients and server that is drawn over the rounds, with its error where one is reported."""

    key: str
    title: str
    way: str
    caption: str
    error: str = ""


TOLD = (
    Followed(
        "rho",
        "Rho over rounds",
        "high: penalised more",
        "How risky the server told each client that it is, from the round before; it scales the term in its loss.",
    ),
)
REPORTED = (
    Followed(
        "eigenvalue",
        "Top eigenvalue over rounds",
        "high is taken for risk",
        "Largest eigenvalue of the Hessian of each client's loss, as it reported it. Open mark: none was reported.",
    ),
    Followed(
        "trace",
        "Trace over rounds",
        "high is taken for risk",
        "Trace of that Hessian, as each client reported it. Open mark: none was reported.",
        "trace_error",
    ),
)


def figures(about: About, rounds: Sequence[Line]) -> list[Figure]:
    """Return the charts of a run's privacy; those without records are left out."""
    trained = [line for line in rounds if not line.closing]
    ids = members(rounds)
    traced = _traced(trained)
    made = [_exposure(about, traced), _losses(about, traced)]
    made += [_followed(about, trained, ids, what, told=True) for what in TOLD]
    made += [_followed(about, trained, ids, what, told=False) for what in REPORTED]
    return [f for f in made if f is not None]


def _traced(trained: Sequence[Line]) -> list[tuple[int, str, Traced]]:
    """Return (round, attack, what it found) of every probed round, by the attack that the summary speaks of."""
    probed = [line for line in trained if line.probed.source]
    return [(x.round, name, x.probed.source[name]) for x in probed for name in ranked(x.probed.source)[:1]]


def _shares(traced: Sequence[tuple[int, str, Traced]]) -> dict[int, list[tuple[float, int]]]:
    """Return client -> (share traced to it, round) where there is one; the most exposed first, those without last."""
    found: dict[int, list[tuple[float, int]]] = {k: [] for k in sorted({c for *_, t in traced for c in t.clients})}
    for round_, _, seen in traced:
        for k, share in zip(seen.clients, seen.success, strict=True):
            found[k] += [(share, round_)] if share is not None else []
    return dict(sorted(found.items(), key=lambda item: -_mean(item[1]) if item[1] else np.inf))


def _mean(shares: Sequence[tuple[float, int]]) -> float:
    return sum(share for share, _ in shares) / len(shares)


def _exposure(about: About, traced: Sequence[tuple[int, str, Traced]]) -> Figure | None:
    if not traced:
        return None
    shares = _shares(traced)
    rows = []
    for k, found in list(shares.items())[:SHOWN_UP_TO]:
        colour = ink.VERMILION if k in about.adversaries else ink.BLUE
        mark, note = Mark(None, colour=colour, title="undefined: no record of it was looked at"), ""
        if found:
            mean, (most, when) = _mean(found), max(found, key=lambda pair: pair[0])
            said = f"mean {number(mean)} over {counted(len(found), 'round')}; at most {number(most)}, in round {when}"
            mark, note = Mark(mean, mean, most, colour, title=said), number(mean)
        rows.append((about.called(k), [mark], note))
    chances = [t.chance for *_, t in traced if t.chance is not None]
    chance = sum(chances) / len(chances) if chances else None
    svg = plots.dots(
        rows,
        label="Share of each client's records that the server traces to it",
        reference=(chance, f"chance {number(chance)}") if chance is not None else None,
        high=1.0,
    )
    attack = traced[-1][1]
    caption = f"A record is traced to the client with {SOURCE.get(attack, f'the least {attack}')}. "
    caption += "Dot and number: mean over the probed rounds; the bar ends at the highest round."
    return Figure("Records traced to their owner", "left is good", caption + _left_out(shares), svg)


def _losses(about: About, traced: Sequence[tuple[int, str, Traced]]) -> Figure | None:
    drawn = [(t, seen) for t, _, seen in traced if seen.loss_matrix]
    if not drawn:
        return None
    round_, seen = drawn[-1]
    shares = _shares(traced)
    shown = [k for k in shares if k in seen.clients][:SHOWN_UP_TO]
    at = [seen.clients.index(k) for k in shown]
    matrix = seen.loss_matrix or []
    svg = plots.heat(
        [about.called(k) for k in shown],
        [[matrix[i][j] for j in at] for i in at],
        label=f"Mean loss of each client's model on each client's records in round {round_}",
        row="records of",
        column="model of",
    )
    caption = f"Mean loss in round {round_}; FI(Loss) is {number(seen.loss_fi)}, and 1 is even. Frame: a client's own "
    caption += "model; diamond: the model with the least loss on its records."
    left_out = _left_out(seen.clients)
    return Figure("Loss on each other's records", "a dark diagonal is bad", caption + left_out, svg)


def _left_out(clients: Sized) -> str:
    more = len(clients) - SHOWN_UP_TO
    return f" {more} less exposed clients are not drawn; rounds.jsonl has them." if more > 0 else ""


def _followed(about: About, trained: Sequence[Line], ids: Sequence[int], what: Followed, told: bool) -> Figure | None:
    """Draw what each client was told, or has reported, over the rounds; the line breaks where there is no figure."""
    here = [line for line in trained if what.key in (line.news if told else line.figures)]
    if not here:
        return None
    values = {k: [line.told(what.key, k) if told else line.of(what.key, k) for line in trained] for k in ids}
    holes: dict[int, Holes] = {
        k: {
            float(line.round): None
            for line, value in zip(trained, values[k], strict=True)
            if value is None and line in here and k in (line.asked if told else line.clients)
        }
        for k in ids
    }
    with_error = what.error and any(what.error in line.figures for line in here)
    errors = {k: column(trained, what.error, k) for k in ids} if with_error else {}
    svg = plots.lines(
        rounds_of(trained),
        styled(about, ids, values, holes, errors),
        label=f"{what.title}, of each client",
        y_label=what.key,
        hover=not about.control_of,
    )
    caption = what.caption + (" Bar: one standard error of the estimate on both sides." if errors else "")
    return Figure(what.title, what.way, caption, svg)


def statement(about: About) -> list[tuple[str, str]]:
    """Say what noise promises in a run, on what that rests and where it ends; empty where there was none."""
    return [*_at_clients(about), *_at_server(about)]


def _at_clients(about: About) -> list[tuple[str, str]]:
    spent = about.private
    if spent is None:
        return []
    bound = _NOTHING
    if spent.epsilon is not None:
        known = [e for e in spent.epsilons if e is not None]
        worst = f" at {about.name(spent.epsilons.index(spent.epsilon))}" if spent.epsilon in known else ""
        least = f"; {number(min(known), 2)} at the client that spent least" if len(known) > 1 else ""
        bound = f"{number(spent.epsilon, 2)}{worst}, the client that spent most{least}"
    drawn = f"{spent.sampling} sampling" if spent.rate < 1 else spent.sampling
    sampling = f"{drawn}; at that client {spent.steps} steps over all rounds, at rate {spent.rate:.4g}"
    mechanism = f"gradients of rows clipped to {short(spent.clip)}, noise {short(spent.noise)} times the clip"
    return _promised(spent, bound, sampling, mechanism, NOT_COVERED)


def _at_server(about: About) -> list[tuple[str, str]]:
    spent = about.central
    if spent is None:
        return []
    bound = _NOTHING if spent.epsilon is None else f"{number(spent.epsilon, 2)}, the same for every client"
    mechanism = (
        f"updates clipped to {short(spent.clip)}, noise multiplier {short(spent.noise)} on their weighted sum and "
        "on the sum of weights"
    )
    return _promised(spent, bound, f"{spent.sampling}; {spent.steps} rounds", mechanism, NOT_COVERED_CENTRALLY)


_NOTHING = "infinite: too little noise, and nothing is promised"


def _promised(spent: Private, bound: str, sampling: str, mechanism: str, ends: str) -> list[tuple[str, str]]:
    return [
        ("Epsilon", bound),
        ("Delta", short(spent.delta)),
        ("Adjacency", spent.adjacency),
        ("Sampling", sampling),
        ("Mechanism", mechanism),
        ("Accountant", spent.accountant),
        ("What it covers, and what not", ends),
    ]
