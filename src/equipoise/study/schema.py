"""The study file: what may stand in it, its defaults, and one clear sentence for what may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ..checks import BadInput, nearest

T = TypeVar("T")


MOST_ROWS = 100_000_000
"""Rows that a client may draw in one round: what their numbers take has to fit into memory."""


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _none_for_nobody(value: Any) -> Any:
    return None if value == "none" else value


Axis = Annotated[tuple[T, ...], BeforeValidator(_listed), Field(min_length=1)]
"""A value or a list of values; a list makes a grid."""
Whole = Annotated[int, Field(strict=True)]
"""A whole number; true is none, and neither is "3"."""
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number."""


class Section(BaseModel):
    """A table of the study file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Data(Section):
    """Which rows, which groups. ``name``: built-in data sets; or ``path`` and what follows: a table of your own."""

    name: Axis[str] | None = None
    folder: str | None = None
    options: dict[str, Any] = {}
    sensitive: str | list[str] | None = None
    test_fraction: Real = Field(default=0.2, gt=0, lt=1)
    held_fraction: Real = Field(default=0.0, ge=0, lt=1)
    path: str | None = None
    label: str | None = None
    positive: str | int | float | bool | None = None
    favourable: str | None = None
    favourable_is: Literal["positive", "negative"] | None = None
    client: str | None = None
    leave_out: list[str] | None = None
    bins: dict[str, list[Real]] | None = None
    reference: dict[str, str] | None = None
    missing: Literal["error", "group", "drop"] | None = None

    OWN: ClassVar = (
        "label",
        "positive",
        "favourable",
        "favourable_is",
        "client",
        "leave_out",
        "bins",
        "reference",
        "missing",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Data:
        if (self.path is None) == (self.name is None):
            raise ValueError("data needs either name (a built-in data set) or path (a table of your own), and not both")
        if self.path is None and (own := [k for k in self.OWN if getattr(self, k) is not None]):
            raise ValueError(f"data.{own[0]} belongs to a table of your own: give path too, or remove it")
        if self.path is not None and (other := [k for k in ("folder", "options") if getattr(self, k)]):
            raise ValueError(f"data.{other[0]} belongs to built-in data sets, and data.path is a table of your own")
        if isinstance(self.sensitive, list):
            if not self.sensitive:
                raise ValueError("data.sensitive is an empty list; name at least one column that makes groups")
            if twice := [c for c in self.sensitive if self.sensitive.count(c) > 1]:
                raise ValueError(f"data.sensitive names {twice[0]!r} twice; name each column once")
        return self

    def own(self) -> dict[str, Any]:
        """Return what is declared about a table of one's own."""
        declared = {k: getattr(self, k) for k in self.OWN if getattr(self, k) is not None}
        sensitive = [self.sensitive] if isinstance(self.sensitive, str) else self.sensitive or []
        return {"path": self.path, "sensitive": sensitive, **declared}


class Partition(BaseModel):
    """How rows are dealt to clients: a function of ``data.partition`` or of yours, and its own parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str = "dirichlet"
    over: Literal["cells", "labels", "groups"] = "cells"
    alpha: Real = Field(default=0.5, gt=0)
    clients: Axis[Annotated[Whole, Field(ge=1)]] = (3,)
    min_size: Whole = Field(default=1, ge=1)


class Model(BaseModel):
    """What is trained, with the builder's own parameters (an MLP's ``hidden``), and which part of it is shared.

    ``name``: a builder of ``models``, or your own ``package.module:factory``. ``buffers``: what becomes of the running
    statistics of batch normalisation: averaged like parameters, kept local, or refused.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "mlp"
    architecture: Axis[Literal["splitml", "full", "silo"]] = ("splitml",)
    shared: Whole = Field(default=2, ge=1)
    buffers: Literal["average", "local", "refuse"] = "average"


