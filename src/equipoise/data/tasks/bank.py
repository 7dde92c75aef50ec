"""Bank Marketing: who took a term deposit after a call of a Portuguese bank, 2008-2010."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..delimited import table
from ..task import Column, File, Get, Grouping, Raw, Task, levels, numeric


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read bank-full.csv: ";" between cells, words in quotes; a copy with commas is read too."""
    name, data = get("bank-full.csv")
    separator = ";" if b";" in data.partition(b"\n")[0] else ","
    columns = table(name, data, separator, wanted=(*(c.name for c in BANK.columns), "y"))
    return Raw(columns, [f"{len(columns['y']):,} rows read, none dropped; 'unknown' is a level of its own"])


BANK = Task(
    name="bank",
    title="Bank Marketing (bank-full)",
    columns=(
        *numeric("age"),
        levels(
            "job", "admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired", "self-employed",
            "services", "student", "technician", "unemployed", "unknown",
        ),
        levels("marital", "divorced", "married", "single"),
        levels("education", "primary", "secondary", "tertiary", "unknown"),
        levels("default", "no", "yes"),
        *numeric("balance"),
        levels("housing", "no", "yes"),
        levels("loan", "no", "yes"),
        levels("contact", "cellular", "telephone", "unknown"),
        *numeric("day"),
        levels("month", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        Column("duration", used=False, why="known only after the call, when the outcome is known too"),
        *numeric("campaign", "pdays", "previous"),
        levels("poutcome", "failure", "other", "success", "unknown"),
    ),
    target="y",
    labels={"no": 0, "yes": 1},
    meaning="the client takes the term deposit",
    favourable="predicted to take the deposit, and so called",
    favourable_is="positive",
    groupings={
        "marital": Grouping("marital", {"not married": ("single", "divorced"), "married": ("married",)}, "married"),
        "marital_status": Grouping("marital", {
            "single": ("single",), "divorced": ("divorced",), "married": ("married",),
        }, "married"),
        "age": Grouping("age", {"25 or younger": (), "over 25 to 60": (), "over 60": ()}, "over 25 to 60", (25, 60)),
    },
    rows=45211,
    dropped="none",
    faults=(
        "duration is known only after the call, so a model that uses it cannot be used; it is left out unless added",
        "pdays is -1 for clients who were never called before: a number that is none",
        "the old and the young take the deposit more often than the middle group that the literature calls privileged",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/222/bank+marketing",
    citation="Moro, Cortez and Rita (2014), Decision Support Systems 62, 22-31",
    files=(
        File(
            "bank-full.csv",
            url="https://archive.ics.uci.edu/ml/machine-learning-databases/00222/bank.zip",
            also=("d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",),
            archives=("bank.zip", "bank+marketing.zip"),
        ),
    ),
    read=_read,
)  # fmt: skip
