"""``equipoise weights`` and ``equipoise list``: figures, strict JSON, and one sentence for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise import weights
from equipoise.aggregate import fairfed_step

# Click 8.5 warns where typer 0.20 still imports old names.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

GOOD = "client,size,score\nnorth,100,0.85\nsouth,300,0.22\neast,200,0.18\n"


def run(capsys: Any, *words: str) -> tuple[int, str, str]:
    from equipoise import cli

    with pytest.raises(SystemExit) as stop, pytest.MonkeyPatch.context() as m:
        m.setattr(cli, "COMMANDS", ("weights", "catalogue"))
        cli.main(list(words))
    seen = capsys.readouterr()
    return int(stop.value.code or 0), seen.out, seen.err


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "reports.csv"
    path.write_text(GOOD)
    return path


def test_golden_table(table: Path, capsys: Any) -> None:
    code, out, _ = run(capsys, "weights", str(table), "--rule", "fairis", "--eta", "1.01")
    assert code == 0
    north = next(line for line in out.splitlines() if "north" in line)
    assert north.split() == ["north", "100", "0.850", "0.0899", "-0.5113", "0.0049"]
    assert "1/K^2 = 0.1111" in out


def test_json_is_strict_and_right(table: Path, capsys: Any) -> None:
    table.write_text(GOOD + "west,50,\n")
    code, out, _ = run(capsys, "weights", str(table), "--all", "--json")
    got = json.loads(out, parse_constant=lambda word: pytest.fail(f"not strict: {word}"))
    assert code == 0 and got["clients"] == ["north", "south", "east", "west"]
    assert got["raw_scores"] == [0.85, 0.22, 0.18, None] and got["scores"][3] == 0.5
    assert got["fallbacks"] == {"west": "score undefined: neutral 0.5"}
    rules = {r["rule"]: r for r in got["rules"]}
    assert set(rules) == {n.replace("_", "-") for n in weights.__all__} | {"fairfed"}
    s, n = np.array(got["scores"]), np.array(got["sizes"])
    np.testing.assert_allclose(rules["fairis"]["weights"], weights.fairis(s, n))
    np.testing.assert_allclose(rules["fairis-n"]["marginal"], weights.marginal(weights.fairis_n, s, n))
    np.testing.assert_allclose(rules["fairis"]["worst"], weights.worst_share(1.01, 4))
    p = n / n.sum()
    expected = fairfed_step(p, np.abs(s - p @ s))
    np.testing.assert_allclose(rules["fairfed"]["weights"], expected / expected.sum())
    assert rules["fedavg"]["worst_share"] == pytest.approx(p.max())


def test_a_share_in_place_of_eta(table: Path, capsys: Any) -> None:
    words = ("weights", str(table), "--share", "0.05", "--honest", "0.3", "--json")
    got = json.loads(run(capsys, *words)[1])
    assert got["rules"][0]["parameters"]["eta"] == pytest.approx(weights.eta_for_cap(0.05, 3, 0.3))
    plain = json.loads(run(capsys, "weights", str(table), "--share", "0.05", "--json")[1])
    assert plain["rules"][0]["worst_share"] == pytest.approx(0.05)


def test_fairfed_with_a_given_population(table: Path, capsys: Any) -> None:
    table.write_text("client,size,score\na,100,0.1\nb,100,0.5\nc,200,0.2\n")
    words = ("weights", str(table), "--rule", "fairfed", "--f-global", "0.2", "--json")
    got = json.loads(run(capsys, *words)[1])
    np.testing.assert_allclose(got["rules"][0]["weights"], [0.2833333333, 0.0833333333, 0.6333333333])


def test_joint_takes_every_score_column(table: Path, capsys: Any) -> None:
    table.write_text("client,size,score,score_privacy\na,1,0.0,0.5\nb,1,1.0,0.0\n")
    got = json.loads(run(capsys, "weights", str(table), "--rule", "joint", "--eta", "1.5", "--json")[1])
    np.testing.assert_allclose(got["rules"][0]["weights"], weights.joint([[0, 1], [0.5, 0]], [1, 1], eta=1.5))
    assert run(capsys, "weights", str(table), "--all")[0] == 0


def test_the_cap_that_was_asked_for_is_shown(table: Path, capsys: Any) -> None:
    out = run(capsys, "weights", str(table), "--share", "0.05", "--honest", "0.3")[1]
    assert "0.0500  fairis, among clients that all score 0.3" in out


def test_a_rule_that_lies_in_the_current_folder(table: Path, tmp_path: Path) -> None:
    (tmp_path / "lies_here.py").write_text("def half(scores, sizes):\n    return scores * 0 + 1 / len(sizes)\n")
    script = Path(sys.executable).with_name("equipoise")
    args = [str(script), "weights", str(table), "--rule", "lies_here:half"]
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rule_from_elsewhere(table: Path, capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    rule = (
        "def smallest(scores, sizes):\n    best = scores == scores.min()\n    return best / best.sum()\n"
        "def all_of_it(scores, sizes):\n    return scores * 0 + 1\n"
        "def broken(scores, sizes):\n    raise KeyError(1)\n"
    )
    (tmp_path / "their_rules.py").write_text(rule)
    monkeypatch.syspath_prepend(tmp_path)
    got = json.loads(run(capsys, "weights", str(table), "--rule", "their_rules:smallest", "--json")[1])
    assert got["rules"][0]["weights"] == [0, 0, 1]
    for name, why in (("all_of_it", "weights that sum to 3; divide them"), ("broken", "failed (KeyError: 1); mend it")):
        code, _, err = run(capsys, "weights", str(table), "--rule", f"their_rules:{name}")
        assert code == 2 and why in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--honest", "0.5"), "--honest 0.5 belongs to --share"),
        (("--rule", "fairfed", "--f-global", "nan"), "f-global must lie in -1..1, got nan"),
        (("--rule", "os:sep"), "os has no function 'sep'"),
    ],
)
def test_an_option_without_meaning_is_refused(words: tuple[str, ...], why: str, table: Path, capsys: Any) -> None:
    code, _, err = run(capsys, "weights", str(table), *words)
    assert code == 2 and why in err


def test_ala_without_mass_is_null_and_says_why(table: Path, capsys: Any) -> None:
    table.write_text("client,size,score\na,1,1\nb,1,1\n")
    rule = json.loads(run(capsys, "weights", str(table), "--rule", "ala", "--json")[1])["rules"][0]
    assert rule["weights"] == [None, None] and "0/0" in rule["note"]
    code, out, _ = run(capsys, "weights", str(table), "--rule", "ala")
    assert code == 0 and "undefined" in out and "nan" not in out


@pytest.mark.parametrize(
    ("text", "words", "match"),
    [
        ("", (), "is empty"),
        ("client,size\na,1\nb,2\n", (), "no column 'score'"),
        ("client,size,score,size\na,1,0,1\n", (), "two columns 'size'"),
        ("client,size,score\n", (), "holds 0 client"),
        ("client,size,score\na,1,0\n", (), "holds 1 client"),
        ("client,size,score\na,1,0\na,2,0\n", (), "client 'a' is in line 2 and again in line 3"),
        ("client,size,score\na,-1,0\nb,2,0\n", (), "size is '-1'"),
        ("client,size,score\na,many,0\nb,2,0\n", (), "size is 'many'"),
        ("client,size,score\na,1,1.2\nb,2,0\n", (), "score is '1.2'; give a number in 0..1"),
        ("client,size,score\na,1,inf\nb,2,0\n", (), "score is 'inf'"),
        ("client,size,score\na,1\nb,2,0\n", (), "line 2: 2 cells for 3 columns"),
        ("client,size,score\n,1,0\nb,2,0\n", (), "the client has no name"),
        ("client,size,score\na,0,0\nb,0,0\n", (), "every size is 0"),
        ("client,size,score\na,1,\nb,1,0\n", ("--undefined", "error"), "client 'a' has no score"),
        (GOOD, ("--undefined", "previous"), "needs rounds"),
        (GOOD, ("--undefined", "neutrl"), "did you mean 'neutral'"),
        (GOOD, ("--eta", "1"), "eta must be above 1"),
        (GOOD, ("--eta", "x"), "'x' is not a valid float"),
        (GOOD, ("--rule", "fairness"), "rule 'fairness' is unknown"),
        (GOOD, ("--rule", "nowhere:rule"), "cannot be imported"),
        (GOOD, ("--rule", "uniform", "--eta", "2"), "--eta belongs to none of the rules uniform"),
        (GOOD, ("--rule", "fedavg", "--share", "0.1"), "--share belongs to none"),
        (GOOD, ("--share", "0.4"), "share must be below 1/K"),
        (GOOD, ("--share", "0.1", "--eta", "2"), "both given"),
        (GOOD, ("--rule", "fairfed", "--beta", "-1"), "beta must be 0 or more"),
    ],
)
def test_bad_input_gets_one_sentence(table: Path, capsys: Any, text: str, words: tuple[str, ...], match: str) -> None:
    table.write_text(text)
    code, out, err = run(capsys, "weights", str(table), *words)
    assert code == 2 and out == ""
    assert match in err and err.startswith("error: ") and err.count("\n") == 1


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path, capsys: Any) -> None:
    code, _, err = run(capsys, "weights", str(tmp_path / "gone.csv"))
    assert code == 2 and "cannot be read (No such file" in err
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    code, _, err = run(capsys, "weights", str(tmp_path / "binary.csv"))
    assert code == 2 and "is not UTF-8 text" in err


@pytest.mark.parametrize("kind", ["rules", "scores", "metrics", "terms", "attacks", "partitions", "models", "datasets"])
def test_every_catalogue_lists(kind: str, capsys: Any) -> None:
    code, out, _ = run(capsys, "list", kind)
    assert code == 0 and out.strip()
    found = json.loads(run(capsys, "list", kind, "--json")[1])[kind]
    assert found and all(e["name"] and e["what"] for e in found)
    assert len({e["name"] for e in found}) == len(found)


@pytest.mark.parametrize("kind", ["rules", "scores"])
def test_every_rule_and_score_has_its_formula_and_source(kind: str, capsys: Any) -> None:
    for e in json.loads(run(capsys, "list", kind, "--json")[1])[kind]:
        assert e["formula"] and e["source"], e["name"]
        assert "`" not in "".join(e.values())


def test_lists_hold_whole_catalogues(capsys: Any) -> None:
    from equipoise import robust

    rules = {e["name"] for e in json.loads(run(capsys, "list", "rules", "--json")[1])["rules"]}
    assert rules == {n.replace("_", "-") for n in (*weights.__all__, *robust.__all__)} | {"equidistant", "fairfed"}
    fairis = next(e for e in json.loads(run(capsys, "list", "rules", "--json")[1])["rules"] if e["name"] == "fairis")
    assert fairis["formula"] == "w_k = (eta - s_k) / sum_j (eta - s_j)" and fairis["parameters"] == "eta = 1.01"


def listed(capsys: Any, kind: str) -> set[str]:
    return {e["name"] for e in json.loads(run(capsys, "list", kind, "--json")[1])[kind]}


def test_what_is_listed_is_what_a_study_takes(capsys: Any) -> None:
    pytest.importorskip("torch")
    from equipoise import attacks, metrics, objectives
    from equipoise.data import partition

    assert listed(capsys, "metrics") == set(metrics.named.__all__)
    assert listed(capsys, "partitions") == set(partition.__all__)
    assert listed(capsys, "attacks") == {*attacks.__all__, *objectives.bias.__all__}


def test_an_unknown_catalogue_is_refused(capsys: Any) -> None:
    code, _, err = run(capsys, "list", "rule")
    assert code == 2 and "did you mean 'rules'" in err


def test_docstrings_of_both_conventions() -> None:
    from equipoise.cli.catalogue import described

    doc = "Aim high, ``a - b`` of it.\n\nMore words.\n\nSource: a book,\npage 3.\n\nExamples\n--------\n>>> 1\n"
    theirs = described("x", doc)
    assert (theirs.what, theirs.formula, theirs.source) == ("Aim high, a - b of it.", "a - b", "a book, page 3.")
    bare = described("x", "One sentence.")
    assert (bare.what, bare.formula, bare.source) == ("One sentence.", "", "")
    assert described("x", "").what == ""
