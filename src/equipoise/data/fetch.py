"""Download the original files of a data set into the user's cache, checked against their published sha256."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from ..checks import BadInput, one_of
from .files import PACKED, Finder, Folder, cache_folder, file_of, find, how_to_get, in_folder, sha256, where_to_put
from .read import read
from .table import Table, encode
from .task import File, Task
from .tasks import TASKS


def fetch(name: str, folder: Folder = None, options: Mapping[str, Any] | None = None) -> Table:
    """Download what the data set needs and does not have yet, then load it, so that what was fetched is also checked.

    Parameters
    ----------
    folder : where to put it (a folder of the data set's name inside); the user's cache if not given
    options : as for ``load``, such as the ``state`` of acsincome; they decide which files are needed

    Raises
    ------
    BadInput
        There is no network, the server answers with something else, or the sha256 is not the published one.
    """
    task = TASKS[one_of("data set", name, TASKS)]
    target = (cache_folder() if folder is None else Path(folder)) / task.name
    log: list[str] = []
    hashes: dict[str, str] = {}
    get = Fetcher(task, folder if folder and Path(folder).is_dir() else None, log, hashes, target)
    return encode(task, read(task, get, options or {}, log), hashes=hashes)


@dataclass(frozen=True, slots=True)
class Fetcher(Finder):
    """A finder that downloads what is not here into ``target``."""

    target: Path

    def __call__(self, *names: str) -> tuple[str, bytes]:
        """Return the first of the named files that lies anywhere as published, else the best one, downloaded."""
        found = find(self.task, self.folder, *names)
        if found is not None:
            file = file_of(self.task, found[0])
            known = {file.sha256, *file.also} - {""}
            if not known or sha256(found[1]) in known:
                self.log.append(f"{found[0]} is already in {found[2]}")
                self.hashes[found[0]] = sha256(found[1])
                return found[:2]
        file = best(self.task, *names)
        data = download(self.task, file, self.target)
        self.hashes[file.name] = sha256(data)
        self.log.append(f"{file.name} fetched from {file.url} into {self.target} ({len(data):,} bytes)")
        return file.name, data


def best(task: Task, *names: str) -> File:
    """Choose which of several forms of one file to fetch: one with a published sha256 if there is any.

    Examples
    --------
    >>> best(TASKS["taiwan"], *(f.name for f in TASKS["taiwan"].files)).name
    'UCI_Credit_Card.csv'
    """
    files = [f for f in (file_of(task, name) for name in names) if f.url]
    if not files:
        raise BadInput(f"{names[0]} has no known address; {how_to_get(task, *names)}")
    return next((f for f in files if f.sha256), files[0])


def download(task: Task, file: File, target: Path) -> bytes:
    """Download one file (or what it is packed in) into ``target`` and return its unpacked bytes."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    packed = file.url.endswith((".zip", *filter(None, PACKED)))
    name = unquote(PurePosixPath(urlsplit(file.url).path).name) if packed else file.name
    known = None if packed or not file.sha256 else f"sha256:{file.sha256}"
    changed = BadInput(
        f"{file.url} does not give the published {file.name} (its sha256 differs): the download was cut off or the "
        f"file was changed; try again, or get it by hand and {where_to_put(task)}"
    )
    try:
        target.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(file.url, known, name, target, downloader=pooch.HTTPDownloader(timeout=30))
    except ValueError:
        raise changed from None
    except OSError as e:
        raise BadInput(
            f"{file.url} cannot be fetched ({type(e).__name__}: no network, or the server is away); "
            f"download it elsewhere and {where_to_put(task)}"
        ) from None
    try:
        data = in_folder(target, file)
    except BadInput:
        (target / name).unlink(missing_ok=True)
        raise
    if data is None:
        raise BadInput(
            f"{file.url} brought {name}, which holds no {file.name}; get it by hand and {where_to_put(task)}"
        )
    if packed and file.sha256 and sha256(data) not in (file.sha256, *file.also):
        (target / name).unlink()
        raise changed
    return data
