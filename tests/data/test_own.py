"""A user's own table: what is inferred, what is said, and what is refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.data import (
    OwnTable,
    fit_scaling,
    groups_of,
    kind_of,
    own_table,
    partition,
    read_columns,
    scale,
)
from equipoise.data.delimited import numbers

HEADER = "id,age,income,sex,bank,since,approved,note\n"
ROWS = [
    "1,25,1000.5,f,A,2020-01-01,yes,x",
    "2,26,200,m,A,2020-01-02,no,x",
    "3,60,900,f,B,2020-01-03,no,x",
    "4,61,70,m,B,2020-01-04,yes,x",
]


@pytest.fixture
def say(tmp_path):
    """Write a table and declare it; keywords change the declaration."""

    def declare(rows=ROWS, header=HEADER, data=None, name="mine.csv", **changes):
        path = tmp_path / name
        path.write_bytes((header + "\n".join(rows) + "\n").encode() if data is None else data)
        known = {"label": "approved", "positive": "yes", "favourable": "loan granted", "favourable_is": "positive"}
        return own_table({"path": str(path), **known, "sensitive": ["sex"], **changes})

    return declare


def test_types_are_inferred_and_said(say):
    table = say(client="bank")
    assert table.features == ("age", "income", "sex=f", "sex=m")
    assert table.x.tolist() == [[25, 1000.5, 1, 0], [26, 200, 0, 1], [60, 900, 1, 0], [61, 70, 0, 1]]
    assert table.y.tolist() == [1, 0, 0, 1]
    assert table.client.tolist() == ["A", "A", "B", "B"]
    assert [p.tolist() for p in partition.natural(table.client).parts] == [[0, 1], [2, 3]]
    said = "\n".join(table.log)
    for line in (
        "mine.csv: 4 rows and 8 columns read",
        "id: looks like a row number; left out",
        "age: numeric, 25 to 61",
        "sex: categorical, 2 levels (f, m)",
        "since: dates such as 2020-01-01; left out",
        "note: constant ('x'); left out",
        "y = 1 means approved = yes (2 rows, 50.00 %)",
    ):
        assert line in said
    assert list(table.hashes) == ["mine.csv"]
    assert groups_of(table).names == ("f", "m")


def test_a_model_does_as_well_as_a_mapping(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "\n".join(ROWS))
    said = {"favourable": "granted", "favourable_is": "positive"}
    own = OwnTable(path=str(path), label="approved", positive="yes", sensitive=["sex"], **said)
    assert len(own_table(own).y) == 4


@pytest.mark.parametrize(
    "data",
    [
        "\ufeff" + HEADER + "\n".join(ROWS),
        (HEADER + "\n".join(ROWS)).replace(",", ";"),
        (HEADER + "\n".join(ROWS)).replace(",", "\t"),
        (HEADER + "\n".join(ROWS)).replace("\n", "\r\n") + "\r\n\r\n",
        (HEADER + "\n".join(ROWS)).replace(",", ", "),
    ],
    ids=["BOM", "semicolon", "tab", "windows", "spaces"],
)
def test_csv_dialects(say, data):
    assert (say(data=data.encode()).x == say().x).all()


def test_parquet_says_the_same_as_csv(say, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = list(zip(*(r.split(",") for r in ROWS), strict=True))
    types = [int, int, float, str, str, str, str, str]
    arrays = {n: [t(v) for v in c] for n, t, c in zip(HEADER.strip().split(","), types, columns, strict=True)}
    arrays["approved"] = [v == "yes" for v in arrays["approved"]]
    pq.write_table(pa.table(arrays), tmp_path / "p.parquet")
    table = say(data=(tmp_path / "p.parquet").read_bytes(), name="mine.parquet", positive=True)
    assert (table.x == say().x).all() and (table.y == say().y).all()
    cut = (tmp_path / "p.parquet").read_bytes()[:300]
    with pytest.raises(BadInput, match="is no whole Parquet file"):
        say(data=cut, name="cut.parquet")


def test_numeric_groups_are_cut_as_declared(say):
    table = say(sensitive=["age", "sex"], bins={"age": [25, 60]}, reference={"age": "age > 60"})
    groups = groups_of(table)
    assert groups.names == ("age <= 25", "25 < age <= 60", "age > 60")
    assert groups.codes.tolist() == [0, 1, 1, 2]
    both = groups_of(table, "age & sex")
    assert len(both.names) == 6 and both.codes.tolist() == [0, 3, 2, 5]
    assert groups_of(say(sensitive=["age"])).names == ("25", "26", "60", "61")  # few values: a group each


HOLES = [ROWS[0], "2,26,,m,A,2020-01-02,no,x", "3,60,900,,B,2020-01-03,no,x", ROWS[3]]


def test_missing_cells_are_refused_dropped_or_a_group(say):
    with pytest.raises(BadInput, match=r"has missing cells \(income 1, sex 1\)"):
        say(HOLES)
    with pytest.raises(BadInput, match="one class only"):
        say(HOLES, missing="drop")  # both who were refused had a missing cell


def test_missing_drop_counts_what_it_drops(say):
    table = say([*HOLES, *(r.replace("yes", "no") for r in ROWS[:1])], missing="drop")
    assert len(table.y) == 3
    assert "2 rows with missing cells dropped (income 1, sex 1), 3 left" in table.log


def test_missing_group_is_a_level_and_an_indicator(say):
    table = say(HOLES, missing="group", client="bank")
    assert table.features == ("age", "income", "income is missing", "sex=f", "sex=m", "sex=missing")
    assert np.isnan(table.x[1, 1]) and table.x[1, 2] == 1
    scaled = scale(table.x, fit_scaling(table.x, table.numeric, np.array([0, 2, 3])))
    assert np.isfinite(scaled).all() and scaled[1, 1] == 0
    groups = groups_of(table)
    assert groups.names == ("f", "m", "missing") and groups.codes.tolist() == [0, 1, 2, 1]
    ages = [r.replace(",61,", ",,") for r in ROWS]
    binned = groups_of(say(ages, missing="group", sensitive=["age"], bins={"age": [30]}))
    assert binned.names == ("age <= 30", "age > 30", "missing") and binned.codes.tolist() == [0, 0, 1, 2]


def test_missing_columns_that_are_left_out_do_no_harm(say):
    rows = [r.replace("1000.5", "").replace("900", "?") for r in ROWS]
    assert len(say(rows, leave_out=["income"]).y) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"label": "aproved"}, r"no column 'aproved' \(label\); did you mean 'approved'"),
        ({"sensitive": ["sexx"]}, r"no column 'sexx' \(sensitive\); did you mean 'sex'"),
        ({"client": "bnk"}, r"no column 'bnk' \(client\)"),
        ({"leave_out": ["nothing"]}, r"no column 'nothing' \(leave_out\)"),
        ({"positive": "Yes!"}, "positive = 'Yes!' is no value of 'approved'"),
        ({"positive": None}, "holds 'no' and 'yes'; say which one is positive"),
        ({"label": "note"}, "one class only"),
        ({"label": "age", "positive": 25}, "has 4 values"),
        ({"sensitive": []}, "at least one column"),
        ({"sensitive": ["note"]}, "one group only"),
        ({"sensitive": ["since"]}, "holds dates such as"),
        ({"bins": {"sex": [1]}}, "bins.sex is given, but 'sex' is categorical"),
        ({"bins": {"age": [1]}}, "'age' is not a sensitive column"),
        ({"sensitive": ["age"], "bins": {"age": [60, 25]}}, "give rising cut points"),
        ({"reference": {"sex": "x"}}, "is none of its groups"),
        ({"favourable_is": "good"}, "favourable_is of your table"),
        ({"favourible": "x"}, "did you mean 'favourable'"),
        ({"sensitive": ["approved"]}, "has another role as well"),
        ({"leave_out": ["age", "income", "sex", "bank"]}, "no features left"),
    ],
)
def test_a_wrong_declaration_is_one_sentence(say, changes, says):
    with pytest.raises(BadInput, match=says) as caught:
        say(**changes)
    assert "\n" not in str(caught.value)


def test_what_is_good_must_be_said(tmp_path):
    with pytest.raises(BadInput, match="lacks 'favourable'; say in words which outcome is good"):
        own_table({"path": "x.csv", "label": "y", "favourable_is": "positive", "sensitive": ["a"]})
    with pytest.raises(BadInput, match="does not exist; give the path of a CSV or Parquet file"):
        own_table({"path": "x.csv", "label": "y", "favourable": "f", "favourable_is": "positive", "sensitive": ["a"]})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (HEADER.encode(), "has a header but no rows"),
        (b"<html>", "is a web page"),
        (b"PK\x03\x04 an xlsx", "is no text table; save it as CSV"),
        (HEADER.encode() + b"1,2\n", "line 2 has 2 cells instead of 8"),
        (HEADER.replace("note", "sex").encode() + ROWS[0].encode(), "has 'sex' more than once in its header"),
        ((HEADER + "\n".join(ROWS)).replace("1000.5", "inf").encode(), "column 'income' is numeric, but row 1"),
        ((HEADER + "\n".join(ROWS)).replace(",f,", ",\xfc,").encode("latin-1"), "is not UTF-8 text"),
    ],
)
def test_hostile_tables(say, data, says):
    with pytest.raises(BadInput, match=says):
        say(data=data)


def test_a_client_or_label_that_is_missing_is_named(say):
    rows = [ROWS[0], ROWS[1].replace(",A,", ",,"), *ROWS[2:]]
    with pytest.raises(BadInput, match=r"the client column 'bank' is missing in 1 rows \(first in row 2\)"):
        say(rows, client="bank", missing="group")
    with pytest.raises(BadInput, match="the label 'approved' is missing in 1 rows"):
        say([*ROWS, ROWS[0].replace("yes", "")], missing="group")


def test_too_many_levels_name_the_column_and_the_remedy(say):
    rows = [f"{i},{i % 7},5{i % 3},{'fm'[i % 2]},A,2020-01-01,{('yes', 'no')[i % 3 == 0]},name {i}" for i in range(60)]
    with pytest.raises(BadInput, match=r"note \(60 levels in 60 rows, such as 'name 0'\); put them into leave_out"):
        say(rows)
    assert len(say(rows, leave_out=["note"]).y) == 60
    spoilt = [r.replace(f",5{i % 3},", f",{i}.5,") for i, r in enumerate(rows)]
    spoilt[7] = spoilt[7].replace(",7.5,", ",7·5,")
    with pytest.raises(BadInput, match=r"income \(60 levels in 60 rows; 59 cells are numbers, '7·5' is not\)"):
        say(spoilt, leave_out=["note"])
    with pytest.raises(BadInput, match=r"numeric, 0.5 to 59.5 with 59 values; say where to cut it"):
        say(spoilt[:7] + spoilt[8:] + [spoilt[0].replace(",0.5,", ",59.5,")], leave_out=["note"], sensitive=["income"])


def test_labels_of_zero_and_one_need_no_positive(say):
    rows = [r.replace("yes", "1.0").replace("no,", "0,") for r in ROWS]
    table = say(rows, positive=None)
    assert table.y.tolist() == [1, 0, 0, 1]
    assert say(rows, positive=0).y.tolist() == [0, 1, 1, 0]
    assert say(rows, positive=1).y.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty; give a table with a header and rows"),
        (b"age,y\n1,0\n" + b"2,1\n" * 2000 + b"3\0,1\n", "is no text table"),
    ],
)
def test_a_table_that_is_none_is_not_advised_to_be_deleted(tmp_path, content, sentence):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadInput, match=sentence):
        read_columns(tmp_path / "t.csv")
    with pytest.raises(BadInput, match="is a folder"):
        read_columns(tmp_path)


def test_old_line_ends_are_line_ends(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"age,y\r1,0\r2,1\r")
    assert read_columns(tmp_path / "t.csv")[0] == {"age": ["1", "2"], "y": ["0", "1"]}


def test_numbers_whose_squares_overflow_are_refused_and_decimal_commas_named():
    with pytest.raises(BadInput, match="row 2 holds '1e200'"):
        numbers("income", ["1", "1e200"])
    kind = kind_of("income", [f"{i},5" for i in range(60)], 60)
    assert "numbers need a decimal point" in kind.says
