"""The commands and examples of README and docs run as they stand, in the order of the page and in one empty folder.

Blocks marked ``bash`` and ``python`` are run; ``console`` and ``text`` are to be read. Lines that start with
``make`` are left out: they set up the very environment that runs this test, and `.ci/run` runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCS = sorted((README.parent / "docs").rglob("*.md"))
PAGES = [README, *(p for p in DOCS if re.search(r"^```(bash|python)$", p.read_text(), re.MULTILINE))]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the (language, text) of all fenced blocks."""
    return [(found[1], found[2]) for found in FENCE.finditer(page.read_text())]


def script(text: str) -> str:
    """Return a bash block without what only a checkout can do."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"(\$ )?make\b", line))


def test_readme_opens_with_the_two_commands() -> None:
    first = next(text for language, text in blocks(README) if language == "bash")
    assert "make demo" in first and "make test" in first


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(tmp_path: Path, page: Path) -> None:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    ran = 0
    for language, text in blocks(page):
        if language == "bash" and script(text).strip():
            command = ["bash", "-euo", "pipefail", "-c", script(text)]
        elif language == "python":
            command = [sys.executable, "-W", "error", "-c", text]
        else:
            continue
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        ran += 1
        if done.returncode:
            pytest.fail(f"a {language} block of {page.name} fails:\n{text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    assert ran, f"{page.name} has no block that runs"


def test_pages_name_files_that_exist() -> None:
    for page in [README, *DOCS]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
