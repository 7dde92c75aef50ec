"""Read a run folder strictly: what does not fit the record format is refused in one sentence, nothing is guessed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from ..checks import BadInput
from ..records import read as read_lines

Number = float | None
Table = list[list[tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt, NonNegativeInt]]]
"""Counts (K, G, 4): per client and group tp, fp, tn, fn."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


def _beside(lists: dict[str, Any], needed: int, whom: str) -> None:
    """Refuse a list that does not have one value for each of those that it stands beside; None is no list."""
    for name, values in lists.items():
        if values is not None and len(values) != needed:
            raise ValueError(f"{name} has {len(values)} values for {needed} {whom}")


class Measured(_Record):
    """What the laboratory measured in a round: moment -> counts of ``clients``."""

    clients: list[int] = []
    counts: dict[str, Table] = {}


class Traced(_Record):
    """What source inference found in a round: per client of ``clients``, and the losses of model j on i's records."""

    clients: list[int] = []
    success: list[Number] = []
    overall: Number = None
    chance: Number = None
    loss_matrix: list[list[Number]] | None = None
    loss_fi: Number = None

    @model_validator(mode="after")
    def _same_lengths(self) -> Traced:
        rows = {f"row {i + 1} of loss_matrix": row for i, row in enumerate(self.loss_matrix or [])}
        _beside({"success": self.success, "loss_matrix": self.loss_matrix, **rows}, len(self.clients), "clients")
        return self


class Probed(_Record):
    """What the attacks on privacy found in a round, by attack."""

    source: dict[str, Traced] = {}


class Line(_Record):
    """One round of one run; the lists beside ``clients`` are in its order."""

    run: str
    round: int
    closing: bool = False
    asked: list[int] = []
    clients: list[int] = []
    sizes: list[float] = []
    weights: list[float] | None = None
    scores: list[Number] | None = None
    raw_scores: list[Number] | None = None
    norms: list[Number] | None = None
    clipped: list[bool] | None = None
    bounds: list[Number] | None = None
    clip_norm: Number = None
    fallbacks: dict[int, str] = {}
    rejected: dict[int, str] = {}
    missing: list[int] = []
    late: list[int] = []
    note: str | None = None
    kept: str | None = None
    counts: dict[str, Table] = {}
    figures: dict[str, list[Number]] = {}
    news: dict[str, list[Number]] = {}
    measured: Measured = Field(default_factory=Measured)
    probed: Probed = Field(default_factory=Probed)

    def of(self, name: str, client: int) -> Any:
        """Return a client's value in one of the lists beside ``clients``, or its figure of that name; None without."""
        values = self.figures[name] if name in self.figures else getattr(self, name, None)
        return values[self.clients.index(client)] if values is not None and client in self.clients else None

    def told(self, name: str, client: int) -> Number:
        """Return what a client was told under this name; None where it was told nothing."""
        return self.news[name][self.asked.index(client)] if name in self.news and client in self.asked else None

    def undefined_score(self, client: int) -> bool:
        """Say whether the rule wanted a score of this client and there was none."""
        if self.scores is None or client not in self.clients:
            return False
        return self.of("scores", client) is None or (
            self.raw_scores is not None and self.of("raw_scores", client) is None
        )

    @model_validator(mode="after")
    def _same_lengths(self) -> Line:
        beside: dict[str, Any] = {
            n: getattr(self, n) for n in ("sizes", "weights", "scores", "raw_scores", "norms", "clipped", "bounds")
        }
        beside |= {f"counts of {moment!r}": table for moment, table in self.counts.items()}
        beside |= {f"the figure {name!r}": values for name, values in self.figures.items()}
        _beside(beside, len(self.clients), "clients")
        _beside({f"the news {n!r}": told for n, told in self.news.items()}, len(self.asked), "asked clients")
        for moment, table in self.measured.counts.items():
            if len(table) != len(self.measured.clients):
                raise ValueError(
                    f"measured counts of {moment!r} have {len(table)} tables for {len(self.measured.clients)} clients"
                )
        return self


class Private(_Record):
    """What DP-SGD has spent at the client that spent most, and at each; an epsilon of None is infinite.

    Noise at the server has the same keys, but spends the same on every client.
    """

    epsilon: Number = None
    delta: float
    adjacency: str
    sampling: str
    steps: int
    rate: float
    accountant: str
    clip: float
    noise: float
    epsilons: list[Number] = []


