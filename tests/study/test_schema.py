"""The study file: what may stand in it, and one clear sentence for what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from equipoise.checks import BadInput
from equipoise.study import check, read, ready

GERMAN: dict[str, Any] = {"data": {"name": "german"}}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"ruonds": 3}, "'ruonds' is no key of a study; did you mean 'rounds'?"),
        ({"data": {"nmae": "german"}}, r"'nmae' is no key of \[data\]; did you mean 'name'\?"),
        ({"data": {}}, "data needs either name .* or path"),
        ({"data": {"name": "german", "path": "x.csv"}}, "data needs either name .* or path"),
        ({"data": {"name": "german", "label": "y"}}, "data.label belongs to a table of your own: give path too"),
        ({"partition": {"alpha": 0}}, "partition.alpha: input should be greater than 0; got 0"),
        ({"partition": {"clients": 0}}, "partition.clients"),
        ({"training": {"batch": 0}}, "training.batch must be at least 1, got 0"),
        ({"training": {"lr": "fast"}}, "training.lr: .*got 'fast'"),
        ({"clip": {"norm": -1}}, "clip.norm must be above 0, got -1"),
        ({"clip": {"norm": "calibrate"}}, "clip.norm.*'calibrated'.*got 'calibrate'"),
        ({"adversary": {"strength": 0}}, "adversary.strength must be above 0, got 0"),
        ({"adversary": {"members": [0, 0]}}, r"adversary.members must be distinct client numbers from 0, got \[0, 0\]"),
        ({"score": {"undefined": "nought"}}, "score.undefined.*'neutral'.*got 'nought'"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1.5]}, "seeds.*got 1.5"),
        ({"rule": []}, "rule"),
        ({"rounds": 0}, "rounds: .*greater than or equal to 1; got 0"),
        ({"name": "../etc"}, "name: .*got '../etc'"),
    ],
)
def test_what_may_not_stand_there_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as e:
        check({**GERMAN, **wrong}, "my.toml")
    assert str(e.value).startswith("my.toml: ")
    assert "\n" not in str(e.value)


def test_a_value_or_a_list_makes_an_axis() -> None:
    one, many = check(GERMAN, "a"), check({**GERMAN, "seeds": [1, 2], "partition": {"clients": [3, 5]}}, "b")
    assert (one.seeds, one.partition.clients) == ((42,), (3,))
    assert (many.seeds, many.partition.clients) == ((1, 2), (3, 5))


@pytest.mark.parametrize("name", sorted(ready()))
def test_ready_studies_are_valid_and_say_what_they_are(name: str) -> None:
    study = read(name)
    assert study.name == name
    assert study.description.endswith((".", "?"))


def test_set_changes_values_adds_sections_and_reaches_the_rules_that_have_the_key() -> None:
    study = read(
        "demo",
        [
            "rounds=2",
            "seeds=[7,8]",
            "rule.eta=1.5",
            "training.optimiser=sgd",
            'data.name="adult"',
            "participation.fraction=0.5",
        ],
    )
    assert (study.rounds, study.seeds, study.training.optimiser, study.data.name) == (2, (7, 8), "sgd", ("adult",))
    assert study.participation.fraction == 0.5
    assert [(r.model_extra or {}).get("eta") for r in study.rule] == [None, None, None, 1.5]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("rounds", "is no assignment; write --set section.key=value"),
        ("rounds.x=1", "rounds is no table of the study"),
        ("rule.gamma=1", r"no \[\[rule\]\] of the study has 'gamma'"),
        ("rouns=3", "did you mean 'rounds'"),
        ("clip.norm=x", "clip.norm"),
    ],
)
def test_a_set_that_reaches_nothing_is_refused(setting: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        read("demo", [setting])


def test_a_file_that_is_none_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="neither a file nor a ready study; did you mean 'fairis-poisoning'"):
        read("fairis-poisonin")
    for content in (b"name = ", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(BadInput, match="is not TOML"):
            read(str(tmp_path / "bad.toml"))
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(BadInput, match="data is missing"):
        read(str(tmp_path / "empty.toml"))


def test_a_study_without_a_name_takes_the_files(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "\ufeff"  # a byte order mark, as some editors write one
        '[data]\nname = "german"\n[rule]\nname = "uniform"\n'
    )
    study = read(str(tmp_path / "mine.toml"))
    assert study.name == "mine"
    assert [r.name for r in study.rule] == ["uniform"]


def test_rules_may_be_set_by_name_alone(tmp_path: Path) -> None:
    assert [r.name for r in read("demo", ["rule=krum"]).rule] == ["krum"]
    assert [r.model_extra for r in read("demo", ["rule=krum", "rule.f=2"]).rule] == [{"f": 2}]
    assert [r.name for r in read("demo", ['rule=["median", "fairis"]']).rule] == ["median", "fairis"]
    path = tmp_path / "short.toml"
    path.write_text('rule = "fedavg"\ndata.name = "german"\n')
    assert [r.name for r in read(str(path)).rule] == ["fedavg"]
    with pytest.raises(BadInput, match="rule"):
        read("demo", ["rule=[1]", "rule.f=2"])


def test_the_adversary_can_be_taken_out() -> None:
    assert read("demo").adversary is not None
    assert read("demo", ["adversary=none"]).adversary is None


@pytest.mark.parametrize(
    ("setting", "home"), [("clients=5", "partition.clients"), ("training.alpha=1", "partition.alpha")]
)
def test_a_key_in_the_wrong_place_is_led_home(setting: str, home: str) -> None:
    with pytest.raises(BadInput, match=f"did you mean '{home}'"):
        read("demo", [setting])
