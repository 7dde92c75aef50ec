"""A user's own functions: where they are looked for, and one sentence for each way in which they cannot be had."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise.checks import BadInput, guarded, outside

FILES = {
    "own_rules.py": (
        "import own_helper\n"
        "THREE = 3\n"
        "def one(scores): return own_helper.ONE\n"
        "def late(scores):\n    import own_late\n    return own_late.TWO\n"
        "def broken(scores): raise KeyError('no\\nsuch key')\n"
    ),
    "own_helper.py": "ONE = 1\n",
    "own_late.py": "TWO = 2\n",
    "own_folder/deep.py": "def one(scores): return 1\n",
    "own_unclosed.py": "def one(",
    "own_script.py": "import sys\nsys.exit(3)\n",
    "own_typo.py": "import math\nmath.hypotenuse\n",
    "own_needs.py": "import own_missing\n",
    "own_path.py": "import sys\nsys.path.remove('')\ndef one(scores): return 1\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder holds modules, and is not on the path."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("where", "value"),
    [("own_rules:one", 1), ("own_rules:late", 2), ("own_folder.deep:one", 1), ("own_path:one", 1)],
)
def test_what_lies_in_the_current_folder_is_found_and_the_path_stays(where: str, value: int) -> None:
    before = list(sys.path)
    assert outside("rule", where, "picks")([0.1]) == value
    assert sys.path == before


def test_the_current_folder_comes_before_the_path(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "own_rules.py").write_text("def one(scores): return 'the wrong one'\n")
    monkeypatch.syspath_prepend(here / "elsewhere")
    assert outside("rule", "own_rules:one", "picks")([0.1]) == 1


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("own_rules", "must be written module:function, such as my_functions:mine"),
        (":one", "must be written module:function, such as my_functions:mine"),
        ("own_rules:", "must be written module:function, such as my_functions:mine"),
        ("own_rules.py:one", "names a file; name its module: own_rules:one"),
        ("./own_rules.py:one", "names a file; name its module: own_rules:one"),
        ("own_folder/deep.py:one", "names a file; name its module: own_folder.deep:one"),
        ("own_folder\\deep:one", "names a file; name its module: own_folder.deep:one"),
        ("/home/me/own_rules.py:one", "names a file; run in its folder and name its module: own_rules:one"),
        ("C:\\me\\own_rules.py:one", "names a file; run in its folder and name its module: own_rules:one"),
        ("../own_rules.py:one", "names a file; run in its folder and name its module: own_rules:one"),
        ("own_gone.deep:one", "(No module named 'own_gone'); run in the folder that holds own_gone, or put it on"),
        ("own_needs:one", "cannot be imported (No module named 'own_missing')"),
        ("own_unclosed:one", "cannot be imported (SyntaxError: '(' was never closed (own_unclosed.py, line 1))"),
        ("own_script:one", "cannot be imported (SystemExit: 3)"),
        ("own_typo:one", "cannot be imported (AttributeError: module 'math' has no attribute 'hypotenuse')"),
        (".own_rules:one", "cannot be imported (TypeError: "),
        ("own_rules:two", ": own_rules has no function 'two'; name one that picks"),
        ("own_rules:THREE", ": own_rules has no function 'THREE'; name one that picks"),
    ],
)
def test_what_is_no_function_is_refused_and_the_path_stays(where: str, sentence: str) -> None:
    before = list(sys.path)
    with pytest.raises(BadInput) as e:
        outside("rule", where, "picks")
    assert str(e.value).startswith(f"rule {where!r}") and sentence in str(e.value)
    assert "\n" not in str(e.value)
    assert sys.path == before


def test_a_function_that_fails_is_named_in_one_sentence() -> None:
    before = list(sys.path)
    with pytest.raises(BadInput) as e:
        outside("rule", "own_rules:broken", "picks")([0.1])
    assert str(e.value) == r"""rule 'own_rules:broken' failed (KeyError: 'no\nsuch key'); mend it"""
    assert sys.path == before


def test_a_sentence_of_the_functions_own_and_a_wrong_kind_of_result() -> None:
    def refuses() -> None:
        raise BadInput("share is 2; give one below 1")

    with pytest.raises(BadInput, match=r"^share is 2; give one below 1$"):
        guarded("rule 'mine:f'", refuses)()
    with pytest.raises(BadInput, match="rule 'mine:f' returned a float; return int"):
        guarded("rule 'mine:f'", float, int)()