class About(_Record):
    """What is fixed about a run: who takes part, who attacks, what is favourable."""

    run: str
    group_names: list[str]
    client_names: list[str]
    adversaries: list[int] = []
    favourable: str | None = None
    sensitive: str | None = None
    favourable_label: int | None = None
    data: str | None = None
    formula: str | None = None
    undefined_policy: str | None = None
    control_of: dict[str, list[int]] | str | None = None
    pilot: bool = False
    final_moment: str | None = None
    classes: int = 2
    scores: list[str] = []
    terms: dict[str, float] = {}
    training: dict[str, Any] = {}
    private: Private | None = None
    central: Private | None = None

    @property
    def favours(self) -> bool:
        """Whether one of two classes is an outcome that groups can be given more or less often."""
        return self.classes == 2

    def name(self, client: int) -> str:
        """Return a client's name; one that the study does not name is called by its id."""
        return self.client_names[client] if 0 <= client < len(self.client_names) else f"client {client}"

    def called(self, client: int) -> str:
        """Return a client's name in a chart, which says who attacks."""
        return self.name(client) + (", attacker" if client in self.adversaries else "")


class Row(_Record):
    """One row of summary.json: the figures of one run, None = undefined with its reason in ``undefined``."""

    run: str
    data: str
    rule: str
    label: str | None = None
    parameters: dict[str, Any] = {}
    clients: int
    architecture: str = ""
    seed: int
    replicate: int = 0
    adversary: str | None = None
    strength: Number = None
    control: str | None = None
    attacker_weight_mean: Number = None
    attacker_weight_last: Number = None
    attacker_eod: Number = None
    honest_eod: Number = None
    honest_eod_clients: int = 0
    pooled_eod: Number = None
    spd: Number = None
    accuracy: Number = None
    attacker_accuracy: Number = None
    accuracy_gap: Number = None
    clip_norm: Number = None
    clip_rate: Number = None
    attacker_score_mean: Number = None
    honest_score_mean: Number = None
    sia: Number = None
    sia_max: Number = None
    sia_chance: Number = None
    sia_worst: Number = None
    sia_cov: Number = None
    sia_fi: Number = None
    sia_eod: Number = None
    loss_fi: Number = None
    mia_loss_auc: Number = None
    mia_lira_offline_auc: Number = None
    mia_lira_online_auc: Number = None
    mia_cosine_auc: Number = None
    accuracy_last3: Number = None
    epsilon: Number = None
    central_epsilon: Number = None
    undefined: dict[str, str] = {}

    @property
    def draw(self) -> str:
        """What chance decided in this run: the seed, and which repetition of training on its rows."""
        return f"seed {self.seed}" + (f", replicate {self.replicate}" if self.replicate else "")


@dataclass(frozen=True, slots=True)
class Folder:
    """A run folder as read. ``lines``: run -> its rounds in order; ``notes``: what was odd in it."""

    path: Path
    study: dict[str, Any]
    abouts: dict[str, About]
    lines: dict[str, list[Line]]
    rows: list[Row]
    environments: list[dict[str, Any]]
    hashes: dict[str, str]
    notes: list[str]

    def setting(self, *path: str) -> Any:
        """Return a value of the resolved study, by its place in the study file; None if it is not there."""
        value: Any = self.study.get("study", self.study)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value


_REMEDY = "restore the file, or write the folder again with `equipoise run`"
_NEEDED = ("study.json", "rounds.jsonl", "summary.json")
_HASHED = ("study.json", "rounds.jsonl", "summary.json", "clients.csv", "checkpoint.safetensors")