class Training(Section):
    """Local training. ``batch = "auto"``: all rows when the federation trains on fewer than 2,000, else 64.

    ``steps``: with replacement 60 unless given; with epochs and Poisson sampling as many as ``epochs`` take.
    """

    steps: Whole | None = Field(default=None, ge=1, le=1_000_000)
    epochs: Whole = Field(default=1, ge=1, le=10_000)
    batch: Whole | Literal["auto", "full"] = "auto"
    sampling: Literal["replacement", "epoch", "poisson"] = "replacement"
    optimiser: Literal["adam", "sgd"] = "adam"
    lr: Real = Field(default=0.005, gt=0)
    momentum: Real = Field(default=0.0, ge=0, lt=1)
    keep_optimiser: bool = True
    balance: Literal["class", "cell", "none"] = "class"
    proximal: Real = Field(default=0.0, ge=0)
    dtype: Literal["float32", "float64"] = "float32"
    engine: Literal["auto", "chain", "swap", "vmap", "loop"] = "auto"

    @model_validator(mode="after")
    def _sane(self) -> Training:
        if isinstance(self.batch, int) and self.batch < 1:
            raise ValueError(f"training.batch must be at least 1, got {self.batch}")
        if self.epochs > 1 and self.sampling == "replacement":
            raise ValueError(
                f'training.epochs = {self.epochs} belongs to sampling = "epoch" or "poisson", and with replacement '
                "there are no epochs; set training.sampling, or training.steps instead"
            )
        steps = self.steps or (60 if self.sampling == "replacement" else self.epochs)
        if isinstance(self.batch, int) and steps * self.batch > MOST_ROWS:
            raise ValueError(
                f"training.steps = {steps} batches of training.batch = {self.batch} rows are more than "
                f'{MOST_ROWS:,} rows a round at each client; lower one of them, or set training.batch = "full"'
            )
        if self.momentum and self.optimiser != "sgd":
            raise ValueError(
                f'training.momentum = {self.momentum:g} belongs to optimiser = "sgd", got {self.optimiser!r}; '
                "change one of them"
            )
        return self


class Score(Section):
    """What clients are judged by, unless their rule names other scores.

    A gap is ``metric`` of the model at a ``moment`` on some rows. A score of curvature (deviation, rank, absolute)
    reads ``figures``; ``constant`` is what absolute compares them with.
    """

    metric: str = "equal_opportunity_difference"
    moment: Literal["trained", "received"] = "trained"
    on: Literal["train", "held"] = "train"
    undefined: Axis[Literal["neutral", "worst", "previous", "error", "zero"]] = ("neutral",)
    figures: Axis[Literal["eigenvalue", "trace"]] = ("eigenvalue", "trace")
    constant: Real = Field(default=1.0, gt=0)


class Private(Section):
    """DP-SGD at every client: gradients of single rows clipped to ``clip``, noise of ``noise * clip`` on their sum."""

    clip: Real = Field(gt=0)
    noise: Real = Field(ge=0)
    delta: Real = Field(default=1e-5, gt=0, lt=1)


class Central(Section):
    """Noise at the server that hides each client whole: client-level differential privacy, with the rule's weights.

    ``clip``: longest update that enters, in place of [clip]. ``noise``: noise multiplier of a round. ``adjacency``: one
    client is there or not ("add"), or becomes any other ("replace", twice the noise on the sum). ``share`` of the
    budget that goes to the sum of weights. ``most_rows``: most rows that count, for rules that weigh by rows.
    ``secret``: noise from the operating system, as a deployment needs it; else from the seed, and repeatable.
    """

    clip: Real = Field(gt=0)
    noise: Real = Field(ge=0)
    delta: Real = Field(default=1e-5, gt=0, lt=1)
    adjacency: Literal["add", "replace"] = "add"
    share: Real | None = Field(default=None, gt=0, lt=1)
    most_rows: Whole | None = Field(default=None, ge=1)
    secret: Annotated[bool, Field(strict=True)] = False


class Rule(BaseModel):
    """A method: what the server does, by name with the rule's own parameters, and what it asks of the clients.

    A parameter is a value or a list (a grid). ``scores``: what clients are judged by, a metric or a score, several for
    joint. ``terms``: added to every client's loss, name -> coefficient. ``rho``: the score that clients are told where
    a term reads it. ``order = "shuffled"`` reproduces FinP's mis-assigned scores. ``private``: DP-SGD at the clients.
    ``central``: noise at the server. ``training``: settings of [training] that only this method has. ``label``: its
    name in tables.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.,()=-]*$")] | None = None
    scores: Axis[str] | None = None
    terms: dict[str, Real] = {}
    rho: str | None = None
    order: Literal["correct", "shuffled"] = "correct"
    private: Private | None = None
    central: Central | None = None
    training: dict[str, Any] = {}


class Clip(Section):
    """Longest update that enters the sum: a number, "none", or a percentile of an honest pilot's norms."""

    norm: Axis[Real | Literal["none", "calibrated"]] = ("calibrated",)
    percentile: Real = Field(default=90.0, gt=0, le=100)

    @model_validator(mode="after")
    def _positive(self) -> Clip:
        if bad := [c for c in self.norm if isinstance(c, float) and not c > 0]:
            raise ValueError(f'clip.norm must be above 0, got {bad[0]:g}; use "none" to leave updates as they are')
        return self


