"""FinP in studies: what is asked of clients, what they are told, and what the attacks on privacy record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise import scores, weights
from equipoise.checks import BadInput
from equipoise.metrics import dispersion
from equipoise.study import execute, plan, read
from equipoise.types import Array, Reports

pytest.importorskip("torch")
pytest.importorskip("sklearn")

METHODS = """
name = "finp-small"
seeds = [3]
rounds = 3
[data]
name = "digits"
held_fraction = 0.2
[partition]
over = "labels"
clients = 4
min_size = 30
[model]
architecture = "full"
hidden = [16]
[training]
sampling = "epoch"
epochs = 2
batch = 32
optimiser = "sgd"
lr = 0.1
balance = "none"
[inference]
targets = 20
membership = ["loss", "lira_online", "lira_offline", "cosine"]
shadows = 4
[clip]
norm = "none"
[[rule]]
name = "fedavg"
[[rule]]
name = "ala"
label = "FinP"
scores = "deviation"
terms = { lipschitz_code = 0.2 }
[[rule]]
name = "ala"
label = "mixed up"
scores = "deviation"
terms = { lipschitz_code = 0.2 }
order = "shuffled"
[[rule]]
name = "fedavg"
label = "client only"
terms = { lipschitz_paper = 0.01 }
rho = "rank"
[[rule]]
name = "fedavg"
label = "DP"
private = { clip = 1.0, noise = 2.0 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("finp")
    (here / "study.toml").write_text(METHODS)
    execute(plan(read(str(here / "study.toml"))), here / "run")
    return here / "run"


@pytest.fixture(scope="module")
def lines(folder: Path) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for text in (folder / "rounds.jsonl").read_text().splitlines():
        line = json.loads(text)
        out.setdefault(line["run"].removeprefix("digits-K4-full-").removesuffix("-s3"), []).append(line)
    return out


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["label"] or row["rule"]: row for row in json.loads((folder / "summary.json").read_text())["rows"]}


def reported(line: dict[str, Any]) -> Reports:
    ids = np.array(line["clients"])
    figures = {name: np.array(values, float) for name, values in line["figures"].items()}
    return Reports(ids, np.zeros((len(ids), 1)), np.array(line["sizes"]), figures)


def rho(line: dict[str, Any]) -> Array:
    return scores.deviation("eigenvalue", "trace")(reported(line))


def test_a_client_is_told_and_weighed_by_the_deviation_of_what_it_reported(lines: dict[str, Any]) -> None:
    first, second, third, _ = lines["FinP"]
    assert first["news"]["rho"] == [0.5] * 4
    for before, after in ((first, second), (second, third)):
        assert after["news"]["rho"] == pytest.approx(rho(before))
        assert before["scores"] == pytest.approx(rho(before))
        assert before["weights"] == pytest.approx(weights.ala(rho(before), before["sizes"]))
    assert len({tuple(x["news"]["rho"]) for x in (first, second, third)}) == 3


def test_shuffled_order_gives_every_client_the_rho_of_another(lines: dict[str, Any]) -> None:
    first, second, _, _ = lines["mixed_up"]
    order = np.random.default_rng(3).choice(4, 4, replace=False)
    assert second["news"]["rho"] == pytest.approx(rho(first)[order])
    assert second["news"]["rho"] != pytest.approx(rho(first))
    assert "for reproduction only" in first["note"]


def test_the_client_only_ablation_weighs_by_rows_and_tells_another_score(lines: dict[str, Any]) -> None:
    first, second, *_ = lines["client_only"]
    assert second["weights"] == pytest.approx(weights.fedavg([0.5] * 4, second["sizes"]))
    assert second["news"]["rho"] == pytest.approx(scores.rank("eigenvalue", "trace")(reported(first)))


def test_a_rule_that_needs_no_curvature_asks_for_none(lines: dict[str, Any]) -> None:
    assert all(line["figures"] == {} and line["news"] == {} for line in lines["fedavg"])


