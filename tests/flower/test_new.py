"""The app that `equipoise flower new` writes: short, without torch, and taken by Flower as it is."""

from __future__ import annotations

import io
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from equipoise import cli
from equipoise.checks import BadInput
from equipoise.flower.new import package_of, resolved, write_app
from equipoise.flower.processes import program
from equipoise.flower.server import DEFAULTS
from equipoise.flower.up import QUIET
from equipoise.study import Study, check, plan, read, ready

pytestmark = [
    pytest.mark.filterwarnings("ignore:'click:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # flwr's call of pathspec
]

GERMAN = check({"name": "three-banks", "data": {"name": "german"}, "adversary": {"strength": 2.0}}, "study.toml")


def test_flower_takes_the_app_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "three-banks"
    write_app(folder, GERMAN)
    config, warnings = load_and_validate(folder / "pyproject.toml")
    assert not warnings
    assert config["tool"]["flwr"]["app"]["config"] == {**DEFAULTS, "out": "runs/three-banks"}
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))) as bundle:
        held = set(bundle.namelist())
    own = {f"three_banks/{n}" for n in ("__init__.py", "server_app.py", "client_app.py", "study.toml")}
    assert held == own | {"pyproject.toml", "README.md", ".info/CONTENT"}


def test_flower_builds_it(tmp_path: Path) -> None:
    write_app(tmp_path / "three-banks", GERMAN)
    done = subprocess.run(
        [program("flwr"), "build", "--app", str(tmp_path / "three-banks")],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**QUIET, "FLWR_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("equipoise.three-banks.0-1-0.*.fab"))) == 1


def test_torch_is_not_among_its_dependencies(tmp_path: Path) -> None:
    write_app(tmp_path / "three-banks", GERMAN)
    project = tomllib.loads((tmp_path / "three-banks" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["flwr>=1.42,<1.43"]


def test_its_code_can_be_read_in_a_minute_and_runs(tmp_path: Path) -> None:
    write_app(tmp_path / "three-banks", GERMAN)
    for name, kind in (("server_app", "ServerApp"), ("client_app", "ClientApp")):
        path = tmp_path / "three-banks" / "three_banks" / f"{name}.py"
        assert len(path.read_text().splitlines()) < 15
        held: dict[str, object] = {"__file__": str(path)}
        exec(compile(path.read_text(), path, "exec"), held)
        assert type(held["app"]).__name__ == kind


@pytest.mark.parametrize("name", sorted(ready()))
def test_a_resolved_study_is_the_study(tmp_path: Path, name: str) -> None:
    study = read(name)
    (tmp_path / "study.toml").write_text(resolved(study))
    assert read(str(tmp_path / "study.toml")) == study


def test_every_setting_survives(tmp_path: Path) -> None:
    mine: Study = check(
        {
            "name": "all",
            "data": {"name": "german", "options": {"a": 1}},
            "rule": [{"name": "fairis", "eta": [1.01, 1.1], "terms": {"lipschitz_code": 0.05}, "label": "mine (a=1)"}],
            "clip": {"norm": ["none", 2.5]},
            "training": {"batch": "full", "optimiser": "sgd", "momentum": 0.9},
        },
        "x",
    )  # fmt: skip
    (tmp_path / "study.toml").write_text(resolved(mine))
    again = read(str(tmp_path / "study.toml"))
    assert again.model_dump() == mine.model_dump()


def test_the_resolved_study_has_the_plan_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(resolved(GERMAN))
    assert plan(read(str(tmp_path / "study.toml"))).resolved() == plan(GERMAN).resolved()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "three-banks"
    folder.mkdir()
    write_app(folder, GERMAN)  # an empty one is not
    with pytest.raises(BadInput, match=r"three-banks is not empty; choose another folder"):
        write_app(folder, GERMAN)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_app", "'my_app' cannot name a Flower app; take a folder name of letters, digits and hyphens"),
        ("3banks", "cannot name a Flower app"),
        ("a" * 33, "cannot name a Flower app"),
        ("equipoise", "'equipoise' is already the name of a Python package"),
        ("Random", "'random' is already the name"),
        ("class", "'class' is already the name"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        write_app(tmp_path / name, GERMAN)
    assert not (tmp_path / name).exists()


def test_the_package_follows_the_folder() -> None:
    assert package_of("Three-Banks") == "three_banks"


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    out, err = capsys.readouterr()
    return stopped.value.code, out, err


def test_the_command_writes_the_study_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "three-banks"
    code, out, err = call(capsys, "flower", "new", str(folder), "--study", "demo", "--set", "rounds=2")
    assert (code, err) == (0, "")
    assert out.count("wrote ") == 6 and "README.md says how to run it" in out
    assert read(str(folder / "three_banks" / "study.toml")) == read("demo", ["rounds=2"])


def test_the_command_refuses_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "three-banks").mkdir()
    (tmp_path / "three-banks" / "mine.txt").touch()
    code, out, err = call(capsys, "flower", "new", str(tmp_path / "three-banks"), "--study", "demo")
    assert (code, out) == (2, "") and "is not empty; choose another folder" in err
    code, out, err = call(capsys, "flower", "new", str(tmp_path / "other"), "--study", "dmeo")
    assert (code, out) == (2, "") and "did you mean 'demo'?" in err


def test_without_flwr_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [m for m in sys.modules if m == "flwr" or m.startswith(("flwr.", "equipoise.flower"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    code, out, err = call(capsys, "flower", "new", str(tmp_path / "three-banks"), "--study", "demo")
    assert (code, out) == (2, "")
    assert err == "error: flwr is not installed; install it with: pip install 'equipoise[flower]'\n"
