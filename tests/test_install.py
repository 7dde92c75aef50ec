"""What an installed package promises: a silent, quick import, a core that lives without extras, and all its files."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import textwrap
import time
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from .report.folder import write_folder

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = {
    "train": ["torch", "safetensors"],
    "report": ["jinja2"],
    "tables": ["pyarrow", "xlrd"],
    "flower": ["flwr"],
    "dev": ["pandas", "scipy", "fairlearn", "hypothesis", "sklearn"],
}
BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def python(code: str, *, absent: list[str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in which some packages are not to be had."""
    code = BLOCK.format(absent=set(absent or [])) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=cwd)


def command_line(*words: str) -> str:
    return f"from equipoise.cli import main; main({list(words)!r})"


@pytest.mark.parametrize("module", ["equipoise", "equipoise.weights", "equipoise.metrics", "equipoise.scores"])
def test_import_is_silent_and_light(module: str) -> None:
    seen = python(f"import sys, {module}; print('\\n'.join(sys.modules))")
    assert seen.returncode == 0, seen.stderr
    assert seen.stderr == ""
    heavy = {"torch", "pandas", "pyarrow", "scipy", "flwr", "jinja2", "safetensors", "sklearn"}
    assert not heavy & set(seen.stdout.split())
    assert python(f"import {module}").stdout == ""


def test_import_takes_less_than_three_tenths_of_a_second() -> None:
    def seconds(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    assert min(seconds("import equipoise") - seconds("pass") for _ in range(5)) < 0.3


def test_command_line_starts_without_extras() -> None:
    absent = [module for modules in EXTRAS.values() for module in modules]
    for words in (["--help"], ["list", "rules"], ["data", "list"]):
        shown = python(command_line(*words), absent=absent)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout and not shown.stderr


def test_command_line_help_imports_nothing_heavy() -> None:
    shown = python(
        """
        import atexit, sys
        atexit.register(lambda: print("heavy:", sorted({"torch", "pandas", "pyarrow", "scipy"} & set(sys.modules))))
        """
        + command_line("--help")
    )
    assert "heavy: []" in shown.stdout, shown.stderr


@pytest.mark.parametrize(
    ("words", "absent", "extra"),
    [
        ("run demo --out here", "torch", "train"),
        ("run demo --out here", "safetensors", "train"),
        ("report folder", "jinja2", "report"),
        ("audit t.parquet --label y --prediction p --group g", "pyarrow", "tables"),
        ("new study.toml --data t.parquet", "pyarrow", "tables"),
    ],
)
def test_missing_extra_is_named_with_its_command(words: str, absent: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    write_folder(tmp_path / "folder")
    said = python(command_line(*words.split()), absent=[absent], cwd=tmp_path)
    assert said.stderr == f"error: {absent} is not installed; install it with: pip install 'equipoise[{extra}]'\n"
    assert said.returncode == 2


def test_module_runs_as_the_command_does() -> None:
    shown = subprocess.run([sys.executable, "-m", "equipoise", "--help"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "audit" in shown.stdout and "weights" in shown.stdout


def test_version_is_said_once() -> None:
    import equipoise

    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert equipoise.__version__ == stated == version("equipoise")
    assert f"## {stated}" in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_pin_every_dependency_once() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = [re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines]
    assert len(pinned) == len(set(pinned))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [d for e in project["optional-dependencies"].values() for d in e]
    names = {re.match(r"[\w-]+", d)[0].lower() for d in wanted} - {"equipoise"}  # type: ignore[index]
    assert names <= set(pinned)
    assert "torch==2.13.0" in lines


@pytest.mark.slow
def test_wheel_and_sdist_hold_every_file_and_the_wheel_works_alone(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {name.removeprefix("src/") for name in tracked.stdout.split()}
    assert files

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as z:
        assert files <= set(z.namelist())
        z.extractall(tmp_path / "site")
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as t:
        held = {name.split("/", 1)[1] for name in t.getnames() if "/" in name}
    assert {"src/" + name for name in files} <= held
    assert {"LICENSE", "README.md", "constraints.txt", "Makefile", "tests/test_install.py"} <= held

    site = str(tmp_path / "site")
    for words in (["data", "list"], ["list", "rules"]):
        shown = python(f"import sys; sys.path.insert(0, {site!r})\n{command_line(*words)}", cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
    code = f"import sys; sys.path.insert(0, {site!r}); import equipoise; print(equipoise.__file__)"
    where = python(code, cwd=tmp_path)
    assert where.stdout.startswith(site)
