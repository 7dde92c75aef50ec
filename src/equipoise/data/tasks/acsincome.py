"""ACSIncome (folktables): who earned more than 50,000 dollars, American Community Survey 2018, one state or several."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...checks import BadInput
from ..delimited import choose, numbers, table
from ..task import Column, File, Get, Grouping, Raw, Task, numeric

STATES = {
    "al": "01", "ak": "02", "az": "04", "ar": "05", "ca": "06", "co": "08", "ct": "09", "de": "10", "dc": "11",
    "fl": "12", "ga": "13", "hi": "15", "id": "16", "il": "17", "in": "18", "ia": "19", "ks": "20", "ky": "21",
    "la": "22", "me": "23", "md": "24", "ma": "25", "mi": "26", "mn": "27", "ms": "28", "mo": "29", "mt": "30",
    "ne": "31", "nv": "32", "nh": "33", "nj": "34", "nm": "35", "ny": "36", "nc": "37", "nd": "38", "oh": "39",
    "ok": "40", "or": "41", "pa": "42", "ri": "44", "sc": "45", "sd": "46", "tn": "47", "tx": "48", "ut": "49",
    "vt": "50", "va": "51", "wa": "53", "wv": "54", "wi": "55", "wy": "56", "pr": "72",
}  # fmt: skip
FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
OCCUPATIONS = {
    "MGR": (10, "management"), "BUS": (500, "business"), "FIN": (800, "finance"), "CMM": (1005, "computing, maths"),
    "ENG": (1305, "architecture, engineering"), "SCI": (1600, "science"), "CMS": (2001, "community and social service"),
    "LGL": (2100, "legal"), "EDU": (2205, "education"), "ENT": (2600, "arts, sports, media"), "MED": (3000, "medicine"),
    "HLS": (3601, "health support"), "PRT": (3700, "protection"), "EAT": (4000, "food"), "CLN": (4200, "cleaning"),
    "PRS": (4330, "personal care"), "SAL": (4700, "sales"), "OFF": (5000, "office"), "FFF": (6005, "farm, fish"),
    "CON": (6200, "construction"), "EXT": (6800, "extraction"), "RPR": (7000, "repair"), "PRD": (7700, "production"),
    "TRN": (9005, "transport"), "MIL": (9800, "military"), "UNE": (9920, "unemployed"),
}  # fmt: skip
BIRTHPLACES = {
    "US": (1, "a state of the United States"), "island": (60, "a United States island area"), "Europe": (100, ""),
    "Asia": (200, ""), "North America": (300, "Bermuda, Canada"),
    "Latin America": (303, "Mexico to South America, Caribbean"),
    "Africa": (400, ""), "Oceania": (500, "also at sea"),
}  # fmt: skip


def _band(column: str, cells: Sequence[str], bands: Mapping[str, tuple[int, str]], top: int) -> list[str]:
    """Put each code into the band whose first code is the nearest one at or below it."""
    names, starts = list(bands), [start for start, _ in bands.values()]
    of: dict[str, str] = {}
    for cell in set(cells):
        code = int(float(cell)) if cell else -1
        if not starts[0] <= code <= top:
            raise BadInput(
                f"acsincome: column {column} holds {cell!r}, which is no code of the survey; correct the file"
            )
        of[cell] = names[bisect_right(starts, code) - 1]
    return [of[cell] for cell in cells]


def _read(get: Get, options: Mapping[str, Any]) -> Raw:
    chosen = options["state"]
    columns: dict[str, list[str]] = {name: [] for name in (*FEATURES, "PINCP", "state")}
    log = []
    for state in chosen if isinstance(chosen, list | tuple) else [chosen]:
        part, said = _state(get, state)
        log.append(said)
        for name in (*FEATURES, "PINCP"):
            columns[name] += part[name]
        columns["state"] += [state] * len(part["PINCP"])
    columns["OCCP"] = _band("OCCP", columns["OCCP"], OCCUPATIONS, 9920)
    columns["POBP"] = _band("POBP", columns["POBP"], BIRTHPLACES, 599)
    return Raw(columns, log)


def _state(get: Get, state: str) -> tuple[dict[str, list[str]], str]:
    """Read one state: folktables' features and labels as two CSVs, or the Census Bureau's raw person file."""
    name, data = get(f"acsincome_{state}_allfeatures.csv", f"psam_p{STATES[state]}.csv")
    if not name.startswith("psam"):
        label, more = get(f"acsincome_{state}_label.csv")
        features = table(name, data, wanted=FEATURES, only=True)
        target = table(label, more, wanted=("PINCP",), only=True)
        n, m = len(features["AGEP"]), len(target["PINCP"])
        if n != m:
            raise BadInput(f"{name} has {n} rows and {label} has {m}; take both from one source")
        return features | target, f"{state}: {n:,} rows read, none dropped (adult_filter was applied at the source)"
    raw = table(name, data, wanted=(*FEATURES, "PINCP", "PWGTP"), only=True)
    low = {
        "AGEP": 16,
        "PINCP": 100,
        "WKHP": 0,
        "PWGTP": 0,
    }  # folktables' adult_filter; PWGTP >= 1 is a whole number > 0
    keep = np.all([numbers(n, raw[n], missing=True) > bound for n, bound in low.items()], axis=0)
    kept = choose(raw, keep.tolist())
    kept |= {n: [str(int(float(c))) if c else c for c in kept[n]] for n in FEATURES}  # "00" and "008" are 0 and 8
    kept["PINCP"] = [str(int(float(c) > 50_000)) for c in kept["PINCP"]]
    why = "adult_filter (AGEP > 16, PINCP > 100, WKHP > 0, PWGTP >= 1)"
    return kept, f"{state}: {len(keep):,} rows read, {int((~keep).sum()):,} dropped by {why}"


_MIRROR = "https://raw.githubusercontent.com/YacineSteeve/insa-5a-apprentissage-supervise/dc2ffe5fc3c8bbc1cf4e60487f6581ae834854e4/TP1/data"
_HASHES = {
    "acsincome_co_allfeatures.csv": "45c99bb01e054180eff3f925d4e20f11ea8d6fc2dbfd95b997dc219fe549a0fa",
    "acsincome_co_label.csv": "d9d81de7e7d73b7e840bb583401986b7f4a28c8e92e483574b09b9a09c421178",
    "acsincome_ne_allfeatures.csv": "04f5edcb5e3cc2241895e61ed96e380b9cdf6b3d5a782347b2e374c8da80fa66",
    "acsincome_ne_label.csv": "dbd58ed03b2a326b0606d18f6b03713b177a4089a582def22a90d994b0eb041c",
}


def _codes(name: str, *meanings: str, start: int = 1) -> Column:
    return Column(name, {str(i): m for i, m in enumerate(meanings, start)})


ACSINCOME = Task(
    name="acsincome",
    title="ACSIncome (American Community Survey 2018, folktables)",
    columns=(
        *numeric("AGEP"),
        _codes(
            "COW", "private, for profit", "private, not for profit", "local government", "state government",
            "federal government", "self-employed", "self-employed, incorporated", "family, unpaid", "unemployed",
        ),
        *numeric("SCHL"),
        _codes("MAR", "married", "widowed", "divorced", "separated", "never married"),
        Column("OCCP", {code: meaning for code, (_, meaning) in OCCUPATIONS.items()}),
        Column("POBP", {code: meaning for code, (_, meaning) in BIRTHPLACES.items()}),
        _codes("RELP", *[""] * 18, start=0),
        *numeric("WKHP"),
        _codes("SEX", "male", "female"),
        _codes(
            "RAC1P", "white", "black", "American Indian", "Alaska Native",
            "American Indian or Alaska Native, tribe not named", "Asian", "Pacific Islander", "other", "two or more",
        ),
    ),
    target="PINCP",
    labels={"0": 0, "1": 1},
    meaning="personal income above 50,000 dollars a year",
    favourable="predicted to earn above 50,000 dollars a year",
    favourable_is="positive",
    groupings={
        "sex": Grouping("SEX", {"female": ("2",), "male": ("1",)}, "male"),
        "white": Grouping("RAC1P", {"not white": tuple("23456789"), "white": ("1",)}, "white"),
        "race": Grouping("RAC1P", {
            "black": ("2",), "American Indian or Alaska Native": ("3", "4", "5"), "Asian": ("6",),
            "Pacific Islander": ("7",), "other": ("8",), "two or more": ("9",), "white": ("1",),
        }, "white"),
        "age": Grouping("AGEP", {"25 or younger": (), "over 25 to 60": (), "over 60": ()}, "over 25 to 60", (25, 60)),
    },
    rows=31306,
    dropped="folktables' adult_filter: AGEP > 16, PINCP > 100, WKHP > 0, PWGTP >= 1 are kept; "
    "Colorado has 31,306 such rows",
    faults=(
        "OCCP has some 530 codes and POBP some 220: here OCCP is one of the Census Bureau's 26 occupation groups and "
        "POBP one of 8 regions, so that no width depends on the state",
        "SCHL (1 to 24) is used as a number, since it is ordered",
        "the mirror of the Nebraska files calls them Nevada in places; birthplaces say Nebraska",
        "person files of 2019 and later call RELP RELSHIPP, with other codes: take 2018",
    ),
    licence="public domain (US Census Bureau PUMS)",
    source="https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/",
    citation="Ding, Hardt, Miller and Schmidt (2021), Retiring Adult, NeurIPS",
    files=(
        *(File(name, digest, f"{_MIRROR}/{name}") for name, digest in _HASHES.items()),
        *(
            File(
                f"psam_p{code}.csv",
                url=f"https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/csv_p{state}.zip",
                archives=(f"csv_p{state}.zip",),
            )
            for state, code in STATES.items()
        ),
    ),
    read=_read,
    options={"state": ("co", *(s for s in STATES if s != "co"))},
    several=("state",),
)  # fmt: skip