class Adversary(Section):
    """Who attacks and how.

    ``kind``: a hostile term of the local loss (disparity, gaming), with ``strength`` as its coefficient, or an attack
    on what is sent (inflate, claim_median ...), called with it; or one of yours. Several kinds are tried in turn.
    ``inflate`` also multiplies the members' updates.
    """

    kind: Axis[str] = ("disparity",)
    members: tuple[Whole, ...] = (0,)
    strength: Axis[Real] = (2.0,)
    first_target: Real = Field(default=0.3, ge=0, le=1)
    statistic: Literal["mean", "pooled"] = "mean"
    inflate: Real = Field(default=1.0, gt=0)
    control: bool = True

    @model_validator(mode="after")
    def _sane(self) -> Adversary:
        if any(not s > 0 for s in self.strength):
            raise ValueError(
                f"adversary.strength must be above 0, got {min(self.strength):g}; "
                "remove [adversary] for an honest federation"
            )
        if not self.members or len(set(self.members)) < len(self.members) or min(self.members) < 0:
            raise ValueError(f"adversary.members must be distinct client numbers from 0, got {list(self.members)}")
        return self


class Participation(Section):
    """Share of clients asked each round, and the chance that one is lost (never trains) or late (reply dropped)."""

    fraction: Real = Field(default=1.0, gt=0, le=1)
    lost: Real = Field(default=0.0, ge=0, lt=1)
    late: Real = Field(default=0.0, ge=0, lt=1)


class Evaluation(Section):
    """On the test pool: every so many rounds (0: only at the end), and which model counts at the end."""

    every: Whole = Field(default=1, ge=0)
    model: Literal["received", "trained"] = "received"


