"""Folders that are none, are cut, or do not fit the format: one sentence each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folder import write_folder

from equipoise.checks import BadInput
from equipoise.report import page, write


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("good") / "run", rounds=4, seeds=(42,), odd=False)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "run"))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BadInput) as e:
        page(folder)
    said = str(e.value)
    assert "\n" not in said
    for word in words:
        assert word in said, said


def edit(folder: Path, number: int, **changes: object) -> None:
    """Change keys of one line of the journal."""
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **changes})
    path.write_text("\n".join(lines) + "\n")


def test_not_a_folder(tmp_path):
    refused(tmp_path / "nothing", "is no folder", "equipoise run")


def test_not_a_run_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path, "is no run folder", "study.json")


@pytest.mark.parametrize("name", ["study.json", "rounds.jsonl", "summary.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    refused(folder, f"holds no {name}", "--resume")


def test_without_environment_or_clients_the_page_says_so(folder):
    (folder / "environment.json").unlink()
    (folder / "clients.csv").unlink()
    assert "environment.json is missing" in page(folder)


def test_a_torn_last_line_is_left_out_and_told(folder):
    before = page(folder)
    with (folder / "rounds.jsonl").open("a") as f:
        f.write('{"run": "german/uni')
    after = page(folder)
    assert "is torn" in after
    assert "is torn" not in before


def test_rounds_that_are_gone_are_told(folder):
    summary = json.loads((folder / "summary.json").read_text())
    run = summary["rows"][0]["run"]
    lines = [json.loads(x) for x in (folder / "rounds.jsonl").read_text().splitlines()]
    there = sum(x["run"] == run and not x.get("closing", False) for x in lines)
    for said in (there, there + 2):
        summary["rows"][0]["rounds"] = said
        (folder / "summary.json").write_text(json.dumps(summary))
        assert (f"rounds.jsonl holds {there} of the {said} rounds" in page(folder)) == (said != there)


def test_a_broken_line_in_the_middle_is_refused(folder):
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    lines[2] = lines[2][:40]
    path.write_text("\n".join(lines) + "\n")
    refused(folder, "line 3")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"weights": [0.5, 0.5]}, "weights has 2 values for 3 clients"),
        ({"weights": [0.5, 0.5, None]}, "weights"),
        ({"round": "four"}, "round"),
        ({"run": "another"}, "'another'"),
        ({"counts": {"trained": [[[1, 2, 3]]] * 3}}, "counts.trained"),
        ({"counts": {"trained": [[[1, 2, 3, -4], [1, 2, 3, 4]]] * 3}}, "counts.trained"),
        ({"counts": {"trained": [[[1, 2, 3, 4]]] * 3}}, "not of the 2 groups"),
        ({"measured": {"clients": [0, 1], "counts": {"received": [[[1, 2, 3, 4]] * 2]}}}, "1 tables for 2 clients"),
        ({"norms": [1.0, float("nan"), 2.0]}, "norms"),
        ({"round": 0}, "round"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_by_name(folder, changes, word):
    edit(folder, 8, **changes)
    refused(folder, "line", word)


def test_rounds_out_of_order_are_refused(folder):
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(reversed(lines)) + "\n")
    refused(folder, "line", "after")


@pytest.mark.parametrize("name", ["study.json", "summary.json", "environment.json"])
def test_not_strict_json(folder, name):
    (folder / name).write_text('{"rows": [NaN]}')
    refused(folder, name, "not strict JSON")


def test_summary_without_rows_or_of_another_study(folder):
    (folder / "summary.json").write_text("{}")
    refused(folder, "summary.json", "'rows'")
    (folder / "summary.json").write_text('{"rows": []}')
    refused(folder, "no rows")
    (folder / "summary.json").write_text('{"rows": [{"run": "x", "data": "d", "rule": "r", "clients": 2, "seed": 1}]}')
    refused(folder, "'x'", "study.json")


def test_several_problems_are_one_sentence(folder):
    (folder / "summary.json").write_text('{"rows": [{"run": 1, "data": 2, "rule": 3, "clients": "many", "seed": 1}]}')
    refused(folder, "summary.json, row 1", "and 3 more")


def test_output_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write .* choose another --out"):
        write(folder, tmp_path / "file" / "report.html")


def test_jinja2_missing_is_named(folder):
    code = f"""
import sys
sys.modules["jinja2"] = None
from pathlib import Path
from equipoise.checks import MissingExtra
from equipoise.report import page
try:
    page(Path({str(folder)!r}))
except MissingExtra as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("pip install 'equipoise[report]'")


def test_import_needs_neither_torch_nor_jinja2():
    code = "import sys, equipoise.report; print(sorted({'torch', 'jinja2', 'flwr', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
