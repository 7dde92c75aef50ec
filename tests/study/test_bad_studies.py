"""Hostile studies, functions and models: one sentence at set-up, or a run that ends and says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise.checks import BadInput
from equipoise.records import Journal
from equipoise.study import check, execute, plan, read

OWN = """
rounds = 2
[data]
path = "own.csv"
label = "y"
favourable = "granted"
favourable_is = "positive"
sensitive = ["sex"]
[training]
steps = 2
[clip]
norm = "none"
"""

MINE = """
import numpy as np
from torch import nn
from dataclasses import replace

def part_nan(scores, sizes):
    return np.where(np.arange(len(sizes)) == 0, np.nan, 1 / len(sizes))
def negative(scores, sizes):
    return np.where(np.arange(len(sizes)) == 0, -1.0, 2 / (len(sizes) - 1))
def ones(scores, sizes):
    return np.ones(len(sizes))
def longer(scores, sizes):
    return np.full(len(sizes) + 1, 1 / len(sizes))
def words(scores, sizes):
    return "all to me"
def claims_less(members, strength):
    return lambda reports, broadcast: replace(reports, figures={n: v[1:] for n, v in reports.figures.items()})
def claims_nothing(members, strength):
    return lambda reports, broadcast: replace(reports, figures={})
def claims_words(members, strength):
    return lambda reports, broadcast: replace(
        reports, figures={n: np.full(len(v), "flat") for n, v in reports.figures.items()}
    )
def broken(*args, **kwargs):
    raise KeyError("no\\nsuch key")
def scalar(counts):
    return 0.3
def twice(label, group, *, clients, seed):
    return [np.arange(len(label))] * clients
def few(label, group, *, clients, seed):
    return [np.array([k]) for k in range(clients)]
def number(members, strength):
    return 5
def silent(members, strength):
    return lambda reports, broadcast: None
def largest(members, strength):
    def tamper(reports, broadcast):
        updates = reports.updates.copy()
        updates[np.isin(reports.clients, members)] = np.finfo(updates.dtype).max
        return replace(reports, updates=updates)
    return tamper
def frozen(features):
    return nn.Linear(features, 1).requires_grad_(False)
