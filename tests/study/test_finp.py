"""FinP in studies: what is asked of clients, what they are told, and what the attacks on privacy record."""

from __future__ import annotations

import dataclasses
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


def small(tmp_path: Path, *settings: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run one method for a round: its row of the summary and its lines."""
    (tmp_path / "study.toml").write_text(METHODS)
    made = read(str(tmp_path / "study.toml"), ["rounds=1", "inference.membership=[]", *settings])
    (row,) = execute(plan(made), tmp_path / "run")
    return row, [json.loads(text) for text in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]


def test_epsilon_is_that_of_the_batch_which_auto_means(tmp_path: Path) -> None:
    private = 'rule=[{name="fedavg",private={clip=1.0,noise=2.0}}]'
    (tmp_path / "study.toml").write_text(METHODS)
    spent = {}
    for batch in ("auto", "full", "64"):
        made = plan(read(str(tmp_path / "study.toml"), [private, f"training.batch={batch}"]))
        spent[batch] = made.meta(made.programs[0].runs[0], None)["private"]["epsilons"]
    assert spent["auto"] == spent["full"] != spent["64"]  # 1,437 rows train: few enough for full batches


def test_a_methods_own_proximal_pull_is_the_same_as_the_studys(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(METHODS)

    def terms(*settings: str) -> dict[str, list[float]]:
        (program,) = plan(read(str(tmp_path / "study.toml"), settings)).programs
        return {name: c.tolist() for name, c in program.runs[0].terms.items()}

    own = terms('rule=[{name="fedavg",training={proximal=5.0}}]')
    assert (
        own
        == terms('rule=[{name="fedavg"}]', "training.proximal=5.0")
        == {
            "cross_entropy": [1.0] * 4,
            "proximal": [5.0] * 4,
        }
    )


def test_a_term_is_the_same_with_a_hyphen(tmp_path: Path) -> None:
    _, lines = small(tmp_path, "rule=[{name='ala',scores='deviation',terms={'lipschitz-code'=0.2}}]")
    assert lines[0]["news"]["rho"] == [0.5] * 4


def test_models_that_diverged_accuse_nobody_on_shared_layers(tmp_path: Path) -> None:
    settings = ["model.architecture=splitml", "model.shared=1", 'rule=[{name="uniform"}]', "training.lr=1e30"]
    row, _ = small(tmp_path, *settings)
    assert row["rejected"] == 4 and row["sia"] == pytest.approx(row["sia_chance"]) == 0.25
    assert row["loss_fi"] is None and "no number" in row["undefined"]["loss_fi"]


def test_the_public_rows_are_drawn_from_the_whole_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool lies in the order of the table, and so of the subjects or classes of many a table."""
    from equipoise import data
    from equipoise.attacks import inference
    from equipoise.study import probes

    table = data.load("digits")
    order = np.argsort(table.y, kind="stable")
    by_class = dataclasses.replace(table, x=table.x[order], y=table.y[order])
    monkeypatch.setattr(data, "load", lambda *args, **kwargs: by_class)
    monkeypatch.setattr(probes, "PUBLIC", 60)
    seen: list[Array] = []
    given = inference.nearest_feature_losses

    def nearest(known: Array, of_known: Array, *records: Array) -> Array:
        seen.append(of_known)
        return given(known, of_known, *records)

    monkeypatch.setattr(inference, "nearest_feature_losses", nearest)
    small(tmp_path, "model.architecture=splitml", "model.shared=1", 'rule=[{name="uniform"}]')
    assert len(np.unique(seen[0])) == 10


def test_attacks_that_found_nobody_are_undefined_with_a_reason(tmp_path: Path) -> None:
    settings = ['rule=[{name="uniform"}]', "participation.lost=0.999", 'inference.membership=["loss"]']
    row, _ = small(tmp_path, *settings)
    assert row["sia"] is None and row["mia_loss_auc"] is None
    assert "fewer than two clients" in row["undefined"]["sia"] and "nobody" in row["undefined"]["mia_loss_auc"]


def test_the_last_three_rounds_are_those_and_no_others(tmp_path: Path, lines: dict[str, Any], rows: Any) -> None:
    def accuracy(line: dict[str, Any], moment: str) -> float:
        counts = np.array(line["measured"]["counts"][moment])
        return float((counts[..., 0].sum(1) / counts.sum((1, 2))).mean())

    expected = np.mean([accuracy(line, "received@test") for line in lines["fedavg"][1:]])
    assert rows["fedavg"]["accuracy_last3"] == pytest.approx(expected, rel=1e-12)
    row, (first, last) = small(tmp_path, 'rule=[{name="uniform"}]')
    assert row["accuracy_last3"] == pytest.approx(accuracy(last, "received@test"))  # line 1 received an untrained model
    assert row["train_accuracy_last3"] == pytest.approx(accuracy(first, "trained"))


def test_what_was_measured_in_other_rounds_is_no_mean_of_the_last_three(tmp_path: Path) -> None:
    row, _ = small(tmp_path, 'rule=[{name="uniform"}]', "rounds=5", "evaluation.every=2")
    assert row["accuracy_last3"] is None and "evaluation.every" in row["undefined"]["accuracy_last3"]


@pytest.mark.parametrize(("attack", "shadows"), [("lira_online", 3), ("lira_offline", 2)])
def test_too_few_shadows_are_refused(tmp_path: Path, attack: str, shadows: int) -> None:
    with pytest.raises(BadInput, match=f"gives {attack} no variance"):
        small(tmp_path, f'inference.membership=["{attack}"]', f"inference.shadows={shadows}")


def test_a_delta_that_lets_a_record_be_published_is_noted(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(METHODS)
    for delta, notes in ((1e-5, 0), (0.1, 1)):
        method = f'rule=[{{name="fedavg",private={{clip=1.0,noise=2.0,delta={delta}}}}}]'
        log = plan(read(str(tmp_path / "study.toml"), [method])).log
        assert len([line for line in log if "delta" in line]) == notes


def test_a_term_that_classes_do_not_allow_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs labels 0 and 1, and these rows have 10 classes"):
        small(tmp_path, 'rule=[{name="uniform",terms={disparity=1.0}}]')
    assert not (tmp_path / "run").exists()


def test_one_mistake_in_a_rule_is_counted_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"got 5$"):
        small(tmp_path, 'rule=[{name="ala",scores=5}]')
