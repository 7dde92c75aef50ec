"""What the command line answers before any command runs, whichever click stands behind typer."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from equipoise import cli

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # typer's import of click


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    out, err = capsys.readouterr()
    return stopped.value.code, out, err


@pytest.mark.parametrize("words", [(), ("data",)])
def test_no_command_is_answered_with_the_help_alone(capsys: pytest.CaptureFixture[str], words: tuple[str]) -> None:
    code, out, err = call(capsys, *words)
    assert code == 2
    assert "Usage:" in out
    assert err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == (0, f"equipoise {version('equipoise')}\n", "")


def test_a_wrong_option_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "weights", "--bogus")
    assert (code, out) == (2, "")
    assert err.startswith("error: No such option")


def test_click_is_reached_through_typer_alone() -> None:
    """Typer brings a copy of click since 0.26 and no longer installs it: an import of our own would fail."""
    for file in Path(cli.__file__).parents[1].rglob("*.py"):
        assert not re.search(r"^\s*(import|from) click\b", file.read_text(encoding="utf-8"), re.M), file


def test_help_says_what_an_argument_is(capsys: pytest.CaptureFixture[str]) -> None:
    def at(name: str) -> tuple[int, ...]:
        return tuple(map(int, version(name).split(".")[:2]))

    if at("typer") < (0, 21) and at("click") >= (8, 5):
        pytest.skip("typer 0.20 beside click 8.5 loses the help of arguments; constraints.txt pins an older click")
    assert "ready study" in call(capsys, "run", "--help")[1]
