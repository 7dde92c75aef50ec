"""Statlog German Credit: 1,000 loans of a German bank around 1974, coded A11 ... A202."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checks import BadInput
from ..delimited import named, text
from ..task import Column, File, Get, Grouping, Raw, Task, numeric

NAMES = (
    "checking", "duration", "history", "purpose", "amount", "savings", "employment", "instalment_rate",
    "personal_status", "debtors", "residence", "property", "age", "other_plans", "housing", "credits", "job",
    "liable", "telephone", "foreign", "class",
)  # fmt: skip


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read german.data: 21 columns, one space between them, no header, class 1 good and 2 bad."""
    name, data = get("german.data")
    lines = [line.split() for line in text(name, data).splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if len(line) != len(NAMES):
            raise BadInput(
                f"{name}: line {i + 1} has {len(line)} cells instead of {len(NAMES)}; it is cut off: download it again"
            )
    return Raw(named(name, NAMES, lines), [f"{len(lines):,} rows read, none dropped"])


GERMAN = Task(
    name="german",
    title="Statlog German Credit",
    columns=(
        Column("checking", {"A11": "below 0 DM", "A12": "0 to 200 DM", "A13": "200 DM or more", "A14": "no account"}),
        *numeric("duration"),
        Column("history", {
            "A30": "no credits or all paid back", "A31": "all credits here paid back",
            "A32": "existing credits paid back so far", "A33": "delay in the past",
            "A34": "critical or credits elsewhere",
        }),
        Column("purpose", {
            "A40": "new car", "A41": "used car", "A42": "furniture", "A43": "radio or television", "A44": "appliances",
            "A45": "repairs", "A46": "education", "A47": "holiday", "A48": "retraining", "A49": "business",
            "A410": "other",
        }),
        *numeric("amount"),
        Column("savings", {
            "A61": "below 100 DM", "A62": "100 to 500 DM", "A63": "500 to 1,000 DM", "A64": "1,000 DM or more",
            "A65": "unknown or none",
        }),
        Column("employment", {
            "A71": "unemployed", "A72": "below 1 year", "A73": "1 to 4 years", "A74": "4 to 7 years",
            "A75": "7 years or more",
        }),
        *numeric("instalment_rate"),
        Column("personal_status", {
            "A91": "male, divorced or separated", "A92": "female, divorced, separated or married",
            "A93": "male, single", "A94": "male, married or widowed", "A95": "female, single",
        }),
        Column("debtors", {"A101": "none", "A102": "co-applicant", "A103": "guarantor"}),
        *numeric("residence"),
        Column("property", {
            "A121": "real estate", "A122": "savings agreement or life insurance", "A123": "car or other",
            "A124": "unknown or none",
        }),
        *numeric("age"),
        Column("other_plans", {"A141": "bank", "A142": "stores", "A143": "none"}),
        Column("housing", {"A151": "rent", "A152": "own", "A153": "for free"}),
        *numeric("credits"),
        Column("job", {
            "A171": "unemployed or unskilled, non-resident", "A172": "unskilled, resident",
            "A173": "skilled or official", "A174": "management or highly qualified",
        }),
        *numeric("liable"),
        Column("telephone", {"A191": "none", "A192": "yes"}),
        Column("foreign", {"A201": "yes", "A202": "no"}),
    ),
    target="class",
    labels={"1": 1, "2": 0},
    meaning="a good credit risk: class 1 = good, class 2 = bad",
    favourable="credit granted: rated a good risk",
    favourable_is="positive",
    groupings={
        "personal_status": Grouping(
            "personal_status",
            {"single or divorced men": ("A91", "A93"), "all others": ("A92", "A94", "A95")},
            "all others",
            note="grouping of the Fairis paper: codes A91 and A93 of attribute 9, which the published code table calls "
            "divorced or single men, unprivileged; all others privileged",
        ),
        "sex": Grouping(
            "personal_status",
            {"female": ("A92", "A95"), "male": ("A91", "A93", "A94")},
            "male",
            note="sex is read off the personal-status codes (A92 and A95 female); by Groemping (2019) that code table "
            "is wrong, so sex is unreliable here",
        ),
        "age": Grouping("age", {"25 or younger": (), "over 25": ()}, "over 25", (25,)),
        "foreign": Grouping("foreign", {"foreign worker": ("A201",), "not foreign": ("A202",)}, "not foreign"),
    },
    rows=1000,
    dropped="none",
    faults=(
        "1 = good = favourable, 2 = bad: the larger label of the file is not the positive class",
        "sex is derived from personal-status codes; a published correction (Groemping 2019) says that the code table "
        "shipped with the Statlog file is wrong, so sex is unreliable there",
        "the code table lists A95 (female, single) and A47 (holiday); neither occurs in the published file",
        "by the same correction other codes are wrong as well, foreign worker (A201 in 963 of 1,000 rows) among them",
        "it holds granted credits only: no rejected applicant is in it",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data",
    citation="Hofmann (1994), Statlog (German Credit Data), UCI; corrections: Groemping (2019), South German Credit "
    "Data: Correcting a Widely Used Data Set",
    files=(
        File(
            "german.data",
            "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/german/german.data",
            archives=("statlog+german+credit+data.zip",),
        ),
    ),
    read=_read,
)  # fmt: skip