def test_dispersion_and_level_follow_from_the_recorded_shares(lines: dict[str, Any], rows: dict[str, Any]) -> None:
    for name in ("fedavg", "FinP"):
        found = [line["probed"]["source"]["loss"] for line in lines[name] if line.get("probed")]
        assert len(found) == 3
        for one in found:
            spread = dispersion(one["success"])
            assert (one["fi"], one["cov"], one["eod"]) == pytest.approx((spread.fi, spread.cov, spread.eod))
            assert one["overall"] == pytest.approx(np.average(one["success"], weights=one["targets"]))
            assert one["chance"] == 0.25 and one["targets"] == [20] * 4
        assert rows[name]["sia"] == pytest.approx(np.mean([one["overall"] for one in found]))
        assert rows[name]["sia_max"] == pytest.approx(np.max([one["overall"] for one in found]))
        assert rows[name]["sia_fi"] == pytest.approx(np.mean([one["fi"] for one in found]))
        own = [np.argmin(np.array(one["loss_matrix"])[:, k]) for one in found for k in range(4)]
        assert np.mean(np.array(own) == np.tile(range(4), 3)) > 0.5  # a model knows its own client's records best


def test_every_membership_attack_judges_members_against_held_out_rows(lines: dict[str, Any]) -> None:
    last = lines["fedavg"][2]["probed"]["membership"]
    assert list(last) == ["cosine", "lira_offline", "lira_online", "loss"]
    assert "membership" not in lines["fedavg"][1]["probed"]
    for attack, figures in last.items():
        known = [k for k in range(4) if figures["auc"][k] is not None]
        assert known == ([1, 2, 3] if attack == "cosine" else [0, 1, 2, 3])  # the attacker knows the first client
        assert all(figures["members"][k] > 0 and figures["others"][k] > 0 for k in known)
        assert all(0.2 < figures["auc"][k] < 1 for k in known)


def test_dp_sgd_states_what_it_spent_and_trains_apart(rows: dict[str, Any], folder: Path) -> None:
    runs = {r["label"]: r for r in json.loads((folder / "study.json").read_text())["runs"]}
    private = runs["DP"]["private"]
    assert rows["DP"]["epsilon"] == private["epsilon"] == max(private["epsilons"]) > 0
    assert "add" in private["adjacency"] and len(private["epsilons"]) == 4
    assert rows["fedavg"].get("epsilon") is None and runs[None]["private"] is None
    assert rows["DP"]["accuracy"] < rows["fedavg"]["accuracy"]


def test_resumed_after_a_stop_the_bytes_are_those_of_an_unbroken_run(folder: Path, tmp_path: Path) -> None:
    made = plan(read(str(folder.parent / "study.toml")))

    class Stop(Exception):
        pass

    def stop(step: Any) -> None:
        if step.round == 2:
            raise Stop

    with pytest.raises(Stop):
        execute(made, tmp_path / "again", progress=stop)
    execute(plan(read(str(folder.parent / "study.toml"))), tmp_path / "again", resume=True)
    for name in ("rounds.jsonl", "summary.json", "clients.csv", "study.json", "checkpoint.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_on_shared_layers_the_server_attacks_with_a_head_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(METHODS)
    settings = ["model.architecture=splitml", "model.shared=1", "inference.membership=[]", "rounds=1"]
    made = read(str(tmp_path / "study.toml"), [*settings, 'rule=[{name="uniform"}]'])
    (row,) = execute(plan(made), tmp_path / "run")
    assert row["sia_attack"] == "probe_head"
    assert row["sia_oracle"] > 0.25 and row["sia_nearest"] > 0
    with pytest.raises(BadInput, match="needs the whole of each client's model"):
        plan(read(str(tmp_path / "study.toml"), ["model.architecture=splitml", "model.shared=1"]))


def test_a_huge_claim_silences_the_liar_under_deviation_and_moves_nobody_under_absolute(tmp_path: Path) -> None:
    settings = ["rounds=2", "inference=none", 'adversary.kind=["claim_huge","claim_median"]', "adversary.strength=1e6"]
    (tmp_path / "study.toml").write_text(METHODS)
    methods = 'rule=[{name="ala",scores="deviation"},{name="ala",scores="absolute"}]'
    made = execute(plan(read(str(tmp_path / "study.toml"), [*settings, methods])), tmp_path / "run")
    by = {(row["adversary"], row["run"].split("(")[1].split(")")[0]): row for row in made if row["adversary"]}
    huge, median = by["claim_huge", "deviation"], by["claim_median", "deviation"]
    assert huge["attacker_weight_mean"] == pytest.approx(0, abs=1e-3)
    assert huge["honest_score_mean"] == pytest.approx(1 / 3, abs=0.01)
    assert median["attacker_weight_mean"] > 0.25
    honest = {row["control"] for row in made if row["control"]}
    free = next(row for row in made if row["run"] in honest and "absolute" in row["run"])
    assert free["attacker_weight_mean"] is None
    assert by["claim_huge", "absolute"]["attacker_weight_mean"] < 0.01
