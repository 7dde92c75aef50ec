"""Data sets of the catalogue: published figures, declared widths, groups, and the quirks of the original files."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.data import TASKS, fit_scaling, groups_of, load, scale
from equipoise.data.delimited import table as read_table
from equipoise.data.files import embedded
from equipoise.data.tasks import taiwan

GERMAN_ROW = b"A11 6 A34 A43 1000 A65 A75 4 A93 A101 4 A121 26 A143 A152 2 A173 1 A192 A201 1\n"


@cache
def whole(name, folder=None, **options):
    """A data set as it is, read once."""
    return load(name, folder, **options)


def rate(table, sensitive, name):
    groups = groups_of(table, sensitive)
    return round(100 * table.y[groups.codes == groups.names.index(name)].mean(), 2)


def sizes(table, sensitive=None):
    groups = groups_of(table, sensitive)
    return dict(zip(groups.names, np.bincount(groups.codes, minlength=len(groups.names)).tolist(), strict=True))


# ------------------------------------------------------------------------------------------- embedded, always run


def test_german_as_published():
    table = whole("german")
    assert (len(table.y), int(table.y.sum()), len(table.attributes)) == (1000, 700, 20)
    assert sizes(table) == {"single or divorced men": 598, "all others": 402}
    assert sizes(table, "sex") == {"female": 310, "male": 690}
    assert sizes(table, "age") == {"25 or younger": 190, "over 25": 810}
    assert (rate(table, "sex", "male"), rate(table, "sex", "female")) == (72.32, 64.84)
    assert table.hashes == {"german.data": TASKS["german"].files[0].sha256}


@pytest.mark.parametrize(
    ("options", "rows", "positive"),
    [
        ({}, 30162, 24.89),
        ({"incomplete": "keep"}, 32561, 24.08),
        ({"part": "both"}, 45222, 24.78),
        ({"part": "both", "incomplete": "keep"}, 48842, 23.93),
        ({"part": "test"}, 15060, 24.57),
    ],
)
def test_adult_as_published(options, rows, positive):
    table = whole("adult", **options)
    assert (len(table.y), round(100 * table.y.mean(), 2)) == (rows, positive)
    assert len(table.attributes) == 13 and "fnlwgt" not in table.attributes
    assert set(np.unique(table.y)) == {0, 1}
    assert np.isfinite(table.x).all()


def test_adult_groups_and_what_was_said():
    table = whole("adult", part="both", incomplete="keep")
    assert sizes(table) == {"female": 16192, "male": 32650}
    assert (rate(table, "sex", "male"), rate(table, "sex", "female")) == (30.38, 10.93)
    assert sizes(table, "race") == {
        "Black": 4685, "Asian-Pac-Islander": 1519, "Amer-Indian-Eskimo": 470, "Other": 406, "White": 41762,
    }  # fmt: skip
    said = " ".join(whole("adult").log)
    assert "workclass 1,836, occupation 1,843, native-country 583" in said
    assert "2,399 rows with '?' dropped" in said


def test_adult_loads_fast():
    start = time.process_time()
    load("adult")
    assert time.process_time() - start < 2  # about 0.4 s alone; the machine may be shared


def test_a_width_depends_on_nothing_but_the_declaration(tmp_path):
    (tmp_path / "german.data").write_bytes(GERMAN_ROW)
    assert load("german", tmp_path).features == whole("german").features
    assert whole("adult", part="test").features == whole("adult").features


def test_features_can_be_added_and_left_out():
    table = load("adult", add=["fnlwgt"], leave_out=["sex", "native-country"])
    assert len(table.attributes) == 12 and "fnlwgt" in table.features
    assert not any(f.startswith(("sex=", "native-country=")) for f in table.features)
    assert sizes(table) == {"female": 9782, "male": 20380}
    with pytest.raises(BadInput, match="did you mean 'credits'"):
        load("german", add=["credit"])
    with pytest.raises(BadInput, match="no features left"):
        load("german", leave_out=[c.name for c in TASKS["german"].columns])


def test_a_column_can_make_natural_clients():
    table = load("adult", client="workclass")
    assert table.client is not None and len(np.unique(table.client)) == 7
    with pytest.raises(BadInput, match="is empty in 1843 rows"):
        load("adult", client="occupation", incomplete="keep")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("germn",), "did you mean 'german'"),
        (("german", "/nowhere/at/all"), "does not exist"),
        (("taiwan",), "taiwan is not here: get default of credit card clients.xls or default_of"),
    ],
)
def test_not_there(arguments, says):
    with pytest.raises(BadInput, match=says):
        load(*arguments)


def test_options_are_checked():
    with pytest.raises(BadInput, match="no option 'parts'; did you mean 'part'"):
        load("adult", parts="both")
    with pytest.raises(BadInput, match="allowed: train, both, test"):
        load("adult", part="all")
    with pytest.raises(BadInput, match="it has none"):
        load("german", part="all")


# ------------------------------------------------------------------------------------------- groups and scaling


def test_intersections_keep_empty_cells():
    groups = groups_of(whole("german"), "foreign & sex & age")
    assert len(groups.names) == 8 and groups.codes.max() == 7
    assert np.bincount(groups.codes, minlength=8).sum() == 1000
    raw = groups_of(whole("german"), "personal_status & sex")
    assert len(raw.names) == 4 and "has no rows" in " ".join(raw.log)


def test_a_raw_column_makes_groups_by_its_declared_levels(data_folder):
    table = whole("taiwan", data_folder)
    assert sizes(table, "EDUCATION") == {"1": 10585, "2": 14030, "3": 4917, "4": 123, "0": 14, "5": 280, "6": 51}
    with pytest.raises(BadInput, match="is numeric; use a grouping that says where to cut"):
        groups_of(table, "AGE")
    with pytest.raises(BadInput, match="did you mean 'marriage'"):
        groups_of(table, "mariage")


def test_a_reference_that_is_worse_off_is_pointed_out():
    assert any("does not have the highest rate" in line for line in groups_of(whole("german")).log)
    assert not any("does not have the highest rate" in line for line in groups_of(whole("german"), "sex").log)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_declaration_is_whole(task):
    assert sorted(task.labels.values()) == list(range(2 if task.columns else len(task.classes)))
    assert bool(task.columns) == bool(task.groupings) == bool(task.favourable)
    assert task.faults and task.licence and task.citation and (task.files or task.library) and task.rows
    for name, grouping in task.groupings.items():
        column = task.column(grouping.column)
        codes = [c for group in grouping.groups.values() for c in group]
        assert grouping.reference in grouping.groups
        if grouping.cuts:
            assert not column.levels and len(grouping.cuts) == len(grouping.groups) - 1
        else:
            assert sorted(codes) == sorted(column.levels), name  # every level is in exactly one group
    assert all(c.why for c in task.columns if not c.used)


def test_scaling_sees_training_rows_only():
    table = whole("german")
    train = np.arange(0, 1000, 3)
    scaling = fit_scaling(table.x, table.numeric, train)
    changed = table.x.copy()
    changed[1::3] *= 100
    assert all((p == q).all() for p, q in zip(scaling, fit_scaling(changed, table.numeric, train), strict=True))
    z = scale(table.x, scaling)[train]
    assert np.allclose(z[:, table.numeric].mean(0), 0) and np.allclose(z[:, table.numeric].std(0), 1)
    assert (z[:, ~table.numeric] == table.x[train][:, ~table.numeric]).all()
    constant = fit_scaling(np.ones((3, 1)), np.array([True]))
    assert (scale(np.ones((3, 1)), constant) == 0).all()
    single = table.x.astype(np.float32)
    assert scale(single, fit_scaling(single, table.numeric, train)).dtype == np.float32
    assert np.allclose(scale(single, fit_scaling(single, table.numeric, train))[train], z, atol=1e-5)
    with pytest.raises(BadInput, match="at least one training row"):
        fit_scaling(table.x, table.numeric, train[:0])


# ------------------------------------------------------------------------------------------- handed cases


def test_h23(handed, tmp_path):
    case = handed["h23"]
    for name, content in case["input"].items():
        (tmp_path / name).write_text(content)
    want = case["expected"]
    for part in ("train", "test"):
        table = load("adult", tmp_path, part=part, incomplete="keep")
        assert len(table.y) == want[f"{part}_rows"]
        assert table.y.tolist() == want[f"y_{part}"]
        assert table.sensitive["sex"].tolist() == want[f"sex_{part}"]
        assert f"{want[f'missing_{part}']} missing cells" in " ".join(table.log)
        dropped = load("adult", tmp_path, part=part)
        assert len(dropped.y) == 1 and "1 rows with '?' dropped" in " ".join(dropped.log)


def test_h24(handed, tmp_path):
    case = handed["h24"]
    (tmp_path / "german").mkdir()
    (tmp_path / "german" / "german.data").write_text(case["input"]["german.data"])
    table = load("german", tmp_path)
    want = case["expected"]
    assert (len(table.y), len(table.attributes)) == (want["rows"], want["features"])
    assert table.task.favourable_is == "positive" and table.y.tolist() == want["favourable"]
    sex, age = groups_of(table, "sex"), groups_of(table, "age")
    assert [sex.names[c] for c in sex.codes] == want["sex"]
    assert [int(age.names[c] == "over 25") for c in age.codes] == want["age_over_25"]
    faults = " ".join(table.task.faults)
    assert "1 = good = favourable, 2 = bad" in faults and "Groemping 2019" in faults and "sex is unreliable" in faults
    assert any("sex is unreliable" in line for line in sex.log)
    assert any("NOT the published file" in line for line in table.log)


# ------------------------------------------------------------------------------------------- SOURCE.txt of each set


def test_taiwan_as_published(data_folder):
    table = whole("taiwan", data_folder)
    assert (len(table.y), int(table.y.sum()), len(table.attributes)) == (30000, 6636, 23)
    assert sizes(table) == {"female": 18112, "male": 11888}
    assert (rate(table, "sex", "male"), rate(table, "sex", "female")) == (24.17, 20.78)
    assert table.task.favourable_is == "negative"
    assert round(table.x[:, table.features.index("LIMIT_BAL")].mean(), 2) == 167484.32


def test_compas_as_published(data_folder):
    table = load("compas", data_folder)
    assert (len(table.y), round(100 * table.y.mean(), 2)) == (6172, 45.51)
    assert sizes(table, "race") == {
        "African-American": 3175, "Asian": 31, "Hispanic": 509, "Native American": 11, "Other": 343, "Caucasian": 2103,
    }  # fmt: skip
    assert (rate(table, "race", "African-American"), rate(table, "race", "Caucasian")) == (52.31, 39.09)
    assert sizes(table, "sex") == {"female": 1175, "male": 4997}


def test_acsincome_as_published(data_folder):
    co, ne = load("acsincome", data_folder), load("acsincome", data_folder, state="ne")
    assert (len(co.y), round(100 * co.y.mean(), 2)) == (31306, 41.44)
    assert (rate(co, "sex", "male"), rate(co, "sex", "female")) == (48.70, 33.26)
    assert (len(ne.y), round(100 * ne.y.mean(), 2)) == (10785, 31.23)
    assert (rate(ne, "sex", "male"), rate(ne, "sex", "female")) == (38.57, 23.03)
    both = load("acsincome", data_folder, state=["co", "ne"], client="state")
    assert both.features == co.features == ne.features
    assert [int((both.client == s).sum()) for s in ("co", "ne")] == [31306, 10785]


def test_bank_as_published(data_folder):
    table = load("bank", data_folder)
    assert (len(table.y), int(table.y.sum()), len(table.attributes)) == (45211, 5289, 15)
    assert sizes(table, "marital_status") == {"single": 12790, "divorced": 5207, "married": 27214}
    assert "duration" in load("bank", data_folder, add=["duration"]).features


def test_law_as_published(data_folder):
    table = load("law", data_folder)
    assert (len(table.y), round(100 * table.y.mean(), 2)) == (20798, 88.97)
    assert sizes(table) == {"Non-White": 3307, "White": 17491}
    assert (rate(table, "race", "White"), rate(table, "race", "Non-White")) == (92.13, 72.30)
    assert (rate(table, "sex", "male"), rate(table, "sex", "female")) == (89.90, 87.79)
    arff = load("law", data_folder, form="arff")
    assert (len(arff.y), round(100 * arff.y.mean(), 2)) == (18692, 90.18)
    assert sizes(arff) == {"Non-White": 1201, "White": 17491}
    assert arff.features == table.features


def test_the_other_law_file_is_read_properly_or_refused(data_folder, tmp_path):
    data = (data_folder / "law" / "law_data.csv").read_bytes()
    columns = read_table("law_data.csv", data)
    assert len(columns["race"]) == 21791
    assert round(100 * np.mean([float(c) for c in columns["first_pf"]]), 2) == 88.84
    (tmp_path / "law_data.csv").write_bytes(data)
    with pytest.raises(BadInput, match="first-year grade task"):
        load("law", tmp_path)
    (tmp_path / "law_dataset.arff").write_bytes((data_folder / "law" / "law_dataset.arff").read_bytes())
    with pytest.raises(BadInput, match='pass form="arff"'):
        load("law", tmp_path)


# ------------------------------------------------------------------------------------------- forms of one file

CELLS = [["20000", "2", "2", "1", "24", *["0"] * 18, "1"], ["90000.0", "1.0", "5", "0", "57", *["-1"] * 18, "0"]]


@pytest.mark.parametrize(
    "header",
    [
        [["ID", *taiwan.NAMES, taiwan.TARGET]],
        [["ID", *taiwan.NAMES, "default.payment.next.month"]],
        [["ID", *taiwan.NAMES, "Default"]],
        [["", *[f"X{i}" for i in range(1, 24)], "Y"]],
        [["", *[f"X{i}" for i in range(1, 24)], "Y"], ["ID", *taiwan.NAMES, taiwan.TARGET]],
    ],
    ids=["names", "dots", "Default", "X1..Y", "two rows"],
)
def test_taiwan_headers(header, tmp_path):
    rows = [*header, *([str(i), *cells] for i, cells in enumerate(CELLS))]
    (tmp_path / "UCI_Credit_Card.csv").write_text("\n".join(",".join(r) for r in rows) + "\n")
    table = load("taiwan", tmp_path)
    assert table.y.tolist() == [1, 0] and table.sensitive["SEX"].tolist() == ["2", "1"]
    assert table.x[:, table.features.index("EDUCATION=5")].tolist() == [0, 1]


def test_taiwan_words_and_old_names():
    header = ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_1", *taiwan.NAMES[6:], "default"]
    columns = taiwan.columns_of("f.csv", [header, ["1", "Female", *["0"] * 21, "1"]])
    assert columns["SEX"] == ["2"] and "PAY_0" in columns
    with pytest.raises(BadInput, match="no column 'LIMIT_BAL'; did you mean 'LIMIT'"):
        taiwan.columns_of("f.csv", [["LIMIT", *header[1:]], ["1"] * 24])


def test_taiwan_xls_with_two_header_rows(tmp_path):
    data = Path(__file__).with_name("three_clients.xls").read_bytes()
    (tmp_path / "default of credit card clients.xls").write_bytes(data)
    table = load("taiwan", tmp_path)
    assert table.y.tolist() == [1, 0, 0]
    assert table.x[:, table.features.index("AGE")].tolist() == [24, 57, 34]
    assert sizes(table) == {"female": 2, "male": 1}
    (tmp_path / "default of credit card clients.xls").write_bytes(data[:1000])
    with pytest.raises(BadInput, match=r"no whole \.xls workbook"):
        load("taiwan", tmp_path)


COMPAS_HEADER = "id,name,sex,age,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,priors_count,"
COMPAS_HEADER += "days_b_screening_arrest,c_charge_degree,is_recid,score_text,decile_score,two_year_recid\n"


def test_compas_original_with_repeated_header_and_names(tmp_path):
    rows = [
        "1,a person,Male,69,Other,0,1,0,0,0,-1,F,0,Low,1,0",
        "2,a person,Male,34,Caucasian,0,3,0,0,0,31,F,1,Low,3,1",
        "3,a person,Male,34,Caucasian,0,3,0,0,0,,F,1,Low,3,1",
        "4,a person,Female,34,Caucasian,0,3,0,0,0,0,O,1,Low,3,1",
        "5,a person,Female,34,Asian,0,3,0,0,0,0,M,-1,Low,3,1",
        "6,a person,Female,34,Asian,0,3,0,0,0,0,M,1,N/A,3,1",
        "7,a person,Female,34,Asian,0,3,0,0,0,30,M,1,High,3,1",
    ]
    path = tmp_path / "compas-scores-two-years.csv"
    path.write_text(COMPAS_HEADER + "\n".join(rows))
    table = load("compas", tmp_path)
    assert table.y.tolist() == [0, 1] and not any("name" in f for f in table.features)
    assert "7 rows read, 5 dropped" in " ".join(table.log)
    path.write_text(COMPAS_HEADER + rows[0].replace("Low,1", "Low,2"))
    with pytest.raises(BadInput, match="two different columns named 'decile_score'"):
        load("compas", tmp_path)


def test_raw_person_file_is_filtered_like_folktables(tmp_path):
    header = "RT,SERIALNO,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP,PWGTP\n"
    keep = "P,1,40,1,21,1,0110,008,00,40,1,1,{income},10\n"
    gone = ["P,1,16,1,21,1,0110,008,00,40,1,1,90000,10\n", "P,1,40,,21,1,,008,00,,1,1,90000,10\n"]
    gone += ["P,1,40,1,21,1,0110,008,00,40,1,1,100,10\n", "P,1,40,1,21,1,0110,008,00,40,1,1,9000,0\n"]
    rows = [keep.format(income=50000), *gone, keep.format(income=50001)]
    (tmp_path / "psam_p06.csv").write_text(header + "".join(rows))
    table = load("acsincome", tmp_path, state="ca")
    assert table.y.tolist() == [0, 1] and "6 rows read, 4 dropped" in " ".join(table.log)
    assert table.x[:, table.features.index("OCCP=MGR")].tolist() == [1, 1]
    (tmp_path / "psam_p06.csv").write_text(header + keep.format(income=50000).replace("0110", "5"))
    with pytest.raises(BadInput, match="column OCCP holds '5'"):
        load("acsincome", tmp_path, state="ca")


def test_bank_with_commas_too(tmp_path):
    names = [c.name for c in TASKS["bank"].columns] + ["y"]
    cells = ["30", "admin.", "single", "primary", "no", "5", "no", "no", "cellular", "1", "may", "9", "1", "-1", "0"]
    cells += ["unknown", "yes"]
    for separator in ";,":
        lines = [separator.join(f'"{c}"' for c in row) for row in (names, cells)]
        (tmp_path / "bank-full.csv").write_text("\n".join(lines))
        assert load("bank", tmp_path).y.tolist() == [1]


def test_embedded_bytes_are_the_published_ones():
    assert len(embedded("german.data") or b"") == 79793
    assert len(embedded("adult.data") or b"") == 3974305
    assert embedded("taiwan.csv") is None
