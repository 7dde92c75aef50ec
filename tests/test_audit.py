"""``equipoise audit`` as a user meets it: figures that can be recomputed, one sentence for each bad input."""

from __future__ import annotations

import csv
import io
import json
import shutil

import numpy as np
import pytest

import equipoise.metrics as m
from equipoise.audit import Limit, Question, audit_counts, audit_file, parse_limits, read, verdict
from equipoise.checks import BadInput
from equipoise.metrics import named, rates

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # typer's import of click

ASK = ["--label", "y", "--prediction", "yhat", "--group", "sex"]


def write(folder, text, name="predictions.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def example(rows=600, clients=3, seed=0):
    rng = np.random.default_rng(seed)
    out = ["id,y,yhat,p,sex,race,bank"]
    for i in range(rows):
        sex, race, bank = rng.integers(2), rng.integers(3), rng.integers(clients)
        y = rng.random() < 0.4
        p = min(max(rng.normal(0.35 + 0.3 * y - 0.15 * sex * (bank == 1), 0.2), 0), 1)
        out.append(
            f"{i},{'yes' if y else 'no'},{'yes' if p >= 0.5 else 'no'},{p:.4f},{'mf'[sex]},{'WBA'[race]},b{bank}"
        )
    return "\n".join(out) + "\n"


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line; return exit code, standard output, standard error."""
    from equipoise.cli import main

    monkeypatch.setenv("COLUMNS", "300")

    def call(*words):
        with pytest.raises(SystemExit) as e:
            main(["audit", *(str(w) for w in words)])
        said = capsys.readouterr()
        return e.value.code, said.out, said.err

    return call


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is no strict JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def audited(tmp_path, run):
    path = write(tmp_path, example())
    code, out, err = run(path, *ASK, "--group", "race", "--client", "bank", "--positive", "yes", "--json")
    assert (code, err) == (0, "")
    return strict(out)


def test_every_figure_can_be_recomputed_from_the_counts(audited):
    views = [*audited["pooled"], *audited["clients"]]
    assert len(views) == 3 + 3
    for view in views:
        table = np.array([g["counts"] for g in view["groups"]])
        assert table.sum() == view["rows"]
        for figure in view["figures"]:
            expected = float(getattr(named, figure["metric"])(table))
            assert (figure["value"] is None) == np.isnan(expected)
            if figure["value"] is None:
                assert figure["reason"]
            else:
                assert figure["value"] == expected
        for g in view["groups"]:
            for name, rate in g["rates"].items():
                expected = float(getattr(rates, name)(np.array(g["counts"])))
                assert rate["value"] == expected
                low, high = m.wilson(rate["hits"], rate["of"])
                assert (rate["low"], rate["high"]) == pytest.approx((float(low), float(high)))
    cells = np.sum([[g["counts"] for g in view["groups"]] for view in audited["clients"]], 0)
    assert cells.tolist() == [g["counts"] for g in audited["pooled"][-1]["groups"]]
    by_sex = np.array([g["counts"] for g in audited["pooled"][0]["groups"]])
    assert (cells.reshape(2, 3, 4).sum(1) == by_sex).all()


def test_counts_are_those_of_the_rows(audited):
    rows = list(csv.DictReader(io.StringIO(example())))
    for g in audited["pooled"][-1]["groups"]:
        mine = [r for r in rows if f"{r['sex']}&{r['race']}" == g["group"]]
        cells = [("yes", "yes"), ("no", "yes"), ("no", "no"), ("yes", "no")]
        assert g["counts"] == [sum((r["y"], r["yhat"]) == cell for r in mine) for cell in cells]


def test_verdicts_follow_the_stated_rule_and_the_worst_come_first(audited):
    order = ["outside", "not enough evidence", "within limits"]
    places = [order.index(f["verdict"]) for f in audited["findings"]]
    assert places == sorted(places)
    ranks = [order.index(c["verdict"]) for c in audited["clients"]]
    assert ranks == sorted(ranks)
    assert audited["verdict"] == order[min(order.index(v["verdict"]) for v in audited["pooled"])]
    bounds = {b["metric"]: b for b in audited["limits"]}
    for view in [*audited["pooled"], *audited["clients"]]:
        for figure in view["figures"]:
            if figure["limit"] is not None:
                low, high = figure["interval"]["low"], figure["interval"]["high"]
                bad = -1 if bounds[figure["metric"]]["sign"] == ">=" else 1
                beyond = [] if low is None else [(x - figure["limit"]) * bad > 0 for x in (low, high)]
                expected = (
                    "outside" if beyond and all(beyond) else "within limits" if beyond and not any(beyond) else order[1]
                )
                assert figure["verdict"] == expected
                assert figure["sentence"].endswith(expected)


def test_a_pooled_figure_is_not_the_mean_of_the_clients():
    clients = np.array([[[99, 0, 0, 0], [1, 0, 9, 0]], [[0, 0, 9, 1], [0, 0, 0, 99]]])
    found = audit_counts(clients, {"sex": ["m", "f"]}, ["c1", "c2"])
    across = {a["metric"]: a for a in found["across_clients"]}["equal_opportunity_difference"]
    assert across["pooled"] == 49 / 50
    assert (across["mean"], across["clients_defined"], across["highest"]) == (0.0, 2, 0.0)
    assert found["verdict"] == "outside"


def test_clear_cases_get_clear_verdicts():
    even = np.array([[[3000, 1000, 4000, 500], [3000, 1000, 4000, 500]]])
    assert audit_counts(even, {"sex": ["m", "f"]})["verdict"] == "within limits"
    few = even // 200
    assert audit_counts(few, {"sex": ["m", "f"]})["verdict"] == "not enough evidence"
    skewed = np.array([[[3000, 1000, 4000, 500], [1000, 300, 4700, 2500]]])
    found = audit_counts(skewed, {"sex": ["m", "f"]})
    assert found["verdict"] == "outside"
    assert "true positive rate of m is 0.571 above f" in " ".join(f["sentence"] for f in found["findings"])


@pytest.mark.parametrize(("metric", "limit"), [("four_fifths_ratio", 0.8), ("statistical_parity_difference", 0.1)])
def test_a_verdict_at_the_limit_itself_is_within(metric, limit):
    bound = Limit(metric, limit, "here")
    assert verdict(m.Interval(limit, limit), bound) == "within limits"
    assert verdict(m.Interval(None, None), bound) == "not enough evidence"
    out = m.Interval(0.1, 0.79) if bound.sign == ">=" else m.Interval(0.11, 0.9)
    assert verdict(out, bound) == "outside"


def test_same_input_same_bytes_and_a_folder_is_never_overwritten(tmp_path, run):
    path = write(tmp_path, example(200))
    options = (path, *ASK, "--client", "bank", "--positive", "yes", "--out")
    code, out, _ = run(*options, tmp_path / "a")
    assert code == 0
    assert "wrote" in out
    run(*options, tmp_path / "b")
    names = ["audit.json", "audit.md", "per_group.csv"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    before = (tmp_path / "a" / "audit.json").read_bytes()
    code, _, err = run(*options, tmp_path / "a")
    assert (code, (tmp_path / "a" / "audit.json").read_bytes()) == (2, before)
    assert "holds another audit; name a new folder" in err
    found = strict(before.decode())
    lines = list(csv.DictReader(io.StringIO((tmp_path / "a" / "per_group.csv").read_text())))
    assert len(lines) == sum(len(v["groups"]) for v in [*found["pooled"], *found["clients"]])
    assert sum(int(line["n"]) for line in lines if line["scope"] == "client") == 200
    assert found["file"]["name"] == "predictions.csv"
    assert str(tmp_path) not in before.decode()


def test_people_read_verdict_findings_and_the_account_of_rows(tmp_path, run):
    path = write(tmp_path, example())
    code, out, err = run(path, *ASK, "--client", "bank", "--positive", "yes")
    assert (code, err) == (0, "")
    for words in [
        "Rows: 600 read = 600 counted + 0 left out",
        "Positive = favourable outcome = label 'yes'",
        "Verdict: ",
        "it is not the mean of the clients' figures",
        "seed 0",
        "29 CFR 1607.4(D)",
    ]:
        assert words in out
    assert "\x1b[" not in out, "no colours where there is no terminal"
    assert "nan" not in out.lower()


def test_a_score_with_its_threshold_is_the_prediction(tmp_path, run, audited):
    path = write(tmp_path, example())
    options = ["--label", "y", "--group", "sex", "--group", "race", "--client", "bank", "--positive", "yes", "--json"]
    code, out, _ = run(path, *options, "--score", "p", "--threshold", "0.5")
    assert code == 0
    assert strict(out)["pooled"][0]["groups"] == audited["pooled"][0]["groups"]


def test_favourable_negative_turns_the_tables(tmp_path, run, audited):
    path = write(tmp_path, example())
    code, out, _ = run(path, *ASK, "--positive", "yes", "--favourable", "negative", "--json")
    found = strict(out)
    assert code == 0
    assert found["question"]["counted_as_positive"] == "no"
    tp, fp, tn, fn = audited["pooled"][0]["groups"][0]["counts"]
    assert found["pooled"][0]["groups"][0]["counts"] == [tn, fn, tp, fp]


def test_semicolons_a_byte_order_mark_quotes_and_blank_lines(tmp_path, run):
    text = '﻿y;yhat;sex\r\n1;1;\'a\r\n0;1;"b;\n"\r\n\r\n1;0;"b;\n"\r\n\r\n0;0;\'a\r\n'
    code, out, _ = run(write(tmp_path, text), *ASK, "--json")
    found = strict(out)
    assert code == 0
    assert found["rows"] == {"read": 6, "counted": 4, "left_out": [{"reason": "blank line", "rows": 2}]}
    assert [g["group"] for g in found["pooled"][0]["groups"]] == ["'a", "b;"]


GAPS = "y,yhat,sex,bank\n1,1,a,x\n0,1,b,x\n1,0,,x\n0,0,a,\n1,0,b,x\n,1,b,x\n"


def test_missing_values_have_one_rule(tmp_path, run):
    path = write(tmp_path, GAPS)
    code, _, err = run(path, *ASK)
    assert code == 2
    assert "column 'y' has 1 missing row of 6 (first: line 7)" in err
    path = write(tmp_path, GAPS.replace("\n,1,b,x\n", "\n"))
    code, _, err = run(path, *ASK)
    assert (code, "column 'sex' has 1 missing row" in err, "--missing group" in err) == (2, True, True)
    code, out, _ = run(path, *ASK, "--client", "bank", "--missing", "group", "--json")
    found = strict(out)
    assert [(g["group"], g["n"]) for g in found["pooled"][0]["groups"]][-1] == ("missing", 1)
    assert {c["client"] for c in found["clients"]} == {"x", "missing"}
    code, out, _ = run(write(tmp_path, GAPS), *ASK, "--client", "bank", "--missing", "drop", "--json")
    rows = strict(out)["rows"]
    assert rows["read"] == 6 == rows["counted"] + sum(item["rows"] for item in rows["left_out"])
    assert {item["reason"]: item["rows"] for item in rows["left_out"]} == {
        "missing y": 1,
        "missing bank": 1,
        "missing sex": 1,
    }


def test_small_cells_empty_cells_and_constant_predictors_are_remarked(tmp_path, run):
    text = "y,yhat,sex,race\n" + "1,0,F,W\n0,0,F,W\n1,0,M,W\n0,0,M,W\n1,0,F,B\n0,0,F,B\n"
    code, out, _ = run(write(tmp_path, text), *ASK, "--group", "race", "--json")
    found = strict(out)
    assert code == 0
    remarks = " | ".join(found["remarks"])
    assert "constant predictor: the model predicts the unfavourable outcome for all 6 rows" in remarks
    assert "no rows at all in 1 of 4 groups: M&B" in remarks
    assert "F&B: 2 rows (fewer than 30), 1 positives (fewer than 5)" in remarks
    cell = next(g for g in found["pooled"][-1]["groups"] if g["group"] == "M&B")
    assert (cell["n"], cell["rates"]["accuracy"]) == (0, {"value": None, "reason": "no rows", "hits": 0, "of": 0})
    ratio = next(f for f in found["pooled"][0]["figures"] if f["metric"] == "four_fifths_ratio")
    assert (ratio["value"], ratio["verdict"]) == (None, "not enough evidence")


def test_parquet_says_what_csv_says(tmp_path, run, audited):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from pyarrow import csv as arrow_csv

    table = arrow_csv.read_csv(io.BytesIO(example().encode()))
    path = tmp_path / "predictions.parquet"
    parquet.write_table(table, path, row_group_size=100)
    options = [*ASK, "--group", "race", "--client", "bank", "--positive", "yes", "--json"]
    code, out, _ = run(path, *options)
    assert code == 0
    found = strict(out)
    assert found["pooled"] == audited["pooled"]
    assert found["clients"] == audited["clients"]
    categories = table.set_column(4, "sex", table["sex"].cast(arrow.dictionary(arrow.int32(), arrow.string())))
    parquet.write_table(categories, path)
    assert strict(run(path, *options)[1])["pooled"] == audited["pooled"]
    with pytest.raises(BadInput, match=r"has no column 'sexx'; did you mean 'sex'\?"):
        read(path, ["sexx"])
    path.write_bytes(path.read_bytes()[:-20])
    code, _, err = run(path, *options)
    assert (code, "is no readable Parquet file" in err) == (2, True)


def test_limits_are_stated_with_their_origin():
    by_metric = {limit.metric: limit for limit in parse_limits(["statistical_parity_difference=0.05"])}
    assert by_metric["statistical_parity_difference"].value == 0.05
    assert by_metric["statistical_parity_difference"].origin == "stated by the user"
    assert "four-fifths rule" in by_metric["four_fifths_ratio"].origin
    for words, message in [
        ("equal_oportunity_difference=0.1", "did you mean 'equal_opportunity_difference'?"),
        ("accuracy", "has no value"),
        ("accuracy=high", "is no number"),
        ("accuracy=80", "limit of accuracy must lie in 0..1, got 80"),
    ]:
        with pytest.raises(BadInput) as e:
            parse_limits([words])
        assert message in str(e.value)


def test_a_library_caller_gets_the_same(tmp_path):
    path = write(tmp_path, example(100))
    found = audit_file(path, Question("y", ("sex",), prediction="yhat", positive="yes"), replicates=100)
    assert found["rows"]["counted"] == 100
    assert found["clients"] == found["across_clients"] == []
    with pytest.raises(BadInput, match="counts have shape"):
        audit_counts(np.zeros((2, 4), int), {"sex": ["m", "f"]})
    with pytest.raises(BadInput, match="a count is negative"):
        audit_counts(-np.ones((1, 2, 4), int), {"sex": ["m", "f"]})


def test_many_rows_cost_no_more_than_few():
    """Figures come from cells: 400 clients x groups, 400,000 rows, and no loop over rows."""
    table = np.random.default_rng(0).integers(0, 2000, (100, 4, 4))
    found = audit_counts(table, {"g": list("abcd")}, [f"c{i}" for i in range(100)], replicates=100)
    assert len(found["clients"]) == 100
    assert sum(c["rows"] for c in found["clients"]) == found["pooled"][0]["rows"] == table.sum()


GOOD = "y,yhat,p,sex\n1,1,0.9,a\n0,1,0.6,b\n1,0,0.2,b\n0,0,0.1,a\n"
SCORED = ["--label", "y", "--score", "p", "--threshold", "0.5", "--group", "sex"]
ONLY_NAMES = "y,yhat,sex\nyes,yes,a\nno,yes,b\n"
BAD = {
    "empty file": ("", ASK, "is empty; write a header and one row per prediction"),
    "header only": ("y,yhat,sex\n", ASK, "holds a header and no rows"),
    "blank lines only": ("\n\n", ASK, "is empty"),
    "missing column": (GOOD.replace("yhat", "y_hat"), ASK, "has no column 'yhat'; did you mean 'y_hat'?"),
    "column twice": (GOOD.replace("y,yhat", "y,y"), SCORED, "has 2 columns called 'y'"),
    "ragged row": (GOOD.replace("1,0,0.2,b", "1,0,0.2"), ASK, "line 4 has 3 fields where the header has 4"),
    "open quote": (GOOD.replace("1,0,0.2,b", '1,0,0.2,"b'), ASK, "check the quotes"),
    "one group": (GOOD.replace(",b", ",a"), ASK, "'sex' has only one group ('a')"),
    "one class": (GOOD.replace("\n0,", "\n1,"), ASK, "label 'y' has only one class ('1' in all 4 rows)"),
    "three classes": (GOOD.replace("\n0,1", "\n2,1"), ASK, "labels are '0', '1', '2': 3 classes"),
    "no positive": (ONLY_NAMES, ASK, "labels are 'no', 'yes'; say which one is positive"),
    "unknown positive": (GOOD, [*ASK, "--positive", "yes"], "positive 'yes' is not among the labels '0', '1'"),
    "NaN score": (GOOD.replace("0.2", "nan"), SCORED, "column 'p' has 1 missing row of 4 (first: line 4)"),
    "infinite score": (GOOD.replace("0.2", "inf"), SCORED, "1 of 4 scores are not finite"),
    "score no number": (GOOD.replace("0.2", "high"), SCORED, "line 4: 'p' holds 'high', which is no number"),
    "both": (GOOD, [*ASK, "--score", "p", "--threshold", "0.5"], "both were given"),
    "neither": (GOOD, ["--label", "y", "--group", "sex"], "neither was given"),
    "score without threshold": (GOOD, ["--label", "y", "--score", "p", "--group", "sex"], "needs a threshold"),
    "threshold without score": (GOOD, [*ASK, "--threshold", "0.5"], "threshold 0.5 needs a score column"),
    "threshold out of range": (GOOD, ["--label", "y", "--score", "p", "--threshold", "50", "--group", "sex"],
                               "threshold 50 is out of range; the scores run from 0.1 to 0.9"),
    "same column twice": (GOOD, [*ASK, "--group", "sex"], "column 'sex' is named for two things"),
    "unknown limit": (GOOD, [*ASK, "--limit", "accurcy=0.9"], "did you mean 'accuracy'?"),
    "unknown policy": (GOOD, [*ASK, "--missing", "grup"], "missing 'grup' is unknown; did you mean 'group'?"),
    "level": (GOOD, [*ASK, "--level", "95"], "level must lie in 0.5..0.9999, got 95"),
    "replicates": (GOOD, [*ASK, "--replicates", "1"], "replicates must be above 99, got 1"),
    "too many": (GOOD, [*ASK, "--replicates", "1000000000000"], "replicates must lie in 100..100000"),
    "NUL": (GOOD.replace("1,", "1\0,", 1), ASK, "holds NUL bytes"),
    "seed": (GOOD, [*ASK, "--seed", "-1"], "seed must be 0 or above, got -1"),
    "all dropped": ("y,yhat,sex\n1,1,\n0,0,\n", [*ASK, "--missing", "drop"], "all 2 rows were left out"),
    "label as group": (GOOD, ["--label", "y", "--prediction", "yhat", "--group", "y"], "named for two things"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_sentence_and_exit_code_2(name, tmp_path, run):
    text, options, words = BAD[name]
    code, out, err = run(write(tmp_path, text), *options, "--out", tmp_path / "out")
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert out == ""
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_read(tmp_path, run):
    code, _, err = run(tmp_path / "none.csv", *ASK)
    assert (code, "there is no file" in err) == (2, True)
    code, _, err = run(tmp_path, *ASK)
    assert (code, "is a folder" in err) == (2, True)
    path = write(tmp_path, GOOD.replace(",a", ",ä"), encoding="latin-1")
    code, _, err = run(path, *ASK)
    assert (code, "is not UTF-8 (byte 0xe4)" in err) == (2, True)
    code, _, err = run(write(tmp_path, GOOD, encoding="utf-16"), *ASK)
    assert (code, "is not UTF-8" in err) == (2, True)
    (tmp_path / "taken").write_text("x")
    code, _, err = run(write(tmp_path, GOOD), *ASK, "--out", tmp_path / "taken")
    assert (code, "is a file; name a folder" in err) == (2, True)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "mine.txt").write_text("x")
    code, _, err = run(write(tmp_path, GOOD), *ASK, "--out", folder)
    assert (code, "holds other files" in err) == (2, True)
    shutil.rmtree(folder)


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path, run):
    text = GOOD.replace(",a\n", ",[red]a|<b>\n")
    code, out, _ = run(write(tmp_path, text), *ASK, "--out", tmp_path / "out")
    assert code == 0
    assert "[red]a|<b>" in out
    assert "[red]a\\|&lt;b>" in (tmp_path / "out" / "audit.md").read_text()