class Untrainable(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layer = nn.Linear(features, 1)
    def forward(self, x):
        if self.training:
            raise RuntimeError("not in training")
        return self.layer(x)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table, a study of it and a module of the user's own."""
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(18, 80)},{'FM'[rng.integers(2)]},b{i % 3},{rng.integers(2)}" for i in range(120)]
    (tmp_path / "own.csv").write_text("\n".join(["age,sex,bank,y", *rows]) + "\n")
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "mine_of_bad_studies.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rounds": True}, "rounds: input should be a whole number; got True"),
        ({"rounds": "3"}, "rounds: input should be a whole number; got '3'"),
        ({"rounds": 10**22}, "rounds: .*1000000"),
        ({"clip": {"norm": True}}, "clip.norm.*number.*got True"),
        ({"clip": {"norm": float("inf")}}, "clip.norm.*finite number"),
        ({"adversary": {"strength": float("inf")}}, "adversary.strength.*finite number; got inf"),
        ({"training": {"proximal": float("inf")}}, "training.proximal: input should be a finite number"),
        ({"training": {"batch": True}}, "training.batch: .*got True"),
        ({"training": {"batch": 10**9}}, r"training.steps = 60 batches of training.batch = 1000000000 rows"),
        ({"training": {"momentum": 0.5}}, 'training.momentum = 0.5 belongs to optimiser = "sgd"'),
        ({"data": 5}, "data: input should be a table of keys and values; got 5"),
        ({"data": {"path": "x", "sensitive": []}}, "data.sensitive is an empty list"),
        ({"data": {"path": "x", "sensitive": ["a", "a"]}}, "data.sensitive names 'a' twice"),
        ({"data": {"path": "x", "options": {"part": "both"}}}, "data.options belongs to built-in data sets"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as e:
        check({"data": {"name": "german"}, **wrong}, "my.toml")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (['rule.eta="x"'], "eta of the rule fairis is 'x'; give a number"),
        (["rule.eta={a=1}"], "eta of the rule fairis is .*; give a number"),
        (["rule.eta=[]"], "eta is an empty list"),
        (["rule.honest=0.5"], "honest = 0.5 belongs to share"),
        (["rule.name=fairfed", 'rule.floor="no"'], "floor of the rule fairfed is 'no'; give true or false"),
        (["rule.name=fairfed", "rule.moment=x"], "moment 'x' is unknown; take 'received' or 'trained'"),
        (["rule.name=krum", "rule.f=1.5"], "f of the rule krum is 1.5; give a whole number"),
        (["rule.name=joint", 'rule.scores=["deviaton"]'], "score 'deviaton' is unknown; did you mean 'deviation'"),
        (["rule.name=fairis", 'rule.scores=["rank","deviation"]'], "only joint takes several"),
        (["rule.scores=accuracy"], "high where all is well"),
        (["rule.terms={lipshitz_code=1.0}"], "term 'lipshitz_code' is unknown; did you mean 'lipschitz_code'"),
        (["rule.private={clip=1.0,noise=1.0}", "training.batch=8", "rule.training={sampling='epoch'}"], "poisson"),
        (["model.hidden=[-3]"], "hidden holds -3; give the width"),
        (["model.hidden=5"], "hidden of the model mlp is 5; give a list"),
        (["rule.training={lr=-1.0}"], "training of the rule fairis: lr "),
        (["rule.training={lrr=1.0}"], "'lrr' is no key of it; did you mean 'lr'"),
        (["training.epochs=2"], "training.epochs = 2 belongs to sampling"),
        (["model.hiden=[3]"], "'hiden' is no parameter of the model mlp; did you mean 'hidden'"),
        (["curvature.budgt=3"], "is no parameter of the curvature"),
        (['inference.membership=["loss"]'], "membership needs the whole of each client"),
        (['inference.membership=["loss"]', "model.architecture=full"], "set data.held_fraction"),
        (["inference.source=1", "model.architecture=silo"], "with nothing shared .silo. it sees nothing"),
        (["rule.private={clip=1.0,noise=1.0}", "rule.terms={align=0.4}"], "'align' cannot be computed without the cl"),
        (["rule.private={clip=1.0,noise=1.0}", "adversary.kind=disparity"], "'disparity' cannot be computed without"),
        (["rule.terms={'mine:broken'=1.0}"], "term 'mine_of_bad_studies:broken' failed .KeyError.*; mend it"),
        (["rule.name=mine:part_nan"], "gave a client the weight nan; a weight is a share"),
        (["rule.name=mine:negative"], "gave a client the weight -1; a weight is a share"),
        (["rule.name=mine:ones"], "weights that sum to 2; divide them"),
        (["rule.name=mine:longer"], r"shape \(3,\) for 2 clients"),
        (["rule.name=mine:words"], "returned a str; return one number per client"),
        (["rule.name=mine:broken"], "rule 'mine_of_bad_studies:broken' failed .KeyError.*; mend it"),
        (["score.metric=mine:scalar"], r"metric scalar returned shape \(\) for counts of 3 clients"),
        (["score.metric=mine:broken"], "score.metric 'mine_of_bad_studies:broken' failed"),
        (["score.on=held"], "set data.held_fraction"),
        (["partition.kind=mine:twice"], "handed out 288 rows, 96 of them different"),
        (["partition.kind=mine:few"], "handed out 3 rows, 3 of them different"),
        (["partition.kind=mine:broken"], "partition.kind 'mine_of_bad_studies:broken' failed"),
        (["partition.clients=1"], "is dealt to 1 client .*a weight is a share among at least 2"),
        (["partition.clients=1000000000"], "1000000000 clients x 1 = 1000000000 > 96 examples"),
        (["adversary.kind=mine:number"], "made a int; it turns members"),
        (["model.name=mine:broken"], "model 'mine_of_bad_studies:broken' failed .KeyError"),
        (["model.name=mine:frozen"], "without a parameter to train"),
        (["model.name=mine:Untrainable"], "does not take rows of .* features: not in training"),
        (["model.hidden=[100000,100000]"], "10,000,[0-9,]* parameters each .* need about"),
        (["data.test_fraction=0.001"], "data.test_fraction = 0.001 holds out none of the 120 rows"),
    ],
)
def test_what_would_fail_later_is_refused_before_anything_is_written(
    here: Path, settings: list[str], sentence: str
) -> None:
    settings = [s.replace("mine:", "mine_of_bad_studies:") for s in settings]
    with pytest.raises(BadInput, match=sentence) as e:
        plan(read("own.toml", settings))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", ["claims_less", "claims_nothing", "claims_words"])