def open_folder(path: Path) -> Folder:
    """Read and check the records of a run.

    Raises
    ------
    BadInput : the folder is none, holds no or half a run, or a record does not fit the format
    """
    if not path.is_dir():
        raise BadInput(f"{path} is no folder; name a run folder that `equipoise run` has written")
    if missing := [name for name in _NEEDED if not (path / name).is_file()]:
        what = " or ".join(missing)
        if len(missing) == len(_NEEDED):
            raise BadInput(f"{path} is no run folder: it holds no {what}; name one that `equipoise run` has written")
        raise BadInput(f"{path} holds no {what}: the run is not complete; finish it with `equipoise run ... --resume`")
    notes: list[str] = []
    study = _json(path / "study.json")
    abouts = {
        a.run: a
        for i, item in enumerate(_list(study, "runs", path / "study.json"))
        for a in [_fit(About, item, f"{path / 'study.json'}, run {i + 1}")]
    }
    rows = [
        _fit(Row, item, f"{path / 'summary.json'}, row {i + 1}")
        for i, item in enumerate(_list(_json(path / "summary.json"), "rows", path / "summary.json"))
    ]
    lines = _lines(path / "rounds.jsonl", abouts, notes)
    for row in rows:
        if row.run not in abouts or not lines.get(row.run):
            lacking = "study.json" if row.run not in abouts else "rounds.jsonl"
            raise BadInput(f"{path}: summary.json has the run {row.run!r} and {lacking} does not; {_REMEDY}")
    if not rows:
        raise BadInput(
            f"summary.json in {path} has no rows; finish the study with `equipoise run ... --out {path} --resume`"
        )
    for row in rows:
        told, there = (row.model_extra or {}).get("rounds"), sum(not line.closing for line in lines[row.run])
        if told is not None and told != there:
            notes.append(f"rounds.jsonl holds {there} of the {told} rounds of {row.run}; the table has all of them.")
    environments = _environments(path / "environment.json")
    if not environments:
        notes.append("environment.json is missing: the command, versions and data hashes are not known.")
    hashes = {
        name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in _HASHED if (path / name).is_file()
    }
    return Folder(path, study, abouts, lines, rows, environments, hashes, notes)


def _lines(path: Path, abouts: dict[str, About], notes: list[str]) -> dict[str, list[Line]]:
    lines: dict[str, list[Line]] = {name: [] for name in abouts}
    for number, item in enumerate(read_lines(path), 1):
        line = _fit(Line, item, f"{path}, line {number}")
        if line.run not in lines:
            raise BadInput(
                f"{path}, line {number}: the run {line.run!r} is not in study.json; the files are of different runs"
            )
        if lines[line.run] and line.round <= lines[line.run][-1].round:
            before = lines[line.run][-1].round
            raise BadInput(f"{path}, line {number}: {line.run!r} has round {line.round} after {before}; {_REMEDY}")
        groups = len(abouts[line.run].group_names)
        for moment, table in [*line.counts.items(), *line.measured.counts.items()]:
            if any(len(client) != groups for client in table):
                what = f"counts of {moment!r} are not of the {groups} groups in study.json"
                raise BadInput(f"{path}, line {number}: {what}; {_REMEDY}")
        lines[line.run].append(line)
    raw = path.read_bytes()
    if raw and not raw.endswith(b"\n"):
        notes.append(
            "The last line of rounds.jsonl is torn (the run was stopped while it was written); it was left out."
        )
    return lines


_Model = TypeVar("_Model", bound=_Record)


def _fit(model: type[_Model], item: Any, where: str) -> _Model:
    """Check one record; the first thing that does not fit is named, and how many more there are."""
    try:
        return model.model_validate(item)
    except ValidationError as e:
        errors = e.errors(include_url=False, include_context=False)
        first = errors[0]
        place = "".join(f"{p}." for p in first["loc"])[:-1] + (": " if first["loc"] else "")
        what = first["msg"].removeprefix("Value error, ")
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise BadInput(f"{where}: {place}{what[0].lower()}{what[1:]}{more}; {_REMEDY}") from None


def _environments(path: Path) -> list[dict[str, Any]]:
    """Return the machines and versions that wrote the folder: one, or several where it was resumed elsewhere."""
    value = _strict(path) if path.is_file() else []
    several = value if isinstance(value, list) else [value]
    if any(not isinstance(item, dict) for item in several):
        raise BadInput(f"{path} is no list of environments; delete it, the report then says that they are not known")
    return several


def _json(path: Path) -> dict[str, Any]:
    value = _strict(path)
    if not isinstance(value, dict):
        raise BadInput(f"{path} is a JSON {type(value).__name__}, expected an object; {_REMEDY}")
    return value


def _strict(path: Path) -> Any:
    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not strict JSON")

    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except (ValueError, UnicodeDecodeError) as e:
        raise BadInput(f"{path} is not strict JSON ({e}); {_REMEDY}") from None


def _list(value: dict[str, Any], key: str, path: Path) -> list[Any]:
    if not isinstance(value.get(key), list):
        raise BadInput(f"{path} has no list {key!r}; {_REMEDY}")
    items: list[Any] = value[key]
    return items
