"""What a page says of privacy: who is exposed, what is told and reported, what DP-SGD promises."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folder import dump, write_folder
from test_page import read
from test_plots import points

from equipoise.accounting import NOT_COVERED
from equipoise.checks import BadInput
from equipoise.report import ink, page
from equipoise.report.plots import Series, heat, lines

SHARES = ([0.2, 0.9, None], [0.4, 0.7, None])
"""Share of each client's records that was traced to it, in the two probed rounds."""
LOSSES = [[1.0, 2.0, 5.0], [4.0, 0.5, None], [1.5, 3.0, 3.5]]
"""Rows are owners and columns models, as in the records; client 2's records betray client 0."""
PRIVATE = {
    "epsilon": 7.25,
    "delta": 1e-05,
    "adjacency": "add or remove one record of the client",
    "sampling": "Poisson",
    "steps": 40,
    "rate": 0.8,
    "accountant": "PLD",
    "statement": "",
    "clip": 1.5,
    "noise": 1.1,
    "epsilons": [3.5, 7.25, 5.0],
}


def alter(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change study.json or summary.json in place."""
    value = json.loads((folder / name).read_text())
    change(value)
    dump(folder / name, value)


def private_folder(path: Path, classes: int = 2) -> Path:
    """Write a run of a FinP method and one of FedAvg, both attacked by the laboratory in rounds 2 and 4."""
    rules = [("fedavg", {}), ("fairis", {"eta": 1.01})]
    folder = write_folder(path, rules=rules, seeds=(42,), rounds=4, odd=False, attacked=False)

    def study(value: dict[str, Any]) -> None:
        for about in value["runs"]:
            about |= {"classes": classes, "favourable": "" if classes > 2 else about["favourable"]}
            if about["rule"] == "fairis":
                about |= {"label": "FinP, code", "scores": ["deviation"], "terms": {"lipschitz_code": 0.05}}
            else:
                about |= {"label": "DP-SGD", "private": PRIVATE}

    def summary(value: dict[str, Any]) -> None:
        for row in value["rows"]:
            row |= {"label": "FinP, code" if row["rule"] == "fairis" else "DP-SGD", "sia": 0.55, "sia_chance": 0.25}
            if classes > 2:
                missing = dict.fromkeys(("honest_eod", "pooled_eod", "spd"))
                row |= {**missing, "undefined": dict.fromkeys(missing, "no favourable outcome: 10 classes")}

    alter(folder, "study.json", study)
    alter(folder, "summary.json", summary)
    written = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in written:
        t = line["round"]
        if line["closing"]:
            continue
        if t in (2, 4):
            found = {"clients": [0, 1, 2], "success": SHARES[t // 2 - 1], "overall": 0.55, "chance": 0.25}
            worse = {**found, "success": [0.0, 0.0, 0.0], "chance": 0.9}
            line["probed"] = {"source": {"loss": {**found, "loss_matrix": LOSSES, "loss_fi": 0.875}, "nearest": worse}}
        if "fairis" in line["run"]:
            line["figures"] = {
                "eigenvalue": [1.0, 2.0, None if t == 3 else -3.0],
                "trace": [10.0, 20.0, 30.0],
                "trace_error": [1.0, 2.0, None],
            }
            line["news"] = {"rho": [0.5, 0.5, 0.5] if t == 1 else [0.25, 0.75, 1.0]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return private_folder(tmp_path_factory.mktemp("private"))


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return page(folder)


def run(text: str, rule: str = "fairis") -> str:
    """Return the part of the page about one run."""
    return next(r for r in re.findall(r'<details class="run".*?</details>', text, re.S) if f"<code>german/{rule}" in r)


def chart(text: str, title: str) -> tuple[str, ET.Element]:
    """Return heading and picture of the figure with this title."""
    figure = next(f for f in re.findall(r"<figure>.*?</figure>", text, re.S) if f"<b>{title}</b>" in f)
    caption, svg = re.findall(r"<figcaption>(.*?)</figcaption>(.*)</figure>", figure, re.S)[0]
    return caption, ET.fromstring(svg)


def scale(tree: ET.Element, anchor: str, axis: str) -> Callable[[float], float]:
    """Return the map from figures to places that the numbers of an axis state."""
    group = next(e for e in tree.iter("g") if e.get("class") == "tick" and e.get("text-anchor") == anchor)
    shift = 3.5 if axis == "y" else 0.0  # text stands on its line
    at = [(float(str(e.text).replace("−", "-")), float(e.get(axis, "")) - shift) for e in group]
    (a, first), (b, last) = at[0], at[-1]
    return lambda value: first + (value - a) / (b - a) * (last - first)


def numbers(path: str) -> list[float]:
    return [float(v) for v in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", path)]


def test_the_exposed_stand_first_with_mean_and_worst_round_and_the_chance_line_at_chance(text):
    caption, tree = chart(run(text), "Records traced to their owner")
    assert "left is good" in caption
    assert "least loss" in caption
    place = scale(tree, "middle", "x")
    names = [e.text for e in tree.iter("text") if e.get("class") == "rowname"]
    assert names == ["bank 1", "bank 0", "bank 2"]  # worst first, undefined last
    discs = [numbers(e.get("d", ""))[0] + 4 for e in tree.iter("path") if "a4 4" in e.get("d", "")]
    assert discs == pytest.approx([place(0.8), place(0.3)], abs=0.3)
    bars = [numbers(e.get("d", "")) for e in tree.iter("path") if e.get("class") == "bar"]
    assert [(a, b) for a, _, b in bars] == [
        pytest.approx((place(0.8), place(0.9)), abs=0.3),
        pytest.approx((place(0.3), place(0.4)), abs=0.3),
    ]
    (line,) = [numbers(e.get("d", "")) for e in tree.iter("path") if e.get("class") == "ref"]
    assert line[0] == pytest.approx(place(0.25), abs=0.3)
    assert "chance 0.250" in ET.tostring(tree, encoding="unicode")


def test_a_client_without_targets_has_an_open_mark_and_no_number(text):
    _, tree = chart(run(text), "Records traced to their owner")
    assert [e.get("class") for e in tree.iter("circle")] == ["open"]
    assert "bank 2: undefined" in str(tree.get("aria-label"))
    _, tree = chart(run(text), "Loss on each other's records".replace("'", "&#39;"))
    assert [e.get("class") for e in tree.iter("circle")] == ["open"]


Cell = tuple[int, int]


def cells(tree: ET.Element, count: int) -> tuple[dict[Cell, str], list[Cell], list[Cell]]:
    """Return the tone of every cell (row, column), the cells with a diamond, and those with an open mark."""
    frame = next(e for e in tree.iter("path") if e.get("class") == "frame")
    left, top, side = numbers(frame.get("d", ""))[:3]

    def cell(x: float, y: float) -> tuple[int, int]:
        return round((y - top) / side - 0.5), round((x - left) / side - 0.5)

    tones = {}
    for e in tree.iter("path"):
        if e.get("fill") and f"v{ink.n(side)}" in e.get("d", "") and f"h{ink.n(side)}" in e.get("d", ""):
            for x, y in re.findall(r"M([\d.]+) ([\d.]+)", e.get("d", "")):
                tones[cell(float(x) + side / 2, float(y) + side / 2)] = str(e.get("fill"))
    diamonds = [numbers(e.get("d", "")) for e in tree.iter("path") if e.get("class") == "least"]
    holes = [cell(float(e.get("cx", "")), float(e.get("cy", ""))) for e in tree.iter("circle")]
    assert len(tones) + len(holes) == count * count
    return tones, [cell(d[0], d[1] + 5) for d in diamonds], holes


def test_the_loss_matrix_has_owners_as_rows_and_low_losses_dark():
    tones, least, holes = cells(ET.fromstring(heat(list("abc"), LOSSES, label="x", row="of", column="by")), 3)
    assert tones[1, 1] == ink.shade(0)  # 0.5, the least of all
    assert tones[0, 2] == ink.shade(1)  # 5.0: model c on the records of a, not the other way round
    assert tones[2, 0] == ink.shade((1.5 - 0.5) / 4.5) != tones[0, 2]
    assert least == [(0, 0), (1, 1), (2, 0)]
    assert holes == [(1, 2)]
    light = [sum(int(tone[i : i + 2], 16) for i in (1, 3, 5)) for tone in map(ink.shade, (0, 0.25, 0.5, 0.75, 1))]
    assert light == sorted(light)


def test_the_page_shows_the_matrix_of_the_last_probed_round_in_the_order_of_exposure(text):
    caption, tree = chart(run(text), "Loss on each other&#39;s records")
    assert "dark diagonal is bad" in caption
    assert "FI(Loss) is 0.875" in caption
    assert "in round 4" in str(tree.get("aria-label"))
    tones, least, holes = cells(tree, 3)
    assert [e.text for e in tree.iter("text") if e.get("class") == "rowname"] == ["bank 1", "bank 0", "bank 2"]
    assert holes == [(0, 2)]  # model of bank 2 on the records of bank 1
    assert tones[1, 2] == ink.shade(1)  # model of bank 2 on the records of bank 0
    assert least == [(0, 0), (1, 1), (2, 1)]
    said = [str(e[0].text).split("\n") for e in tree.iter("rect") if e.get("class") == "hit"]
    assert said[0] == [
        "records of bank 1",
        "model of bank 1: 0.500",
        "model of bank 0: 4.000",
        "model of bank 2: undefined",
    ]


@pytest.mark.parametrize("values", [[[None]], [[2.0, 2.0], [2.0, 2.0]]])
def test_a_matrix_without_range_is_drawn(values):
    tree = ET.fromstring(heat(["a", "b"][: len(values)], values, label="x", row="of", column="by"))
    tones, *_ = cells(tree, len(values))
    assert set(tones.values()) <= {ink.shade(0)}


def test_rho_is_what_clients_were_told_in_each_round(text):
    caption, tree = chart(run(text), "Rho over rounds")
    assert "penalised more" in caption
    spoken = str(tree.get("aria-label"))
    assert "bank 0: 0.500 to 0.250; bank 1: 0.500 to 0.750; bank 2: 0.500 to 1.000" in spoken
    assert "Rho over rounds" not in run(text, "fedavg")


def test_an_eigenvalue_that_was_not_reported_is_undefined_and_not_zero(text):
    _, tree = chart(run(text), "Top eigenvalue over rounds")
    assert "bank 2: −3.000 to −3.000, 1 undefined" in str(tree.get("aria-label"))
    marks = [float(e.get("cy", "")) for e in tree.iter("circle")]
    up = scale(tree, "end", "y")
    assert len(marks) == 1
    assert marks[0] > up(-3)  # in the lane below the scale
    third = [e for e in tree.iter("path") if e.get("class") == "line"][2]
    assert third.get("d", "").count("M") == 2  # the line breaks there
    assert "Trace over rounds" not in run(text, "fedavg")


def test_the_trace_has_its_error_as_a_bar_and_none_where_there_is_none(text):
    caption, tree = chart(run(text), "Trace over rounds")
    assert "one standard error" in caption
    up = scale(tree, "end", "y")
    bars = [numbers(e.get("d", "")) for e in tree.iter("path") if e.get("class") == "bar"]
    assert len(bars) == 2  # bank 2 has reported none
    for bar, (value, error) in zip(bars, [(10, 1), (20, 2)], strict=True):
        assert len(bar) == 12  # four rounds
        assert bar[1:3] == pytest.approx([up(value - error), up(value + error)], abs=0.3)


def test_errors_are_inside_the_chart():
    tree = ET.fromstring(lines([1, 2], [Series("a", [1.0, None], errors=[4.0, None])], label="x"))
    (bar,) = [e.get("d", "") for e in tree.iter("path") if e.get("class") == "bar"]
    assert all(19.9 <= y <= 196.1 for y in numbers(bar)[1:])
    (line,) = [e.get("d", "") for e in tree.iter("path") if e.get("class") == "line"]
    assert len(points(line)) == 1


def test_the_private_run_says_what_it_promises_and_what_not(text):
    told = dict(re.findall(r"<div><dt>([^<]*)</dt><dd>([^<]*)</dd></div>", run(text, "fedavg")))
    assert told["Epsilon"] == "7.25 at bank 1, the client that spent most; 3.50 at the client that spent least"
    assert told["Delta"] == "1e-05"
    assert told["Adjacency"] == PRIVATE["adjacency"]
    assert told["Sampling"] == "Poisson sampling; at that client 40 steps over all rounds, at rate 0.8"
    assert told["Mechanism"] == "gradients of rows clipped to 1.5, noise 1.1 times the clip"
    assert told["What it covers, and what not"] == NOT_COVERED.replace("'", "&#39;")
    assert "DP-SGD" not in run(text)


def test_an_epsilon_that_does_not_exist_is_infinite(tmp_path):
    folder = private_folder(tmp_path)

    def unbounded(value: dict[str, Any]) -> None:
        for about in value["runs"]:
            if about.get("private"):
                about["private"] = {**PRIVATE, "epsilon": None, "epsilons": [None] * 3, "noise": 0.0}

    alter(folder, "study.json", unbounded)
    assert "<dd>infinite: too little noise, and nothing is promised</dd>" in page(folder)


def test_each_method_says_what_it_asks_of_clients(text):
    table = re.findall(r'<table class="asks">.*?</table>', text, re.S)[0]
    rows = [re.sub(r"<[^>]+>", "|", row).split("||") for row in re.findall(r"<tr>(.*?)</tr>", table)[1:]]
    assert [[cell.strip("|") for cell in row] for row in rows] == [
        [
            "DP-SGD",
            "update, number of rows and counts per group (trained)",
            "the model alone",
            "cross-entropy; DP-SGD with clip 1.5 and noise 1.1",
        ],
        [
            "FinP, code",
            "update, number of rows, counts per group (trained), eigenvalue, trace and trace_error",
            "rho",
            "cross-entropy + 0.05 lipschitz_code",
        ],
    ]


def test_what_an_attack_needs_is_not_what_a_method_asks(tmp_path):
    folder = write_folder(tmp_path, seeds=(42,))
    written = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in written:
        if not line["run"].endswith(("control", "pilot")):
            line["news"] = {"F_global": [0.1] * len(line["asked"])}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    assert "F_global" not in re.findall(r'<table class="asks">.*?</table>', page(folder), re.S)[0]


def test_methods_are_called_by_their_label(text):
    assert re.findall(r'<th scope="rowgroup">([^<]*)', text) == ["DP-SGD", "FinP, code"]
    assert re.findall(r"<summary><b>([^<]*)", text) == ["DP-SGD", "FinP, code"]
    assert "<dd>DP-SGD; FinP, code</dd>" in text  # labels may hold commas


@pytest.mark.parametrize("groups", [1, 2])
def test_many_classes_claim_no_selection_rate_and_no_gap_between_groups(tmp_path, groups):
    folder = private_folder(tmp_path, classes=10)
    if groups == 1:
        merge_groups(folder)
    text = page(folder)
    read(text)
    visible = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.S)
    for claim in ("EOD over rounds", "Selection rate", "True positive rate", "TPR", "SPD", "Honest EOD", "label 1"):
        assert claim not in visible, claim
    assert "<dd>none: 10 classes</dd>" in text
    assert ("Accuracy by group" in text) == (groups == 2)
    assert ("none: all rows are one group" in text) == (groups == 1)


def merge_groups(folder: Path) -> None:
    """Make all rows one group: counts (K, 1, 4) everywhere."""

    def merge(value: dict[str, Any]) -> None:
        for about in value["runs"]:
            about["group_names"] = ["everyone"]

    alter(folder, "study.json", merge)
    written = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in written:
        for counts in (line["counts"], line["measured"]["counts"]):
            for moment, tables in counts.items():
                counts[moment] = [[[sum(cell) for cell in zip(*table, strict=True)]] for table in tables]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))


def test_runs_without_a_clip_have_no_clip_rate(tmp_path):
    folder = private_folder(tmp_path)

    def unclipped(value: dict[str, Any]) -> None:
        for row in value["rows"]:
            row |= {"clip_norm": None, "clip_rate": None, "undefined": {"clip_rate": "updates are not clipped"}}

    alter(folder, "summary.json", unclipped)
    text = page(folder)
    assert "Clip rate" not in text
    assert "<h3>Undefined figures</h3>" not in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"figures": {"trace": [1.0]}}, "the figure 'trace' has 1 values for 3 clients"),
        ({"news": {"rho": [1.0]}}, "the news 'rho' has 1 values for 3 asked clients"),
        ({"probed": {"source": {"loss": {"clients": [0, 1], "success": [0.1]}}}}, "success has 1 values for 2 clients"),
        (
            {"probed": {"source": {"loss": {"clients": [0], "success": [0.1], "loss_matrix": [[1.0, 2.0]]}}}},
            "row 1 of loss_matrix has 2 values for 1 clients",
        ),
    ],
)
def test_lists_of_the_wrong_length_are_refused(tmp_path, change, words):
    folder = private_folder(tmp_path)
    path = folder / "rounds.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | change), *rest]) + "\n")
    with pytest.raises(BadInput, match=re.escape(words)):
        page(folder)


def test_many_clients_show_the_most_exposed_and_stay_small(tmp_path):
    folder = write_folder(tmp_path, clients=40, seeds=(42,), rounds=12, odd=False)
    written = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    everyone = list(range(40))
    for line in written:
        if not line["closing"]:
            matrix = [[abs(i - j) + 0.123456 for j in everyone] for i in everyone]
            found = {"clients": everyone, "success": [k / 40 for k in everyone], "chance": 0.025, "loss_matrix": matrix}
            line["probed"] = {"source": {"loss": found}}
            line["figures"] = {"eigenvalue": [1.5 + k for k in everyone], "trace": [2.5 + k for k in everyone]}
            line["news"] = {"rho": [k / 39 for k in everyone]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    text = page(folder)
    read(text)
    assert len(text.encode()) < 1_000_000
    _, tree = chart(text, "Records traced to their owner")
    names = [e.text for e in tree.iter("text") if e.get("class") == "rowname"]
    assert names == [f"bank {k}" for k in range(39, 15, -1)]
    assert text.count("16 less exposed clients are not drawn") == 2 * text.count('<details class="run"')


def test_the_page_of_private_runs_is_well_formed_and_fetches_nothing(folder, text):
    reader = read(text)
    assert all(s.get("aria-label") for s in reader.all("svg") if s.get("class") != "sign")
    assert all(h.get("scope") for h in reader.all("th"))
    assert not re.search(r"(?i)\b(https?:)?//[a-z]|url\(", text)
    assert not re.search(r'[dxy12]="[^"]*(nan|None)', text)
    assert page(folder) == text