def test_claims_that_are_no_numbers_are_laid_to_the_attack_that_made_them(here: Path, kind: str) -> None:
    settings = ["rule.name=ala", "rule.scores=deviation", f"adversary.kind=mine_of_bad_studies:{kind}"]
    with pytest.raises(BadInput, match=f"{kind}' claims (eigenvalue|trace) of shape .*one number for each"):
        execute(plan(read("own.toml", settings)), here / "run")


def test_a_list_of_scores_is_one_joint_rule(here: Path) -> None:
    names = ["equal_opportunity_difference", "statistical_parity_difference"]
    made = plan(read("own.toml", ["rule.name=joint", f"rule.scores={json.dumps(names)}"]))
    assert [p.rule.scores for g in made.programs for p in g.runs] == [tuple(names)]


def test_an_attack_that_gives_no_reports_is_named(here: Path) -> None:
    with pytest.raises(BadInput, match="returned a NoneType; return Reports"):
        execute(plan(read("own.toml", ["adversary.kind=mine_of_bad_studies:silent"])), here / "r")


def test_the_largest_finite_update_does_not_end_up_in_the_model(here: Path) -> None:
    study = read("own.toml", ["adversary.kind=mine_of_bad_studies:largest", "rounds=4", "rule.name=fedavg"])
    rows = execute(plan(study), here / "r")
    assert rows[0]["accuracy"] is not None or rows[0]["kept_rounds"] > 0
    lines = [json.loads(x) for x in (here / "r" / "rounds.jsonl").read_text().splitlines()]
    assert any(x.get("kept") == "the aggregate is not finite" for x in lines) or rows[0]["rejected"]


def test_a_model_that_diverged_has_no_figures_and_the_run_ends(here: Path) -> None:
    rows = execute(plan(read("own.toml", ["training.lr=1e30", "adversary.kind=disparity"])), here / "r")
    for row in rows:
        assert row["rejected"] == 6
        assert row["kept_rounds"] == 2
        assert [row[k] for k in ("accuracy", "honest_eod", "pooled_eod", "spd", "accuracy_gap")] == [None] * 5
        assert row["undefined"].keys() >= {"accuracy", "honest_eod", "pooled_eod", "spd"}
    assert rows[0]["undefined"]["attacker_weight_mean"] == "the model was kept in every round"


def test_a_silo_sends_nothing_to_clip_and_nothing_to_be_pulled_to(here: Path) -> None:
    settings = ['model.architecture=["splitml","silo"]', "clip.norm=calibrated", "training.proximal=0.1"]
    rows = execute(plan(read("own.toml", settings)), here / "r")
    assert [r["clip_norm"] is None for r in rows] == [False, True]


def test_a_measurement_that_nobody_could_make_is_undefined(here: Path) -> None:
    settings = ["participation.lost=0.99", "evaluation.model=trained", "adversary.kind=disparity"]
    rows = execute(plan(read("own.toml", settings)), here / "r")
    assert rows[0]["accuracy"] is None
    assert rows[0]["accuracy_gap"] is None
    assert "not measured" in rows[0]["undefined"]["attacker_accuracy"]


def test_other_data_than_those_begun_with_are_refused(here: Path) -> None:
    made = plan(read("own.toml"))
    execute(made, here / "r")
    before = (here / "r" / "rounds.jsonl").read_bytes()
    (here / "own.csv").write_text((here / "own.csv").read_text().replace("b1,1", "b1,0", 1))
    with pytest.raises(BadInput, match=r"the data 'own' are not those that .* was begun with"):
        execute(plan(read("own.toml")), here / "r", resume=True)
    assert (here / "r" / "rounds.jsonl").read_bytes() == before


def test_a_folder_killed_while_it_was_begun_is_begun_again(here: Path) -> None:
    (here / "r").mkdir()
    (here / "r" / "study.json.part").write_text('{"stu')
    assert len(execute(plan(read("own.toml")), here / "r", resume=True)) == 1


def test_two_processes_do_not_write_to_one_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "rounds.jsonl"), pytest.raises(BadInput, match="another process is writing to"):
        Journal(tmp_path / "rounds.jsonl")
    with Journal(tmp_path / "rounds.jsonl"):
        pass
