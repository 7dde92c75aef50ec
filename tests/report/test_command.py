"""``equipoise report`` on the command line."""

from __future__ import annotations

import pytest
from folder import write_folder

from equipoise.cli import main


def run(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as e:
        main(list(words))
    return e.value.code


def test_report_prints_where_the_page_lies(tmp_path, capsys):
    folder = write_folder(tmp_path / "run", rounds=3, seeds=(42,), odd=False)
    assert run("report", str(folder)) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert run("report", str(folder), "--out", str(tmp_path / "page.html")) == 0
    assert (tmp_path / "page.html").read_bytes() == (folder / "report.html").read_bytes()


def test_a_folder_that_is_none_exits_2_with_one_sentence(tmp_path, capsys):
    assert run("report", str(tmp_path / "none")) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
