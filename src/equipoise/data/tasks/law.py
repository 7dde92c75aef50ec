"""Law school: who passed the bar, LSAC National Longitudinal Bar Passage Study (students who entered in 1991)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checks import BadInput
from ..delimited import named, rows_of, table, text
from ..task import Column, File, Get, Grouping, Raw, Task, levels, numeric

NAMES = (
    "decile1b",
    "decile3",
    "lsat",
    "ugpa",
    "zfygpa",
    "zgpa",
    "fulltime",
    "fam_inc",
    "male",
    "tier",
    "race",
    "pass_bar",
)


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read law_school_clean.csv (the default), or law_dataset.arff, which holds fewer of the same rows."""
    if options["form"] == "clean":
        name, data = get("law_school_clean.csv", "law_dataset.arff", "law_data.csv")
    else:
        name, data = get("law_dataset.arff")
    if name == "law_data.csv":
        raise BadInput(
            "law_data.csv holds the first-year grade task (ZFYA, first_pf), which has no pass_bar; "
            "put law_school_clean.csv or law_dataset.arff into the folder"
        )
    if name == "law_dataset.arff" and options["form"] == "clean":
        raise BadInput('law_school_clean.csv is not here, but law_dataset.arff is; pass form="arff" to use it')
    columns = _arff(name, data) if name.endswith(".arff") else table(name, data, wanted=NAMES)
    return Raw(columns, [f"{len(columns['pass_bar']):,} rows read, none dropped"])


def _arff(name: str, data: bytes) -> dict[str, list[str]]:
    """Read the @data part as CSV: the header declares tier {0, 1} though tier runs 1..6, so its types are not used."""
    head, mark, body = text(name, data).partition("@data")
    names = [line.split()[1] for line in head.splitlines() if line.lower().startswith("@attribute")]
    if not mark or set(names) != {*NAMES[:10], "racetxt", "pass_bar"}:
        raise BadInput(
            f"{name} is not the law school file (attributes: {', '.join(names) or 'none'}); download it again"
        )
    columns = named(name, names, rows_of(name, body.encode(), width=len(names)))
    columns = {n: [c.removesuffix(".00") for c in cells] for n, cells in columns.items()}
    columns["race"] = [{"1": "White", "0": "Non-White"}.get(c, c) for c in columns.pop("racetxt")]
    return columns


LAW = Task(
    name="law",
    title="Law school, bar passage",
    columns=(
        *numeric("decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa"),
        Column("fulltime", {"1": "full time", "2": "part time"}),
        *numeric("fam_inc"),
        Column("male", {"0": "female", "1": "male"}),
        levels("tier", "1", "2", "3", "4", "5", "6"),
        levels("race", "Non-White", "White"),
    ),
    target="pass_bar",
    labels={"0": 0, "1": 1},
    meaning="passes the bar examination",
    favourable="predicted to pass the bar, and so admitted",
    favourable_is="positive",
    groupings={
        "race": Grouping("race", {"Non-White": ("Non-White",), "White": ("White",)}, "White"),
        "sex": Grouping("male", {"female": ("0",), "male": ("1",)}, "male"),
    },
    rows=20798,
    dropped="none",
    faults=(
        "three forms are about: law_school_clean.csv (20,798 rows), law_dataset.arff (18,692 of them), and "
        "law_data.csv (21,791 rows of another task, first-year grades), which is refused",
        "the ARFF header declares tier {0, 1} though tier runs 1 to 6, so standard readers reject the file",
        "grades in law school (zgpa, decile3) come after admission",
    ),
    licence="none stated for the data",
    source="https://github.com/tailequy/fairness_dataset",
    citation="Wightman (1998), LSAC National Longitudinal Bar Passage Study; form of Le Quy et al. (2022)",
    files=(
        File(
            "law_school_clean.csv",
            "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
            "https://raw.githubusercontent.com/tailequy/fairness_dataset/abb5a18b822ba56a221c5311082e192e85000b95/"
            "experiments/data/law_school_clean.csv",
        ),
        File(
            "law_dataset.arff",
            "930c60e0479b742f64cbb64453da0048f7c3a390add3dd79cfacd94889d296bf",
            "https://raw.githubusercontent.com/tailequy/fairness_dataset/abb5a18b822ba56a221c5311082e192e85000b95/"
            "Law_school/law_dataset.arff",
        ),
        File("law_data.csv", "095fbb4641b0f767feb664388b877a4544ad5a731630623b375e74b5fdbfa715"),
    ),
    read=_read,
    options={"form": ("clean", "arff")},
)  # fmt: skip