class Curvature(Section):
    """How clients measure the curvature of their loss when a score asks for it.

    ``preset``: "exact" spends up to 100 Hessian products on all rows, as FinP's authors; "fast" a few. The other keys
    change single settings of it.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    preset: Literal["exact", "fast"] = "fast"


class Inference(Section):
    """What the laboratory attacks the clients' privacy with; the record shows it, no rule sees it.

    ``source``: guess whose record it is, every so many rounds (0: never). ``targets``: records per client, of those
    ``drawn`` from the rows trained on, or (as FinP's code) from all of a client's rows; ``even``: no client gives more
    than the smallest has. ``membership``: guess whether a record was trained on, in the last round, against held-out
    rows (``data.held_fraction``), with ``shadows`` mock trainings where an attack needs them.
    """

    source: Whole = Field(default=1, ge=0)
    targets: Whole = Field(default=100, ge=1)
    drawn: Literal["trained", "all"] = "trained"
    even: bool = True
    membership: tuple[Literal["loss", "lira_offline", "lira_online", "cosine"], ...] = ()
    shadows: Whole = Field(default=8, ge=2, le=1_000)

    @model_validator(mode="after")
    def _enough_shadows(self) -> Inference:
        for attack, least in (("lira_online", 4), ("lira_offline", 3)):
            if attack in self.membership and self.shadows < least:
                raise ValueError(
                    f"inference.shadows = {self.shadows} gives {attack} no variance to compare with, as half of them "
                    f"train on a record; take at least {least}"
                )
        return self


class Study(Section):
    """A study: lists of seeds, rules, client counts, architectures, strengths and data sets make a grid of runs.

    A seed decides the test pool, the partition, the first model and the batches. ``replicates`` repeats a seed on the
    same rows with another first model and other batches, so that the luck of training can be told from the data's.
    """

    name: str = Field(default="study", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    description: str = ""
    seeds: Axis[Annotated[Whole, Field(ge=0)]] = (42,)
    replicates: Axis[Annotated[Whole, Field(ge=0)]] = (0,)
    rounds: Whole = Field(default=16, ge=1, le=1_000_000)
    data: Data
    partition: Partition = Partition()
    model: Model = Model()
    training: Training = Training()
    score: Score = Score()
    rule: tuple[Rule, ...] = Field(default=(Rule(name="fairis"),), min_length=1)
    clip: Clip = Clip()
    adversary: Annotated[Adversary | None, BeforeValidator(_none_for_nobody)] = None
    participation: Participation = Participation()
    evaluation: Evaluation = Evaluation()
    curvature: Curvature = Curvature()
    inference: Annotated[Inference | None, BeforeValidator(_none_for_nobody)] = None


def _fields_at(where: Sequence[int | str]) -> list[str]:
    """Known keys of the table in which the last part of ``where`` stands."""
    model: Any = Study
    for key in where[:-1]:
        if isinstance(key, int):
            continue
        annotation = model.model_fields[key].annotation
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), model)
    return list(model.model_fields)


def _place(error: Any) -> list[int | str]:
    """Where an error lies: the path of keys, without the names of types that unions put into it."""
    kinds = ("int", "float", "str", "bool")
    return [p for p in error["loc"] if isinstance(p, int) or not ("[" in p or p in kinds)]


IN_PLAIN_WORDS = {
    "int_type": "input should be a whole number",
    "int_from_float": "input should be a whole number",
    "float_type": "input should be a number",
    "string_type": 'input should be a text, such as "text"',
    "bool_type": "input should be true or false",
    "bool_parsing": "input should be true or false",
    "tuple_type": "input should be a list, such as [1, 2]",
    "list_type": "input should be a list, such as [1, 2]",
    "dict_type": "input should be a table of keys and values",
    "model_type": "input should be a table of keys and values",
    "too_short": "the list is empty; give at least one value",
    "string_pattern_mismatch": "input should be of letters, digits, _ . and -, and begin with one of the first two",
}
"""What pydantic says in words of Python, in words of a study file."""


Model_ = TypeVar("Model_", bound=BaseModel)


def checked(section: type[Model_], values: Mapping[str, Any], what: str) -> Model_:
    """Return a section with other values, or refuse them in one sentence."""
    try:
        return section.model_validate(dict(values))
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(str(p) for p in _place(first))
        if first["type"] == "extra_forbidden":
            raise BadInput(f"{what}: {key!r} is no key of it; {nearest(key, section.model_fields)}") from None
        raise BadInput(f"{what}: {key} {first['msg'].removeprefix('Value error, ')}; got {first['input']!r}") from None


def check(raw: Mapping[str, Any], source: str) -> Study:
    """Return the study that ``raw`` describes, or refuse it in one sentence.

    Examples
    --------
    >>> check({"data": {"name": "german"}, "ruonds": 3}, "study.toml")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: study.toml: 'ruonds' is no key of a study; did you mean 'rounds'?
    """
    try:
        return Study.model_validate(raw)
    except ValidationError as e:
        first = e.errors()[0]
        where = _place(first)
        same = [x for x in e.errors() if _place(x) == where]  # a union reports once for each of its types
        dotted = ".".join(str(part) for part in where)
        inside = [x for x in e.errors() if x["type"] == "too_short" and _place(x) == where[: len(_place(x))]]
        others = e.error_count() - len(same) - len([x for x in inside if x not in same])  # a list of what was refused
        more = f" (and {others} more)" if others else ""
        if first["type"] == "extra_forbidden":
            place = f"[{'.'.join(str(p) for p in where[:-1])}]" if len(where) > 1 else "a study"
            key = str(where[-1])
            homes = [f"{section}.{key}" for section in Study.model_fields if key in _fields_at([section, key])]
            hint = f"did you mean {homes[0]!r}?" if homes else nearest(key, _fields_at(where))
            raise BadInput(f"{source}: {key!r} is no key of {place}; {hint}{more}") from None
        if first["type"] == "missing":
            raise BadInput(f"{source}: {dotted} is missing; add it (see `equipoise new`){more}") from None
        message = " or ".join(
            dict.fromkeys(IN_PLAIN_WORDS.get(x["type"], x["msg"]).removeprefix("Value error, ") for x in same)
        )
        message = message.replace(" or Input should be", " or").replace(" or input should be", " or")
        got = "" if first["type"] == "value_error" else f"; got {first['input']!r}"
        prefix = "" if first["type"] == "value_error" else f"{dotted}: "
        raise BadInput(f"{source}: {prefix}{message[0].lower()}{message[1:]}{got}{more}") from None
