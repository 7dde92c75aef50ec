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

SCORES = (
    Column(
        "attacker_score_mean",
        "Attacker's score",
        "0 to 1, high is bad",
        "What the rule judged the attackers by, as they reported it, averaged over rounds.",
    ),
    Column(
        "honest_score_mean",
        "Honest clients' score",
        "0 to 1, high is bad",
        "What the rule judged the honest clients by, averaged over clients and rounds.",
    ),
)
"""Shown where a client lies about the figures that its score is made of."""

PRIVACY = (
    Column(
        "sia",
        "Source found",
        "low is good",
        "Source inference: share of target records whose owner the server guesses, as the client whose model has the "
        "least loss on the record; mean over rounds. Ties share. Chance is 1/K.",
    ),
    Column("sia_worst", "Source found, worst client", "low is good", "The same for the most exposed client."),
    Column(
        "sia_cov",
        "CoV",
        "low = even",
        "Coefficient of variation of the clients' shares (population standard deviation over mean), mean over rounds. "
        "Raising low risks lowers it too: read it beside the level.",
    ),
    Column(
        "sia_fi",
        "FI",
        "high = even",
        "Jain's fairness index of the clients' shares, (sum a)^2 / (K sum a^2), mean over rounds. It is not the index "
        "of the mean CoV.",
    ),
    Column("sia_eod", "EOD of risk", "low = even", "Largest minus smallest client's share, mean over rounds."),
    Column(
        "loss_fi",
        "FI(Loss)",
        "high = even",
        "1 / (1 + c^2), with c the mean over clients i of the CoV over models j of the loss of model j on i's records; "
        "mean over rounds.",
    ),
    Column(
        "mia_loss_auc",
        "Membership, loss",
        "0.5 is chance",
        "AUC of telling a client's training rows from its held-out rows by its last model's loss; mean over clients.",
    ),
    Column(
        "mia_lira_offline_auc",
        "Membership, LiRA offline",
        "0.5 is chance",
        "AUC of the likelihood ratio attack with shadow models that never saw the record; mean over clients.",
    ),
    Column(
        "mia_lira_online_auc",
        "Membership, LiRA online",
        "0.5 is chance",
        "AUC of the likelihood ratio attack with shadow models trained with and without the record; mean over clients.",
    ),
    Column(
        "mia_cosine_auc",
        "Membership, gradients",
        "0.5 is chance",
        "AUC of a random forest on the angles between a record's gradient and the client's update; mean over victims.",
    ),
    Column(
        "accuracy_last3",
        "Accuracy, last 3",
        "high is good",
        "Accuracy on the test pool, mean over the last three rounds that measured it, as FinP reports it.",
    ),
    Column(
        "epsilon",
        "Epsilon",
        "low is good",
        "What DP-SGD has spent over all rounds at the client that spent most, for adding or removing one record.",
    ),
    Column(
        "central_epsilon",
        "Central epsilon",
        "low is good",
        "What noise at the server has spent over all rounds on every client as a whole, against whoever sees models.",
    ),
)
"""What attacks on the clients' privacy found; shown where they were run."""

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

ATTACKS |= {
    "claim_median": "reports the median of the others' curvature as its own",
    "claim_huge": "multiplies the curvature that it reports",
    "claim_flat": "reports no curvature at all",
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
        if row.label:
            others = [given[r.run] for r in rows if r.label == row.label]
            told = ", ".join(f"{k} {short(v)}" for k, v in mine.items() if any(o.get(k) != v for o in others))
            out[row.run] = f"{row.label} ({told})" if told else row.label
            continue
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
    """Return what a run's rule goes by, its parameters, and what it makes of an undefined score."""
    told = [f"score: {listed(about.scores)}"] if about.scores else []
    told += [f"{k} = {short(v)}" for k, v in row.parameters.items() if v is not None]
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
