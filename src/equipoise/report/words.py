"""What the page says in words: labels, definitions of the figures, formulas of rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..checks import BadInput
from .folder import About, Folder, Row


class Column(NamedTuple):
    """A figure of the table: key in summary.json, heading, which way is bad, definition."""

    key: str
    head: str
    way: str
    meaning: str


WEIGHT_MEAN = Column(
    "attacker_weight_mean",
    "Attacker's weight, mean",
    "low is good",
    "Share of the aggregate that came from the attackers (their sum), averaged over the rounds that had weights.",
)
WEIGHT_LAST = Column(
    "attacker_weight_last",
    "Attacker's weight, last",
    "low is good",
    "The same share in the last round that had weights.",
)
ATTACKER_EOD = Column(
    "attacker_eod",
    "Attacker's EOD",
    "high = biased",
    "EOD of the attackers' own final models on the test pool: how much bias they reached for themselves.",
)
HONEST_EOD = Column(
    "honest_eod",
    "Honest EOD",
    "low is good",
    "Mean of the honest clients' EODs on the test pool; in brackets how many are in it. Left out are clients whose EOD "
    "is undefined or whose model predicts one class only.",
)
POOLED_EOD = Column(
    "pooled_eod",
    "Pooled EOD",
    "low is good",
    "One EOD from the counts of all clients' models added up, attackers included. It is not the mean of their EODs.",
)
SPD = Column(
    "spd",
    "SPD",
    "low is good",
    "Statistical parity difference: largest minus smallest selection rate over the groups; mean over honest clients "
    "whose model does not predict one class only.",
)
ACCURACY = Column(
    "accuracy",
    "Accuracy",
    "high is good",
    "Share of right decisions on the test pool; mean over honest clients.",
)
GAP = Column(
    "accuracy_gap",
    "Accuracy gap",
    "small = hard to see",
    "Distance between the attackers' accuracy and that of the same clients in the adversary-free control. A small gap "
    "means that accuracy alone does not betray the attack.",
)
CLIP = Column(
    "clip_rate", "Clip rate", "how often the clip bound", "Share of honest updates that norm clipping shortened."
)

ATTACKED = (WEIGHT_MEAN, WEIGHT_LAST, ATTACKER_EOD, HONEST_EOD, POOLED_EOD, SPD, ACCURACY, GAP, CLIP)
BENIGN = (HONEST_EOD, POOLED_EOD, SPD, ACCURACY, CLIP)

FORMULAS = {
    "uniform": "w_k = 1/K",
    "fedavg": "w_k = n_k / n",
    "fairis": "w_k = (eta − s_k) / Σ_j (eta − s_j)",
    "fairis-n": "w_k = n_k (eta − s_k) / Σ_j n_j (eta − s_j)",
    "ala": "w_k = (1 − s_k) / Σ_j (1 − s_j)",
    "joint": "w_k ∝ n_k^a · Π_m (eta_m − s_mk)",
    "fairfed": "w̄_k ← w̄_k − beta (Δ_k − mean Δ), Δ_k = |F_global − F_k|; w_k = w̄_k / Σ_j w̄_j",
}

ATTACKS = {
    "disparity": "trains to widen the gap between the groups while staying accurate",
    "gaming": "steers its reported fairness gap towards the figure that the server broadcasts",
    "inflate": "multiplies its update",
}

ALWAYS = ("eta", "beta")
"""Parameters that stand in the name of a rule even where all runs have the same."""
JUDGES_NOBODY = frozenset({"uniform", "fedavg"})
"""Rules that look at no score: what a record holds in its place means nothing and is not shown."""


def labels(folder: Folder) -> dict[str, str]:
    """Return run -> a name of its rule that tells it from the other rules of the folder.

    It holds the parameters that matter (eta, beta) and whatever else two rows of the same rule differ in.
    """
    rows = folder.rows
    given = {r.run: {**r.parameters, "undefined": _policy(r, folder), "clip": _clip(r, folder)} for r in rows}
    out = {}
    for row in rows:
        mine = given[row.run]
        others = [given[r.run] for r in rows if r.rule == row.rule]
        keys = [k for k, v in mine.items() if v is not None and (k in ALWAYS or any(o.get(k) != v for o in others))]
        told = ", ".join(f"{k} {short(mine[k])}" for k in keys)
        out[row.run] = f"{row.rule} ({told})" if told else row.rule
    return out


def _policy(row: Row, folder: Folder) -> str | None:
    """Say what the rule makes of an undefined score, if it looks at scores."""
    return None if row.rule in JUDGES_NOBODY else folder.abouts[row.run].undefined_policy


def _clip(row: Row, folder: Folder) -> str:
    """Say how updates are clipped: not, at a given length, or at one calibrated for each federation."""
    if row.clip_norm is None:
        return "none"
    asked = folder.setting("clip", "norm")
    given = asked if isinstance(asked, list) else [asked]
    return short(row.clip_norm) if row.clip_norm in given else "calibrated"


def settings(row: Row, about: About) -> str:
    """Return the parameters of a run's rule, and what it makes of an undefined score."""
    told = [f"{k} = {short(v)}" for k, v in row.parameters.items() if v is not None]
    if about.undefined_policy and row.rule not in JUDGES_NOBODY:
        told.append(f"an undefined score: {about.undefined_policy}")
    return ", ".join(told)


def short(value: Any) -> str:
    """Write a setting in a few letters.

    Examples
    --------
    >>> short(1.01), short(2.0), short([0.5, 1]), short(True)
    ('1.01', '2', '0.5, 1', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(short(v) for v in value)
    return str(value)


def listed(words: Sequence[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"


def counted(number: int, thing: str) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "client"), counted(3, "client")
    ('1 client', '3 clients')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def cannot_write(path: Path, error: OSError) -> BadInput:
    """Return the error about an output file, with what the system said."""
    return BadInput(f"cannot write {path} ({error.strerror or error}); choose another --out")
