"""Noise at the server in a study: the record says what it has spent, and what it would not hide is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise import accounting
from equipoise.checks import BadInput
from equipoise.study import Step, execute, plan, read

pytest.importorskip("torch")
pytest.importorskip("dp_accounting")

STUDY = """
rounds = 4
[data]
path = "own.csv"
label = "y"
favourable = "granted"
favourable_is = "positive"
sensitive = ["sex"]
[partition]
clients = 4
alpha = 5.0
[training]
steps = 3
[[rule]]
name = "fairis"
eta = 1.3
central = { clip = 0.5, noise = 0.2, delta = 1e-3, adjacency = "replace" }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    random = np.random.default_rng(0)
    rows = [f"{random.choice(['f', 'm'])},{random.normal():.3f},{random.integers(2)}" for _ in range(200)]
    (tmp_path / "own.csv").write_text("\n".join(["sex,x,y", *rows]) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "mine_of_central.py").write_text("def mine(scores, sizes):\n    return sizes / sizes.sum()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(here: Path, *settings: str, out: str = "run", **more: Any) -> list[dict[str, Any]]:
    return execute(plan(read("study.toml", settings)), here / out, **more)


def lines(here: Path, out: str = "run") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (here / out / "rounds.jsonl").read_text().splitlines()]


def test_what_was_spent_stands_in_the_record_and_the_clip_is_its_own(here: Path) -> None:
    (row,) = run(here)
    (about,) = json.loads((here / "run" / "study.json").read_text())["runs"]  # no pilot, though clips are calibrated
    expected = accounting.central(0.2, 4, 1e-3, adjacency="replace")
    assert about["central"]["epsilon"] == row["central_epsilon"] == expected.epsilon
    assert (about["central"]["statement"], row["central_delta"]) == (expected.statement, 1e-3)
    assert about["central"]["adjacency"].startswith("replace all") and about["private"] is None
    assert row["clip_norm"] == about["clip_norm"] == 0.5 and "central=0.5*0.2" in row["run"]
    trained = [line for line in lines(here) if not line["closing"]]
    for line in trained:
        assert line["noise_sd"] == pytest.approx([2 * 0.2 * 1.3 * 0.5, 0.2 * 1.3 * (4 / 3) ** 0.5])
        assert sum(line["weights"]) == pytest.approx(1)
    assert row["kept_rounds"] == sum("kept" in line for line in trained) < 4


def test_a_fixed_share_of_the_clients_is_no_poisson_sample_and_spends_as_much_as_all(here: Path) -> None:
    made = [plan(read("study.toml", s)) for s in ((), ("participation.fraction=0.5",))]
    all_of_them, half = (p.meta(p.programs[0].runs[0], None)["central"] for p in made)
    assert half == all_of_them and half["rate"] == 1 and "counts as part of each" in half["sampling"]


def test_with_no_noise_nothing_is_promised_and_the_rule_is_the_plain_one(here: Path) -> None:
    (row,) = run(here, "rule.central={clip=0.5,noise=0.0}")
    assert row["central_epsilon"] is None and "noise" in row["undefined"]["central_epsilon"]
    plain = "rule=[{name='fairis',eta=1.3}]"
    (other,) = run(here, plain, "clip.norm=0.5", out="plain")
    assert other.get("central_epsilon") is None and other["accuracy"] == row["accuracy"]
    ours, theirs = lines(here), lines(here, "plain")
    np.testing.assert_allclose([x["weights"] for x in ours[:-1]], [x["weights"] for x in theirs[:-1]], rtol=1e-4)


def test_the_same_study_has_the_same_bytes_also_when_it_was_interrupted(here: Path) -> None:
    run(here)

    def stop(step: Step) -> None:
        if step.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(here, out="broken", progress=stop)
    run(here, out="broken", resume=True)
    for name in ("rounds.jsonl", "summary.json", "checkpoint.safetensors"):
        assert (here / "run" / name).read_bytes() == (here / "broken" / name).read_bytes()


def test_secret_noise_is_another_each_time(here: Path) -> None:
    secret = "rule.central={clip=0.5,noise=0.2,secret=true}"
    run(here, secret, out="a")
    run(here, secret, out="b")
    first, second = lines(here, "a"), lines(here, "b")
    assert first[0]["measured"] == second[0]["measured"] and first[2]["measured"] != second[2]["measured"]


