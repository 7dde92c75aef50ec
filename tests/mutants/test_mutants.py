"""Planted faults: each is one plausible mistake in a copy of the package, and the tests named beside it must fail.

Snippets are compared as parsed code, so formatting does not matter; one that is no longer found, or found twice,
fails loudly, since a fault that is not planted proves nothing.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.slow

Suite = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that may be broken."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(ROOT / "src" / "equipoise", tmp_path / "equipoise", ignore=ignored))


def run(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the copy in the installed package's place."""
    env = os.environ | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    env.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def suite(package: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests against the copy; stop at the first failure."""
    return run(package, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:randomly", *tests)


def plant(source: str, fault: Fault) -> str:
    """Return the source with the fault in it; an AssertionError if the snippet is not there exactly once."""
    code, right, wrong = (ast.unparse(ast.parse(text)) for text in (source, fault.right, fault.wrong))
    found = code.count(right)
    assert found == 1, f"{fault.file} holds {found} times `{right}`; update the snippet in tests/mutants/faults.py"
    return code.replace(right, wrong)


def test_honest_copy_passes(package: Path) -> None:
    where = run(package, "-c", "import equipoise; print(equipoise.__file__)")
    assert where.stdout.strip() == str(package / "__init__.py")
    for file in {fault.file for fault in FAULTS}:
        (package / file).write_text(ast.unparse(ast.parse((package / file).read_text())))
    passed = suite(package, sorted({test for fault in FAULTS for test in fault.tests}))
    assert passed.returncode == 0, passed.stdout[-3000:]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught(fault: Fault, package: Path) -> None:
    file = package / fault.file
    file.write_text(plant(file.read_text(), fault))
    failed = suite(package, list(fault.tests))
    # 1 is "tests ran and some failed"; 2 to 5 would mean that they did not run.
    assert failed.returncode == 1, f"survived: {fault.name}\n{failed.stdout[-3000:]}{failed.stderr[-2000:]}"


def test_snippets_must_be_there_once() -> None:
    fault = Fault("toy", "toy.py", "return a / b", "return b / a", ())
    assert plant("def f(a, b):\n    return (a\n        / b)  # share", fault) == "def f(a, b):\n    return b / a"
    with pytest.raises(AssertionError, match="0 times"):
        plant("def f(a, b): return a * b", fault)
