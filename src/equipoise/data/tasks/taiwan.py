"""Default of credit card clients, Taiwan 2005: the UCI .xls with two header rows, and CSV with any of its headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...checks import BadInput, extra, nearest
from ..delimited import named, rows_of
from ..task import Column, File, Get, Grouping, Raw, Task, numeric

PAY = ("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6")
AMOUNTS = tuple(f"{kind}_AMT{i}" for kind in ("BILL", "PAY") for i in range(1, 7))
NAMES = ("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", *PAY, *AMOUNTS)
TARGET = "default payment next month"


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    name, data = get(*(f.name for f in TAIWAN.files))
    rows = _sheet(name, data) if data.startswith(b"\xd0\xcf\x11\xe0") else rows_of(name, data)
    return Raw(columns_of(name, rows), [f"{len(rows) - _headers(rows):,} rows read, none dropped"])


def _sheet(name: str, data: bytes) -> list[list[str]]:
    """Cells of the first sheet of an .xls as text; whole numbers without a point."""
    xlrd = extra("xlrd", "tables")
    try:
        sheet = xlrd.open_workbook(file_contents=data).sheet_by_index(0)
    except (xlrd.XLRDError, IndexError, AssertionError, ValueError) as e:
        raise BadInput(f"{name} is no whole .xls workbook ({e}); delete it and download it again") from None
    return [[_cell(c) for c in sheet.row_values(i)] for i in range(sheet.nrows)]


def _cell(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _headers(rows: Sequence[Sequence[str]]) -> int:
    """Count header rows: two where the row X1 ... X23, Y stands above the names."""
    two = len(rows) > 1 and "X1" in rows[0] and any(c.upper() == "LIMIT_BAL" for c in rows[1])
    return 2 if two else 1


def columns_of(name: str, rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return columns by their names in the original's second header row, whichever header the file has.

    Understood are X1 ... X23 and Y (UCI's package), both header rows (the .xls), dots for spaces (Kaggle), a target
    called "Default", PAY_1 for PAY_0, and SEX written as words.
    """
    at = _headers(rows)
    known = {n.lower(): n for n in NAMES} | {f"x{i + 1}": n for i, n in enumerate(NAMES)} | {"id": "ID"}
    known |= {"pay_1": "PAY_0", TARGET: TARGET, "default": TARGET, "y": TARGET}
    header = [
        known.get(c.strip().lower().replace(".", " "), c or f"column {i + 1}") for i, c in enumerate(rows[at - 1])
    ]
    for wanted in (*NAMES, TARGET):
        if wanted not in header:
            raise BadInput(f"{name} has no column {wanted!r}; {nearest(wanted, header)}")
    columns = named(name, header, rows[at:])
    words = {"male": "1", "female": "2"}
    columns["SEX"] = [words.get(c.lower(), c) for c in columns["SEX"]]
    return columns


TAIWAN = Task(
    name="taiwan",
    title="Default of credit card clients, Taiwan 2005",
    columns=(
        *numeric("LIMIT_BAL"),
        Column("SEX", {"1": "male", "2": "female"}),
        Column("EDUCATION", {
            "1": "graduate school", "2": "university", "3": "high school", "4": "other",
            "0": "undocumented code 0", "5": "undocumented code 5", "6": "undocumented code 6",
        }),
        Column("MARRIAGE", {"1": "married", "2": "single", "3": "other", "0": "undocumented code 0"}),
        *numeric("AGE", *PAY, *AMOUNTS),
    ),
    target=TARGET,
    labels={"0": 0, "1": 1},
    meaning="the client defaults next month",
    favourable="rated as not defaulting: credit is kept",
    favourable_is="negative",
    groupings={
        "sex": Grouping("SEX", {"female": ("2",), "male": ("1",)}, "male"),
        "education": Grouping("EDUCATION", {
            "graduate school": ("1",), "university": ("2",), "high school": ("3",),
            "other or undocumented": ("4", "0", "5", "6"),
        }, "graduate school"),
        "marriage": Grouping("MARRIAGE", {
            "single": ("2",), "married": ("1",), "other or undocumented": ("3", "0"),
        }, "married"),
        "age": Grouping("AGE", {"25 or younger": (), "over 25 to 60": (), "over 60": ()}, "over 25 to 60", (25, 60)),
    },
    rows=30000,
    dropped="none; the column ID is not read",
    faults=(
        "positive is not favourable: y = 1 is a default",
        "EDUCATION holds the undocumented codes 0, 5 and 6 (14, 280 and 51 rows), MARRIAGE 0 (54 rows): "
        "levels of their own here",
        "PAY_0 stands before PAY_2 (there is no PAY_1); PAY_* hold -2 and 0, which the documentation does not explain",
        "35 rows repeat another one when ID is left out",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/350/default+of+credit+card+clients",
    citation="Yeh and Lien (2009), Expert Systems with Applications 36(2), 2473-2480",
    files=(
        File(
            "default of credit card clients.xls",
            url="https://archive.ics.uci.edu/ml/machine-learning-databases/00350/default%20of%20credit%20card%20clients.xls",
            archives=("default+of+credit+card+clients.zip",),
        ),
        File("default_of_credit_card_clients.xls"),
        File(
            "default_of_credit_card_clients.csv",
            also=("4edce6da569b2c30788a85fd98a9bafb1a983e8ca1a7aac875dd7ff853cbd0bb",),
        ),
        File(
            "UCI_Credit_Card.csv",
            "36b56c4d0bc2ac0ff2a1e4a1f29ba91bd4cc94cc81cce1629e5750da08f59f7c",
            "https://raw.githubusercontent.com/AlenMa/ML/5265f391b0aeec7322ae64aa734af971c48f763e/data/UCI_Credit_Card.csv",
        ),
        File("default of credit card clients.csv"),
        File("credit-card-clients.csv"),
        File("default.csv"),
    ),
    read=_read,
    folders=("default_credit",),
)  # fmt: skip
