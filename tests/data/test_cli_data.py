"""The commands ``data`` and ``new``."""

from __future__ import annotations

import tomllib

import pytest

from equipoise.data import TASKS, OwnTable, own_table

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # typer's import of click


def run(capsys, *argv):
    from equipoise.cli import main

    with pytest.raises(SystemExit) as exit_:
        main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return exit_.value.code, out, err


def test_list_names_every_data_set(capsys):
    code, out, _ = run(capsys, "data", "list")
    assert code == 0 and all(name in out for name in TASKS)


def test_show_says_what_must_be_known(capsys):
    code, out, _ = run(capsys, "data", "show", "german")
    assert code == 0
    for words in (
        "favourable outcome: credit granted", "Groemping", "CC BY 4.0", "single or divorced men (A91, A93)",
        "[reference]",
        "1,000 rows read, none dropped", "good credit risk", "female (A92, A95)",
    ):  # fmt: skip
        assert words in out


def test_show_of_what_is_not_here_says_how_to_get_it(capsys):
    code, out, _ = run(capsys, "data", "show", "acsincome")
    assert code == 0 and "equipoise data fetch acsincome" in out and "state: co, al" in out


def test_show_of_images_says_what_the_classes_are(capsys):
    code, out, _ = run(capsys, "data", "show", "digits")
    assert code == 0
    for words in ("10 classes: 0, 1", "no sensitive attribute", "1,797 rows of 64 numbers (1 x 8 x 8)", "one group"):
        assert words in out
    assert "favourable" not in out and "y = 1" not in out


@pytest.mark.parametrize("name", ["har", "cifar10", "mnist", "femnist"])
def test_show_of_signals_that_are_not_here_says_how_to_get_them(name, capsys):
    code, out, _ = run(capsys, "data", "show", name)
    assert code == 0 and f"put it into a folder {name}/" in out
    assert (f"equipoise data fetch {name}" in out) == (name != "femnist")  # which no address gives ready to read


def test_unknown_names_are_one_sentence(capsys):
    code, _, err = run(capsys, "data", "show", "germann")
    assert code == 2 and err == "error: data set 'germann' is unknown; did you mean 'german'?\n"
    code, _, err = run(capsys, "data", "fetch", "acsincome", "--option", "state")
    assert code == 2 and "write --option key=value" in err


def test_new_without_data_starts_from_german(capsys, tmp_path):
    path = tmp_path / "first.toml"
    code, out, _ = run(capsys, "new", path)
    assert code == 0 and str(path) in out
    study = tomllib.loads(path.read_text())
    assert study["data"]["name"] == "german" and study["name"] == "first"
    before = path.read_bytes()
    code, _, err = run(capsys, "new", path)
    assert code == 2 and "exists already" in err and path.read_bytes() == before


TABLE = "id,age,sex,bank,since,defaulted\n" + "\n".join(
    f"{i},{20 + i},{'fm'[i % 2]},bank {i % 3},2020-01-{i + 1:02d},{('no', 'yes')[i % 5 == 0]}" for i in range(30)
)


def test_new_guesses_are_marked_and_work(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TABLE)
    code, out, _ = run(capsys, "new", "st.toml", "--data", "mine.csv")
    text = (tmp_path / "st.toml").read_text()
    section = tomllib.loads(text)["data"]
    assert code == 0 and f"{text.count('# GUESS')} lines in it are guesses" in out
    assert (section["label"], section["positive"], section["favourable_is"]) == ("defaulted", "yes", "negative")
    assert section["client"] == "bank" and tomllib.loads(text)["partition"]["kind"] == "natural"
    assert "#   since: dates such as 2020-01-01" in text
    table = own_table({k: v for k, v in section.items() if k in OwnTable.model_fields})
    assert int(table.y.sum()) == 6 and table.client is not None


def test_new_takes_what_is_given(capsys, tmp_path):
    data = tmp_path / "mine.csv"
    data.write_text(TABLE)
    args = ("--data", data, "--label", "defaulted", "--positive", "no", "--group", "sex", "--client", "bank")
    code, _, _ = run(capsys, "new", tmp_path / "st.toml", *args)
    text = (tmp_path / "st.toml").read_text()
    section = tomllib.loads(text)["data"]
    assert code == 0 and (section["positive"], section["sensitive"], section["client"]) == ("no", ["sex"], "bank")
    for line in text.splitlines():
        if line.startswith(("label", "positive =", "sensitive", "client")):
            assert "GUESS" not in line
    code, _, err = run(capsys, "new", tmp_path / "b.toml", "--data", data, "--label", "defaultd")
    assert code == 2 and "did you mean 'defaulted'" in err and not (tmp_path / "b.toml").exists()
    code, _, err = run(capsys, "new", tmp_path / "b.toml", "--label", "y")
    assert code == 2 and "give --data as well" in err


def test_odd_names_are_written_as_toml(capsys, tmp_path):
    data = tmp_path / 'my "odd" täble.csv'
    data.write_text('"age, in years","Größe 😀",y\n' + "\n".join(f"{i},{'ab'[i % 2]},{i % 2}" for i in range(20)))
    args = ("--data", data, "--group", "age, in years")
    code, _, _ = run(capsys, "new", tmp_path / "st.toml", *args)
    section = tomllib.loads((tmp_path / "st.toml").read_text())["data"]
    assert code == 0 and section["path"] == str(data)
    assert list(section["bins"]) == ["age, in years"] and section["label"] == "y"
