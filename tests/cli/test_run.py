"""``equipoise run`` as a user calls it: exit codes, what goes to which stream, one sentence for each mistake."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

SMALL = ["--set", "rounds=2", "--set", "seeds=42", "--set", "training.steps=3", "--set", "rule=[{name='fairis'}]"]


def equipoise(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "equipoise", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_table_on_standard_output_a_line_per_round_on_standard_error(tmp_path: Path) -> None:
    done = equipoise("run", "demo", *SMALL, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fairis(eta=1.01)" in done.stdout
    assert "attacker" in done.stdout
    assert f"run folder  {Path('runs') / 'demo'}" in done.stdout
    assert done.stderr.splitlines() == [
        "pilot german splitml: round 1 of 2, 1 run",
        "pilot german splitml: round 2 of 2, 1 run",
        "runs german splitml: round 1 of 2, 2 runs",
        "runs german splitml: round 2 of 2, 2 runs",
    ]
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 1000


def test_json_is_all_of_standard_output(tmp_path: Path) -> None:
    done = equipoise("run", "demo", *SMALL, "--json", "--out", "r", folder=tmp_path)
    got = json.loads(done.stdout)
    assert got["folder"] == "r"
    assert {row["rule"] for row in got["rows"]} == {"fairis"}
    assert done.stderr == ""


def test_quiet_says_nothing(tmp_path: Path) -> None:
    done = equipoise("run", "demo", *SMALL, "--quiet", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_plan_runs_nothing(tmp_path: Path) -> None:
    done = equipoise("run", "demo", *SMALL, "--plan", folder=tmp_path)
    assert done.returncode == 0
    assert "german-K3-splitml-fairis(eta=1.01)-disparity(2)-s42" in done.stdout
    assert "client 0: 390 rows" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_ready_studies_are_listed(tmp_path: Path) -> None:
    done = equipoise("run", "--list", folder=tmp_path)
    assert done.returncode == 0
    for name in ("demo", "fairis-poisoning", "fairis-gaming", "inflation", "collusion"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["run", "dmeo"], "'dmeo' is neither a file nor a ready study; did you mean 'demo'?"),
        (["run", "demo", "--set", "ruonds=1"], "did you mean 'rounds'?"),
        (["run", "demo", "--set", "data.name=taiwan", "--set", "data.folder=nowhere"], "nowhere"),
        (["run", "demo", "--ste", "x"], "No such option"),
        (["rnu"], "No such command"),
        (
            ["run", "demo", "--set", "partition.clients=1", "--set", "adversary.members=[0]"],
            "german is dealt to 1 client (client 0); a weight is a share among at least 2",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path, args: list[str], sentence: str) -> None:
    done = equipoise(*args, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_holds_a_run_is_gone_on_with_only_when_asked(tmp_path: Path) -> None:
    first = equipoise("run", "demo", *SMALL, "--quiet", "--out", "r", folder=tmp_path)
    assert first.returncode == 0
    again = equipoise("run", "demo", *SMALL, "--out", "r", folder=tmp_path)
    assert again.returncode == 2
    assert "add --resume" in again.stderr
    before = (tmp_path / "r" / "rounds.jsonl").read_bytes()
    resumed = equipoise("run", "demo", *SMALL, "--out", "r", "--resume", folder=tmp_path)
    assert resumed.returncode == 0
    assert "fairis(eta=1.01)" in resumed.stdout
    assert (tmp_path / "r" / "rounds.jsonl").read_bytes() == before


def test_ctrl_c_leaves_a_whole_folder_and_exits_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "equipoise", "run", "demo", *SMALL, "--set", "rounds=400", "--out", "r"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / "r" / "rounds.jsonl"
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= 5):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "stopped; what was written is whole"
    assert "Traceback" not in err
    assert [json.loads(x)["round"] for x in journal.read_text().splitlines()][:5] == [1, 2, 3, 4, 5]
