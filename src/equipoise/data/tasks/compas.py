"""COMPAS: who was arrested again within two years, Broward County 2013-2014, as ProPublica filtered it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..delimited import choose, numbers, table
from ..task import Column, File, Get, Grouping, Raw, Task, levels, numeric

NAMES = (
    "sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "c_charge_degree",
    "days_b_screening_arrest", "is_recid", "score_text", "decile_score", "two_year_recid",
)  # fmt: skip


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read the original (53 columns) or any part of it that has what is needed; nothing else is kept in memory.

    ProPublica's filter: a charge within 30 days of the screening, a known outcome, no ordinary traffic offence, a
    score. Where a column is repeated in the header (decile_score, priors_count), its cells must be the same.
    """
    name, data = get("compas-scores-two-years.csv")
    columns = table(name, data, wanted=NAMES, only=True)
    rows = len(columns["sex"])
    days = numbers("days_b_screening_arrest", columns["days_b_screening_arrest"], missing=True)
    rules = {
        "charge more than 30 days from the screening, or unknown": (np.abs(days) <= 30).tolist(),
        "outcome unknown (is_recid = -1)": [c != "-1" for c in columns["is_recid"]],
        "ordinary traffic offence": [c != "O" for c in columns["c_charge_degree"]],
        "no score": [c not in ("N/A", "") for c in columns["score_text"]],
    }
    keep = [all(r) for r in zip(*rules.values(), strict=True)]
    reasons = ", ".join(f"{why} {kept.count(False):,}" for why, kept in rules.items() if not all(kept))
    dropped = f"{rows - sum(keep):,} dropped by ProPublica's filter"
    return Raw(choose(columns, keep), [f"{rows:,} rows read, {dropped} ({reasons or 'none'}; some for two reasons)"])


COMPAS = Task(
    name="compas",
    title="COMPAS two-year recidivism",
    columns=(
        levels("sex", "Female", "Male"),
        *numeric("age"),
        levels("race", "African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other"),
        *numeric("juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
        Column("c_charge_degree", {"F": "felony", "M": "misdemeanour"}),
        Column("decile_score", used=False, why="COMPAS's own score: a verdict, not an attribute"),
    ),
    target="two_year_recid",
    labels={"0": 0, "1": 1},
    meaning="arrested again within two years",
    favourable="rated as not arrested again within two years",
    favourable_is="negative",
    groupings={
        "african_american": Grouping("race", {
            "African-American": ("African-American",),
            "not African-American": ("Caucasian", "Asian", "Hispanic", "Native American", "Other"),
        }, "not African-American"),
        "race": Grouping("race", {
            "African-American": ("African-American",), "Asian": ("Asian",), "Hispanic": ("Hispanic",),
            "Native American": ("Native American",), "Other": ("Other",), "Caucasian": ("Caucasian",),
        }, "Caucasian"),
        "sex": Grouping("sex", {"female": ("Female",), "male": ("Male",)}, "female"),
        "age": Grouping("age", {"25 or younger": (), "over 25 to 45": (), "over 45": ()}, "over 25 to 45", (25, 45)),
    },
    rows=7214,
    dropped="by ProPublica's filter: |days_b_screening_arrest| > 30 or unknown, is_recid = -1, c_charge_degree = O, "
    "no score; 6,172 of 7,214 rows are left",
    faults=(
        "positive is not favourable: y = 1 is an arrest",
        "arrest is not crime: the label carries the policing of the place and time",
        "the original repeats the columns decile_score and priors_count, with equal cells",
        "the original names the people in it; names, birth dates, case numbers and dates are never read",
        "two_year_recid follows some people for less than two years after release (a known cut-off fault of the file)",
    ),
    licence="none stated; public court records, cite ProPublica",
    source="https://github.com/propublica/compas-analysis",
    citation="Angwin, Larson, Mattu and Kirchner (2016), Machine Bias, ProPublica",
    files=(
        File(
            "compas-scores-two-years.csv",
            "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            "https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
            also=("0841b8f69389f7aa2abf477bbf3354de5ffbaaa09429e4063c2ad1b8f06f45ab",),
        ),
    ),
    read=_read,
)  # fmt: skip
