"""From a study to a run folder: the numbers are those of the rules, and the bytes survive crashes."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from equipoise import study, weights
from equipoise.checks import BadInput
from equipoise.metrics import accuracy, equal_opportunity_difference
from equipoise.records import summarise, table

SMALL = [
    "rounds=3",
    "seeds=[42,7]",
    "training.steps=8",
    "training.batch=32",
    "model.hidden=[8,4]",
    "rule=[{name='fairis',eta=[1.01,1.5]},{name='fedavg'},{name='krum',f=0}]",
]
KEPT = ("study.json", "rounds.jsonl", "clients.csv", "summary.json", "checkpoint.safetensors")


def small(*more: str) -> study.Plan:
    return study.plan(study.read("demo", [*SMALL, *more]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "small"
    study.execute(small(), out)
    return out


def lines(folder: Path, **having: Any) -> list[dict[str, Any]]:
    found = [json.loads(x) for x in (folder / "rounds.jsonl").read_text().splitlines()]
    return [x for x in found if all(x[k] == v for k, v in having.items())]


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "study.json").read_text())  # type: ignore[no-any-return]


def rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "summary.json").read_text())["rows"]  # type: ignore[no-any-return]


def bits(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in KEPT}


def test_the_grid_is_complete_and_each_run_ends_with_its_closing_line(folder: Path) -> None:
    runs = {r["run"]: r for r in document(folder)["runs"]}
    assert len([r for r in runs.values() if r["pilot"]]) == 2
    assert len(rows(folder)) == 2 * 4 * 2
    for name in runs:
        mine = lines(folder, run=name)
        assert [x["round"] for x in mine] == [1, 2, 3, 4]
        assert [x["closing"] for x in mine] == [False, False, False, True]


def test_recorded_weights_are_the_rule_applied_to_recorded_scores(folder: Path) -> None:
    for r in document(folder)["runs"]:
        for x in lines(folder, run=r["run"], closing=False):
            if r["rule"] == "fairis":
                expected = weights.fairis(x["scores"], x["sizes"], eta=r["parameters"]["eta"])
            elif r["rule"] == "fedavg":
                expected = weights.fedavg(np.zeros(3), x["sizes"])
            else:
                assert "weights" not in x
                continue
            assert x["weights"] == expected.tolist()


def test_recorded_scores_are_the_gap_of_recorded_counts(folder: Path) -> None:
    for x in lines(folder, closing=False):
        if "raw_scores" in x and "trained" in x["counts"]:
            gaps = equal_opportunity_difference(table(x["counts"]["trained"]))
            assert [None if np.isnan(g) else g for g in gaps.tolist()] == x["raw_scores"]


def test_the_clip_is_the_percentile_of_the_pilots_norms(folder: Path) -> None:
    for seed in (42, 7):
        pilot = f"pilot-german-K3-splitml-s{seed}"
        norms = [n for x in lines(folder, run=pilot, closing=False) for n in x["norms"]]
        for r in rows(folder):
            if r["seed"] == seed:
                assert r["clip_norm"] == np.percentile(norms, 90)
    assert {x["clip_norm"] for x in lines(folder) if x["run"].startswith("pilot")} == {None}


def test_displacement_is_bounded_by_weight_times_clip(folder: Path) -> None:
    for x in lines(folder, closing=False):
        if "bounds" in x:
            assert np.allclose(x["bounds"], np.array(x["weights"]) * x["clip_norm"])


def test_the_summary_follows_from_the_lines_alone(folder: Path) -> None:
    recomputed = summarise(lines(folder), document(folder)["runs"])
    assert json.loads(json.dumps(recomputed)) == rows(folder)


def test_the_gap_in_accuracy_is_measured_against_the_control(folder: Path) -> None:
    for r in rows(folder):
        if not r["adversary"]:
            continue
        final = {
            name: table(lines(folder, run=name, closing=True)[0]["measured"]["counts"]["received@test"])
            for name in (r["run"], r["control"])
        }
        acc = {name: float(accuracy(c)[0]) for name, c in final.items()}
        assert r["accuracy_gap"] == abs(acc[r["run"]] - acc[r["control"]])


def test_every_rule_of_a_seed_sees_the_same_rows(folder: Path) -> None:
    for seed in ("s42", "s7"):
        sizes = {json.dumps(x["sizes"]) for x in lines(folder, closing=False) if x["run"].endswith(seed)}
        assert len(sizes) == 1


def test_the_adversary_and_its_control_start_alike_and_the_adversary_is_less_fair(folder: Path) -> None:
    for r in rows(folder):
        if r["adversary"]:
            attacked, control = (lines(folder, run=n, round=1)[0] for n in (r["run"], r["control"]))
            assert (
                attacked["counts"]["trained"][1:] == control["counts"]["trained"][1:]
                if "trained" in attacked["counts"]
                else True
            )
            assert attacked["norms"][0] != control["norms"][0]
            assert attacked["norms"][1:] == control["norms"][1:]


def test_the_client_table_holds_every_client_and_round(folder: Path) -> None:
    with (folder / "clients.csv").open() as f:
        got = list(csv.DictReader(f))
    assert len(got) == len(lines(folder)) * 3
    one = next(
        r
        for r in got
        if r["run"].startswith("german-K3-splitml-fairis(eta=1.01)-disparity")
        and r["round"] == "2"
        and r["client"] == "1"
    )
    line = lines(folder, run=one["run"], round=2)[0]
    assert float(one["weight"]) == line["weights"][1]
    assert one["status"] == "ok"
    assert {r["status"] for r in got if r["round"] == "4"} == {"closing"}


def test_same_study_same_bytes_whatever_the_company(folder: Path, tmp_path: Path) -> None:
    study.execute(small(), tmp_path / "again")
    assert bits(tmp_path / "again") == bits(folder)
    study.execute(small("seeds=7", "rule=[{name='fedavg'}]"), tmp_path / "alone")
    alone = lines(tmp_path / "alone")
    assert [x for x in lines(folder) if x["run"] in {a["run"] for a in alone}] == alone


def test_a_finished_run_is_not_computed_again(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    began = time.monotonic()
    steps: list[study.Step] = []
    assert study.execute(small(), tmp_path / "copy", resume=True, progress=steps.append) == rows(folder)
    assert all(not s.lines for s in steps)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("at", [1, 3, 4, 6])
def test_stopped_after_any_step_and_resumed_the_bytes_are_equal(folder: Path, tmp_path: Path, at: int) -> None:
    class Stop(Exception):
        pass

    seen = 0

    def stop(step: study.Step) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            raise Stop

    with pytest.raises(Stop):
        study.execute(small(), tmp_path / "r", progress=stop)
    with (tmp_path / "r" / "rounds.jsonl").open("ab") as f:
        f.write(b'{"torn": ')
    study.execute(small(), tmp_path / "r", resume=True)
    assert bits(tmp_path / "r") == bits(folder)


def test_lines_ahead_of_the_checkpoint_are_compared_not_written_twice(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "r")
    (tmp_path / "r" / "checkpoint.safetensors").unlink()
    study.execute(small(), tmp_path / "r", resume=True)
    assert bits(tmp_path / "r") == bits(folder)
    (tmp_path / "r" / "checkpoint.safetensors").unlink()
    changed = (folder / "rounds.jsonl").read_text().replace('"round": 2', '"round": 9', 1)
    (tmp_path / "r" / "rounds.jsonl").write_text(changed)
    with pytest.raises(BadInput, match="differs from what is computed again"):
        study.execute(small(), tmp_path / "r", resume=True)


def test_a_folder_that_holds_something_else_is_left_alone(folder: Path, tmp_path: Path) -> None:
    before = bits(folder)
    with pytest.raises(BadInput, match="already holds this run; add --resume"):
        study.execute(small(), folder)
    with pytest.raises(BadInput, match="holds another run"):
        study.execute(small("rounds=4"), folder, resume=True)
    assert bits(folder) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("do not lose")
    with pytest.raises(BadInput, match="is not empty and holds no run of ours"):
        study.execute(small(), tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="choose another --out"):
        study.execute(small(), tmp_path / "file")


def test_a_damaged_checkpoint_is_refused_and_nothing_is_lost(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "r")
    path = tmp_path / "r" / "checkpoint.safetensors"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(bytes(raw))
    journal = (tmp_path / "r" / "rounds.jsonl").read_bytes()
    with pytest.raises(BadInput, match="is damaged"):
        study.execute(small(), tmp_path / "r", resume=True)
    assert (tmp_path / "r" / "rounds.jsonl").read_bytes() == journal


def test_killed_in_the_middle_and_resumed_the_bytes_are_equal(folder: Path, tmp_path: Path) -> None:
    """SIGKILL to a real process, twice, at moments that nobody chose."""
    command = [sys.executable, "-m", "equipoise", "run", "demo", "--out", str(tmp_path / "r"), "--resume", "--quiet"]
    command += [x for s in SMALL for x in ("--set", s)]
    for wanted in (12, 30):
        process = subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        journal = tmp_path / "r" / "rounds.jsonl"
        while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= wanted):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, check=False).returncode == 0
    assert bits(tmp_path / "r") == bits(folder)


def test_partial_participation_and_drop_outs_are_recorded(tmp_path: Path) -> None:
    out = tmp_path / "r"
    more = [
        "seeds=3",
        "partition.clients=6",
        "participation.fraction=0.5",
        "participation.lost=0.3",
        "participation.late=0.3",
        "rule=[{name='fairis'}]",
        "rounds=6",
    ]
    study.execute(small(*more), out)
    found = [x for x in lines(out, closing=False) if not x["run"].startswith("pilot")]
    assert {len(x["asked"]) for x in found} == {3}
    assert any(x["missing"] for x in found)
    assert any(x.get("late") for x in found)
    for x in found:
        assert sorted([*x["clients"], *x["missing"]]) == x["asked"]
    with (out / "clients.csv").open() as f:
        assert {r["status"] for r in csv.DictReader(f)} == {"ok", "late", "missing", "closing"}


@pytest.mark.parametrize("architecture", ["full", "silo", "splitml"])
def test_architectures_share_what_they_should(tmp_path: Path, architecture: str) -> None:
    from safetensors.numpy import load_file

    out = tmp_path / "r"
    study.execute(
        small("seeds=42", f"model.architecture={architecture}", "clip.norm=4.0", "rule=[{name='fairis'}]"), out
    )
    run = f"german-K3-{architecture}-fairis(eta=1.01)-disparity(2)-s42"
    arrays = load_file(out / "checkpoint.safetensors")
    shared = sorted(n.removeprefix(f"{run}/model/") for n in arrays if n.startswith(f"{run}/model/"))
    layers = {"full": 3, "silo": 0, "splitml": 2}[architecture]
    assert len(shared) == 2 * layers
    final = table(lines(out, run=run, closing=True)[0]["measured"]["counts"]["received@test"])
    assert (final[0] == final[1]).all() == (architecture == "full")


def test_a_client_update_inflated_tenfold_is_clipped(tmp_path: Path) -> None:
    out = tmp_path / "r"
    study.execute(
        small(
            "seeds=42",
            "rule=[{name='uniform'}]",
            "adversary={kind='inflate',strength=10.0}",
            "clip.norm=['none','calibrated']",
        ),
        out,
    )
    free, clipped = (
        lines(out, run=f"german-K3-splitml-uniform-clip({c})-inflate(10)-s42", round=1)[0]
        for c in ("none", "calibrated")
    )
    control = lines(out, run="german-K3-splitml-uniform-clip(none)-control-s42", round=1)[0]
    assert free["norms"][0] == pytest.approx(10 * control["norms"][0], rel=1e-5)
    assert free["clipped"] == [False] * 3
    assert clipped["clipped"][0]
    assert clipped["bounds"][0] == pytest.approx(clipped["clip_norm"] / 3)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["rule=[{name='krum',f=1}]"], "Krum needs .*5 clients, got 3"),
        (["rule=[{name='fairis',eta=1.0}]"], "eta must be above 1"),
        (["rule=[{name='fariis'}]"], "rule 'fariis' is unknown; did you mean 'fairis'"),
        (["rule=[{name='fairis',share=0.4}]"], "share must be below 1/K"),
        (["rule=[{name='fairis',eta=1.1,share=0.1}]"], "give eta, or the share"),
        (["rule=[{name='fairis'},{name='fairis'}]"], "has the run .* twice"),
        (["adversary.members=[3]"], "names client 3, but there are 3 clients"),
        (["adversary.members=[0,1,2]"], "leave at least one honest"),
        (["partition.kind=natural"], "needs a client column"),
        (["partition.clients=1000"], "1000 clients x 1 = 1000 > 800 examples"),
        (["data.sensitive=sxe"], "did you mean 'sex'"),
        (["data.name=germann"], "did you mean 'german'"),
        (["score.metric=accuracy"], "is high where all is well"),
        (["score.metric=equal_oportunity_difference"], "did you mean 'equal_opportunity_difference'"),
        (["adversary.kind=dispairty"], "did you mean 'disparity'"),
        (["partition.kind=dirichlett"], "did you mean 'dirichlet'"),
        (["partition.kind=equal", "partition.beta=1"], "'beta' is no parameter of the partition equal"),
        (["score.undefined=error", "seeds=9", "partition.clients=12"], "undefined"),
        (["model.name=nowhere:net"], "nowhere"),
        (["rule=[{name='nowhere:rule'}]"], "cannot be imported"),
    ],
)
def test_what_cannot_work_is_refused_at_set_up(tmp_path: Path, settings: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as e:
        study.execute(small(*settings), tmp_path / "r")
    assert "\n" not in str(e.value)


def test_a_rule_and_a_model_of_ones_own_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np, torch\n"
        "def least(scores, sizes, *, power=2.0):\n    mass = (1.5 - scores) ** power\n    return mass / mass.sum()\n"
        "def net(features, *, hidden):\n    first = torch.nn.Linear(features, hidden[1])\n"
        "    last = torch.nn.Linear(hidden[1], 1)\n"
        "    return torch.nn.Sequential(first, torch.nn.Tanh(), last)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "r"
    study.execute(
        small("seeds=42", "rule=[{name='mine:least',power=3.0}]", "model.name='mine:net'", "model.shared=1"), out
    )
    run = next(r for r in document(out)["runs"] if r["rule"] == "mine:least" and r["adversary"])
    x = lines(out, run=run["run"], round=2)[0]
    mass = (1.5 - np.array(x["scores"])) ** 3
    assert np.allclose(x["weights"], mass / mass.sum())
