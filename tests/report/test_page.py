"""The page of a run folder: whole, self-contained, true to the records, and the same every time."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from folder import dump, write_folder

from equipoise.report import page, write
from equipoise.report.words import ATTACKED

VOID = {"meta", "br", "path", "circle", "rect", "link", "img", "input"}


class Reader(HTMLParser):
    """Collect tags with their attributes, and refuse any that is not closed in its place."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return page(folder)


def test_is_well_formed_with_headings_in_order(text):
    reader = read(text)
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert reader.all("html")[0]["lang"] == "en"
    assert reader.all("main")


def test_fetches_nothing(text):
    reader = read(text)
    assert not re.search(r"(?i)\b(https?:)?//[a-z]", text)
    assert not re.search(r"(?i)url\(|@import|fetch\(|XMLHttpRequest|import\(", text)
    for _, attributes in reader.tags:
        assert not {"src", "href", "xlink:href", "data", "action"} & attributes.keys()
    policy = next(m for m in reader.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert str(policy["content"]).startswith("default-src 'none'")


def test_every_chart_speaks_and_every_header_has_a_scope(text):
    reader = read(text)
    charts = [s for s in reader.all("svg") if s.get("class") != "sign"]
    assert len(charts) > 20
    assert all(s.get("role") == "img" and s.get("aria-label") for s in charts)
    assert all(h.get("scope") in {"col", "row", "rowgroup"} for h in reader.all("th"))


def test_same_records_same_bytes(folder, text, tmp_path):
    again = write_folder(tmp_path / "elsewhere")
    assert page(folder) == text
    assert page(again) == text


def table_rows(text: str) -> dict[str, list[str]]:
    """Return run -> the exact values of its row in a table."""
    found = re.findall(r'<tr class="seed" data-run="([^"]+)">(.*?)</tr>', text, re.S)
    return {run: re.findall(r'<td data-value="([^"]*)"', row) for run, row in found}


def test_every_figure_of_the_table_is_that_of_the_summary(folder, text):
    rows = {row["run"]: row for row in json.loads((folder / "summary.json").read_text())["rows"]}
    shown = table_rows(text)
    assert shown.keys() == rows.keys()
    for run, row in rows.items():
        if row["adversary"]:
            for cell, column in zip(shown[run], ATTACKED, strict=True):
                value = row[column.key]
                assert (cell == "") if value is None else (float(cell) == value), (run, column.key)


def test_means_are_over_the_seeds_in_which_the_figure_exists(folder, text):
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    fairis = [row for row in rows if row["rule"] == "fairis" and row["adversary"]]
    body = re.search(r'<th scope="rowgroup">fairis \(eta 1.01\)</th>(.*?)</tr>', text, re.S)
    assert body
    cells = re.findall(r'<td data-value="([^"]*)"', body[1])
    for i, column in enumerate(ATTACKED):
        values = [row[column.key] for row in fairis if row[column.key] is not None]
        assert float(cells[i]) == pytest.approx(sum(values) / len(values))
    assert "1 of 2 runs" in body[1]


def test_an_undefined_figure_is_a_word_with_its_reason(folder, text):
    why = "no client has attacker_eod: 1 undefined, 0 with a model that predicts one class only"
    assert f'<span class="undefined" title="{why}">undefined</span>' in text
    listed = text[text.index("<h3>Undefined figures</h3>") :].split("</ul>")[0]
    assert f"<b>Attacker&#39;s EOD</b>: {why}. In <code>german/fairis-eta1.01/k3/seed42</code>" in listed
    assert not re.search(r"(?i)>\s*(nan|null|none|inf|-inf)\s*<", text)
    assert not re.search(r'[dxy12]="[^"]*(nan|None)', text)


def test_an_undefined_score_is_an_open_mark_and_not_a_point(text):
    scores = [s for s in re.findall(r"<svg.*?</svg>", text, re.S) if 'aria-label="Score of each client' in s]
    odd = [s for s in scores if 'class="open"' in s]
    assert odd
    assert "bank 2: no value, 6 undefined" in odd[0]
    assert "bank 2: undefined (1.000 used)" in odd[0]


def test_events_name_client_round_and_reason(text):
    plain = re.sub(r"<[^>]+>", "|", text)
    assert "rejected||bank 1||3||update not finite" in plain
    assert "missing||bank 2||5, 7||no reply" in plain
    assert "model kept||all||7||no valid reply" in plain
    assert re.search(r"score replaced\|\|bank 2\|\|1–4, 6, 8\|\|no positives in group female", plain)


def test_last_round_says_who_got_which_weight_and_why(folder, text):
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    run = "german/fairis-eta1.01/k3/seed42"
    last = [line for line in lines if line["run"] == run and not line["closing"]][-1]
    section = text[text.index(f'aria-label="Last round of {run}"') :].split("</table>")[0]
    for weight in last["weights"]:
        assert f"<td>{weight:.3f}</td>" in section
    assert "score replaced: no positives in group female: TPR is 0/0; counted as 1 (worst)" in section
    assert section.count("attacker</span>") == 1


def test_first_sentences_give_the_share_and_who_got_what(folder, text):
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    first = re.search(r"<b>Weight\.</b>(.*?)</p>", text, re.S)
    assert first
    assert "an equal share for bank 0, who attacks, would be 0.333" in first[1]
    for rule, label in (("uniform", "uniform"), ("fedavg", "fedavg"), ("fairis", "fairis (eta 1.01)")):
        values = [row["attacker_weight_mean"] for row in rows if row["rule"] == rule and row["adversary"]]
        assert f"{sum(values) / len(values):.3f} under {label}" in first[1]
    assert "Favourable outcome" in text
    assert "credit is granted" in text


def test_controls_and_pilot_are_told_apart_from_runs(text):
    assert "6 runs of 8 rounds, with 6 adversary-free controls and 1 calibration pilot" in text
    assert text.count('<details class="run"') == 12
    assert "pilot" not in "".join(re.findall(r"data-run=\"[^\"]+", text))


def test_hostile_names_are_text(tmp_path):
    evil = '<script>alert("x")</script>'
    text = page(write_folder(tmp_path, names=[evil, '" onload="x', "O'Neill & Søn"], groups=("<b>", "m")))
    assert evil not in text
    assert "&lt;script&gt;" in text
    reader = read(text)
    assert len(reader.all("script")) == 1
    assert not any("onload" in attributes for _, attributes in reader.tags)
    assert not reader.all("b") or "<b>:" not in text


@pytest.mark.parametrize("clients", [4, 10, 30])
def test_many_clients_stay_readable_and_small(tmp_path, clients):
    text = page(write_folder(tmp_path, clients=clients, seeds=(42,), rounds=16))
    read(text)
    assert len(text.encode()) <= 2_000_000
    assert "bank 0, attacker" in text
    assert ("29 honest clients" in text) == (clients == 30)


def test_a_page_that_would_be_too_large_names_what_it_leaves_out(folder, monkeypatch, text):
    monkeypatch.setattr("equipoise.report.LARGEST", 200_000)
    small = page(folder)
    assert len(small.encode()) <= 200_000 < len(text.encode())
    assert "Left out to keep this page small:" in small
    assert 'class="hit"' not in small
    assert small.count('<details class="run"') < 12
    assert table_rows(small) == table_rows(text)


def test_a_page_gives_up_its_hovers_before_its_runs(folder, monkeypatch, text):
    monkeypatch.setattr("equipoise.report.LARGEST", len(text.encode()) - 1)
    quiet = page(folder)
    assert len(quiet.encode()) < len(text.encode())
    assert quiet.count('<details class="run"') == text.count('<details class="run"')
    assert 'class="hit"' in text
    assert 'class="hit"' not in quiet
    read(quiet)


def test_runs_that_differ_in_clip_or_policy_alone_have_names_of_their_own(tmp_path):
    folder = write_folder(tmp_path, rules=[("fairis", {"eta": 1.01}), ("fairis", {"eta": 1.01, "x": 1})], odd=False)
    study, summary = (json.loads((folder / f"{name}.json").read_text()) for name in ("study", "summary"))
    for about in study["runs"]:
        about["undefined_policy"] = "worst" if "x" in about["parameters"] else "neutral"
        about["parameters"].pop("x", None)
    for row in summary["rows"]:
        if row["parameters"].pop("x", None):
            row["clip_norm"] = row["clip_rate"] = None
            row["undefined"]["clip_rate"] = "updates are not clipped"
    dump(folder / "study.json", study)
    dump(folder / "summary.json", summary)
    names = re.findall(r'<th scope="rowgroup">([^<]*)', page(folder))
    assert names[:2] == [
        "fairis (eta 1.01, undefined neutral, clip calibrated)",
        "fairis (eta 1.01, undefined worst, clip none)",
    ]


def test_rules_that_judge_nobody_show_no_score(folder):
    path = folder / "rounds.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "weights" in line and "fairis" not in line["run"]:
            line["scores"] = line["raw_scores"] = [0.0] * len(line["clients"])
    before = path.read_text()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        assert page(folder).count('aria-label="Score of each client') == 4
    finally:
        path.write_text(before)


def test_honest_federation_has_no_attack_columns(tmp_path):
    text = page(write_folder(tmp_path, attacked=False, odd=False))
    assert "Attacker's weight" not in text
    assert "none: every client is honest" in text
    assert "1 calibration pilot" in text
    read(text)


def test_write_puts_the_page_where_it_is_asked_for(folder, tmp_path, text):
    assert write(folder) == folder / "report.html"
    out = write(folder, tmp_path / "deep" / "r.html")
    assert out.read_text(encoding="utf-8") == text
    assert [p.name for p in out.parent.iterdir()] == ["r.html"]


def test_group_rates_of_the_test_pool_count_each_person_once(text):
    n = re.search(r"female \(n = (\d+), (\d+) with label 1\)", text)
    assert n
    assert (int(n[1]), int(n[2])) == (102, 40)


def test_the_page_says_at_its_top_when_figures_are_about_the_unfavourable_outcome(folder, text, tmp_path):
    about = "EOD and SPD are about label 1, the unfavourable outcome"
    assert about not in text
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    study = json.loads((other / "study.json").read_text())
    for run in study["runs"]:
        run["favourable_label"] = 0
    (other / "study.json").write_text(json.dumps(study))
    assert about in page(other)


def test_replicates_of_a_seed_are_told_apart(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run")
    path = folder / "summary.json"
    rows = json.loads(path.read_text())["rows"]
    for row in rows:
        row["replicate"] = int(row["seed"] != min(r["seed"] for r in rows))
        row["seed"] = 42
    path.write_text(json.dumps({"rows": rows}))
    html = page(folder)
    assert "seed 42, replicate 1</th>" in html
    assert "mean over 1 seed, each trained 2 times" in html