@pytest.mark.parametrize(
    "rule",
    [
        "{name='uniform',central={clip=1.0,noise=1.0}}",
        "{name='fedavg',central={clip=1.0,noise=1.0,most_rows=50}}",
        "{name='fairis',share=0.1,central={clip=1.0,noise=1.0}}",
        "{name='fairis-n',central={clip=1.0,noise=1.0,most_rows=50}}",
        "{name='ala',scores='absolute',central={clip=1.0,noise=1.0}}",
        "{name='joint',power=0.5,scores=['absolute','equal_opportunity_difference'],"
        "central={clip=1.0,noise=1.0,most_rows=50}}",
        "{name='fairis',terms={lipschitz_code=0.1},rho='absolute',central={clip=1.0,noise=1.0}}",
    ],
)
def test_every_rule_of_the_family_runs(here: Path, rule: str) -> None:
    (row,) = run(here, f"rule=[{rule}]", "rounds=1")
    assert row["central_epsilon"] > 0


@pytest.mark.parametrize(
    ("rule", "settings", "says"),
    [
        ("{name='krum',f=1,%s}", (), "krum does not weigh each client by n.a .eta - s."),
        ("{name='fairfed',%s}", (), "fairfed does not weigh"),
        ("{name='equidistant',%s}", (), "equidistant does not weigh"),
        ("{name='mine_of_central:mine',%s}", (), "does not weigh each client"),
        ("{name='ala',scores='deviation',%s}", (), "judges a client by what others report"),
        ("{name='ala',scores='rank',%s}", (), "judges a client by what others report"),
        ("{name='joint',scores=['absolute','rank'],%s}", (), "judges a client by what others report"),
        ("{name='uniform',terms={lipschitz_code=0.1},%s}", (), "judges a client by what others report"),
        ("{name='ala',scores='absolute',order='shuffled',%s}", (), "mixes the clients' figures up"),
        ("{name='fedavg',%s}", (), "give most_rows, the most that count"),
        ("{name='fairis',central={clip=1.0,noise=1.0,most_rows=5}}", (), "most_rows = 5 belongs to weights by rows"),
        ("{name='fairis',eta=0.9,%s}", (), "eta must be above 1"),
        ("{name='fairis',%s}", ("score.undefined=error",), "lets one client end the run"),
        ("{name='fairis',%s}", ("model.architecture=silo",), "a silo shares nothing"),
        ("{name='fairis',%s}", ("adversary.kind=gaming",), "gaming clients are told F_global"),
        ("{name='fairis',central={noise=1.0}}", (), r"central\.clip is missing"),
        ("{name='fairis',central={clip=0.0,noise=1.0}}", (), "greater than 0"),
        ("{name='fairis',central={clip=1.0,noise=1.0,share=1.0}}", (), "less than 1"),
        ("{name='fairis',central={clip=1.0,noise=1.0,adjacency='swap'}}", (), "'add' or 'replace'"),
        ("{name='fairis',central={clip=1.0,noise=1.0,nose=1.0}}", (), "'nose' is no key"),
    ],
)
def test_what_noise_would_not_hide_is_refused_before_a_run(here: Path, rule: str, settings: Any, says: str) -> None:
    method = rule.replace("%s", "central={clip=1.0,noise=1.0}")
    with pytest.raises(BadInput, match=says) as e:
        run(here, f"rule=[{method}]", *settings)
    assert "\n" not in str(e.value) and not (here / "run").exists()


def test_counters_of_batch_normalisation_are_refused(here: Path) -> None:
    (here / "normed_of_central.py").write_text(
        "from torch import nn\n"
        "def normed(features):\n    return nn.Sequential(nn.Linear(features, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))\n"
    )
    with pytest.raises(
        BadInput, match=r"buffer '1.num_batches_tracked' is a whole number that central noise is not on"
    ):
        run(here, "model.name=normed_of_central:normed", "model.architecture=full")


def test_a_delta_that_lets_a_client_be_published_is_noted(here: Path) -> None:
    for delta, notes in ((1e-3, 0), (0.25, 1)):
        log = plan(read("study.toml", [f"rule.central={{clip=1.0,noise=1.0,delta={delta}}}"])).log
        assert len([line for line in log if "delta" in line and "below 1 / 4" in line]) == notes
