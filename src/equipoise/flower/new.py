"""A Flower app for a study: three short modules, the resolved study, and the keys of its run-config."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ..checks import BadInput, extra
from ..records import plain
from ..study import Study
from .server import DEFAULTS

NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,31}")
"""What Flower accepts as the name of an app and of its folder."""


def write_app(folder: Path, study: Study, modules: Mapping[str, str] | None = None) -> list[Path]:
    """Write a Flower app that runs a study, and return its files.

    Parameters
    ----------
    folder : its last part names the app; it must not exist, or be empty
    modules : file name -> text, in place of what the package would hold, such as a ``client_app.py`` of your own

    Raises
    ------
    BadInput : the folder holds something, its name is none that Flower takes, or that of an installed package

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from equipoise.study import check
    >>> with TemporaryDirectory() as here:
    ...     made = write_app(Path(here) / "three-banks", check({"data": {"name": "german"}}, "study.toml"))
    ...     [str(p.relative_to(here)) for p in made][:2]
    ['three-banks/pyproject.toml', 'three-banks/README.md']
    """
    name = _checked(folder)
    texts = app(name, study, modules or {})
    for path, text in texts.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return [folder / path for path in texts]


def app(name: str, study: Study, modules: Mapping[str, str]) -> dict[str, str]:
    """Return the files of an app, path -> text."""
    package = package_of(name)
    named = {"name": name, "package": package, "study": study.name}
    inner = {
        "__init__.py": f'"""The study {study.name} on Flower."""\n',
        "server_app.py": SERVER,
        "client_app.py": CLIENT,
        "study.toml": STUDY + resolved(study),
        **modules,
    }
    return {
        "pyproject.toml": PYPROJECT.format(**named, config=_run_config(name)),
        "README.md": README.format(**named),
        **{f"{package}/{file}": text for file, text in inner.items()},
    }


def package_of(name: str) -> str:
    """Return the Python package of an app.

    Examples
    --------
    >>> package_of("Three-Banks")
    'three_banks'
    """
    return name.lower().replace("-", "_")


def resolved(study: Study) -> str:
    """Return a study as TOML, every default filled in; reading it gives the same study."""
    text: str = extra("tomli_w", "flower").dumps(_without_none(plain(study.model_dump())))
    return text


def _without_none(value: Any) -> Any:
    """TOML has no null: a key that is not there has its default, and every default that can be null is."""
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value


def _checked(folder: Path) -> str:
    name = folder.resolve().name
    if not NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot name a Flower app; take a folder name of letters, digits and hyphens, "
            "a letter first, 32 at most"
        )
    package = package_of(name)
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or _installed(package):
        raise BadInput(f"{package!r} is already the name of a Python package or word; name the folder otherwise")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is not empty; choose another folder")
    return name


def _installed(package: str) -> bool:
    """Whether an app of this name would hide a package: Flower puts the app first on the path."""
    elsewhere = [p for p in sys.path if p and Path(p).resolve() != Path.cwd()]
    found = PathFinder.find_spec(package, elsewhere)
    return found is not None and found.loader is not None  # a mere folder has none


def _run_config(name: str) -> str:
    dumps = extra("tomli_w", "flower").dumps
    lines = [dumps({k: v}).rstrip() for k, v in {**DEFAULTS, "out": f"runs/{name}"}.items()]
    width = max(map(len, lines))
    said = [MEANINGS.get(k, "") for k in DEFAULTS]
    return "\n".join(f"{line:<{width}}  # {what}" if what else line for line, what in zip(lines, said, strict=True))


MEANINGS = {
    "out": "run folder on the server's machine, seen from where the SuperLink was started",
    "resume": "go on with the run that the folder holds",
    "num-clients": "nodes to wait for; 0: as many as the study has clients",
    "quorum": "fewest valid replies for the model to move",
    "deadline-s": "seconds that a round waits for replies",
    "start-deadline-s": "seconds to wait for the nodes",
    "nodes-file": 'which node is which client, {"0": "<node id>", ...}; empty: in the order of their ids',
}

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "The study {study} on Flower"
license = "Apache-2.0" # of this app: yours to choose
# Every node brings its own equipoise[flower,train]: what stands here, Flower may install anew at every run.
dependencies = ["flwr>=1.42,<1.43"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "equipoise"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
{config}
"""

SERVER = '''\
"""What runs beside the SuperLink: it asks, weighs and adds up, and writes the run folder."""

from pathlib import Path

from equipoise.flower import server_app

app = server_app(Path(__file__).with_name("study.toml"))
'''

CLIENT = '''\
"""What runs on every node: it trains on the rows of its client and answers with a model and counts."""

from pathlib import Path

from equipoise.flower import client_app

# A member's own rows: name their file in its node-config, data-file="...", or give own=, a function of the context.
app = client_app(Path(__file__).with_name("study.toml"))
'''

STUDY = "# Every setting of the study. The server and all clients must have the same file.\n"

README = """\
# {name}

The study `{study}` as a Flower app, written by `equipoise flower new`. It is yours to change.

| file | what it is |
|---|---|
| `pyproject.toml` | Flower's components and the run-config, with what each key means |
| `{package}/study.toml` | every setting of the study; `equipoise run {package}/study.toml` runs it without Flower |
| `{package}/server_app.py` | what the server runs |
| `{package}/client_app.py` | what every node runs |

Every machine needs `pip install 'equipoise[flower,train]'`, and, where the study names code of yours, that code. Flower
is told to use what is installed: set `FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1` wherever a SuperLink runs, or
start it with `--disable-runtime-dependency-installation`.

## On one machine

```console
equipoise flower up --tls --study {package}/study.toml
```

or with Flower's own simulation, where `flwr[simulation]` is installed:

```console
flwr run . --stream --federation-config "num-supernodes=3 client-resources-num-cpus=1"
```

## On several

```console
flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \\
    --enable-supernode-auth --disable-runtime-dependency-installation --database state.db
flwr supernode register node0.pub NAME-OF-THE-CONNECTION        # once per node
flower-supernode --root-certificates ca.crt --superlink SERVER:8000 --auth-supernode-private-key node0 \\
    --node-config "partition-id=0 num-partitions=3 memory-dir='/bank/memory' data-file='/bank/rows.csv'"
flwr run . NAME-OF-THE-CONNECTION --stream --run-config "num-clients=3 quorum=2 deadline-s=600.0"
flwr list NAME-OF-THE-CONNECTION                                # flwr run exits 0 even where the run failed
```

`data-file` holds the member's own rows, with the columns of the study's table; without it a client takes the rows that
the study deals to its number, which is for trying out. In `memory-dir` it keeps its private layers and its last two
optimiser states: put it on a disk that lasts. After a crash of the server, start it again on the same database and run
with `resume=true`.
"""
