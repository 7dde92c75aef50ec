"""Adult: who earned more than 50,000 dollars in the United States census of 1994."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..delimited import choose, named, rows_of
from ..task import Column, File, Get, Grouping, Raw, Task, levels, numeric

NAMES = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    """Read adult.data and adult.test: space after each comma, '?' for missing, a dot after the labels of the test part.

    The test part opens with the line ``|1x3 Cross validator``, and both parts end with an empty line.
    """
    columns: dict[str, list[str]] = {name: [] for name in NAMES}
    for wanted in {"train": ["adult.data"], "test": ["adult.test"], "both": ["adult.data", "adult.test"]}[
        options["part"]
    ]:
        name, data = get(wanted)
        if data.startswith(b"|"):
            data = data.partition(b"\n")[2]
        for column, cells in named(name, NAMES, rows_of(name, data, width=len(NAMES))).items():
            columns[column] += ["" if c == "?" else c for c in cells] if "?" in cells else cells
    columns["income"] = [label.removesuffix(".") for label in columns["income"]]
    empty = {name: cells.count("") for name, cells in columns.items() if "" in cells}
    rows = len(columns["age"])
    whole = [True] * rows
    for name in empty:
        whole = [w and c != "" for w, c in zip(whole, columns[name], strict=True)]
    by_column = ", ".join(f"{name} {k:,}" for name, k in empty.items())
    log = [f"{rows:,} rows read, {sum(empty.values()):,} missing cells{f' ({by_column})' if empty else ''}"]
    if options["incomplete"] == "keep":
        log.append(f"{rows - sum(whole):,} rows with '?' kept: it is a level of its own; none dropped")
        return Raw(columns, log, keep_missing=True)
    log.append(f"{rows - sum(whole):,} rows with '?' dropped, {sum(whole):,} complete rows left")
    return Raw(choose(columns, whole), log)


ADULT = Task(
    name="adult",
    title="Adult (census income, 1994)",
    columns=(
        *numeric("age"),
        levels(
            "workclass", "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov",
            "Without-pay", "Never-worked", missing="?",
        ),
        Column("fnlwgt", used=False, why="a weight of the census, not an attribute of the person"),
        levels(
            "education", "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad",
            "Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
        ),
        *numeric("education-num"),
        levels(
            "marital-status", "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed",
            "Married-spouse-absent", "Married-AF-spouse",
        ),
        levels(
            "occupation", "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
            "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
            "Priv-house-serv", "Protective-serv", "Armed-Forces", missing="?",
        ),
        levels("relationship", "Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
        levels("race", "White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
        levels("sex", "Female", "Male"),
        *numeric("capital-gain", "capital-loss", "hours-per-week"),
        levels(
            "native-country", "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany",
            "Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras",
            "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France",
            "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala",
            "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong",
            "Holand-Netherlands", missing="?",
        ),
    ),
    target="income",
    labels={"<=50K": 0, ">50K": 1},
    meaning="income above 50,000 dollars a year",
    favourable="predicted to earn above 50,000 dollars a year",
    favourable_is="positive",
    groupings={
        "sex": Grouping("sex", {"female": ("Female",), "male": ("Male",)}, "male"),
        "race": Grouping("race", {
            "Black": ("Black",), "Asian-Pac-Islander": ("Asian-Pac-Islander",),
            "Amer-Indian-Eskimo": ("Amer-Indian-Eskimo",), "Other": ("Other",), "White": ("White",),
        }, "White"),
        "white": Grouping("race", {
            "not White": ("Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"), "White": ("White",),
        }, "White"),
        "age": Grouping("age", {"25 or younger": (), "over 25 to 60": (), "over 60": ()}, "over 25 to 60", (25, 60)),
    },
    rows=32561,
    dropped="rows with '?': 2,399 of the 32,561 of adult.data, which leaves 30,162 (option incomplete: keep has them "
    "as a level); adult.test (16,281 rows, 15,060 complete) is read with the option part: both or test",
    faults=(
        "labels of adult.test end with a dot ('>50K.'), and its first line is a comment",
        "a space follows each comma, '?' marks a missing cell, and both files end with an empty line",
        "education-num says the same as education",
        "levels are spelt as in the file: Columbia is Colombia, Hong is Hong Kong, South is likely South Korea",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/2/adult",
    citation="Becker and Kohavi (1996), Adult, UCI",
    files=(
        File(
            "adult.data",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data",
            archives=("adult.zip",),
        ),
        File(
            "adult.test",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.test",
            archives=("adult.zip",),
        ),
    ),
    read=_read,
    options={"part": ("train", "both", "test"), "incomplete": ("drop", "keep")},
)  # fmt: skip
