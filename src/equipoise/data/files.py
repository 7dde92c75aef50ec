"""Where the original files lie, and what may go wrong on the way: cut off, changed, a web page instead of data."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from ..checks import BadInput
from .task import File, Task

Folder = str | os.PathLike[str] | None
PACKED: Mapping[str, Callable[[bytes], bytes]] = {"": bytes, ".xz": lzma.decompress, ".gz": gzip.decompress}


def cache_folder() -> Path:
    """Return the user's cache folder, where ``fetch`` puts data sets."""
    import pooch

    return Path(pooch.os_cache("equipoise"))


def places(task: Task, folder: Folder) -> list[tuple[str, Path]]:
    """Return (how to call it, folder) of every place that is searched, first to last; the package itself comes after.

    These are the given folder, ``$EQUIPOISE_DATA`` and the cache; in each, files may lie in a folder of the data
    set's own name or directly.
    """
    roots: list[tuple[str, Path]] = []
    if folder is not None:
        root = Path(folder)
        if not root.is_dir():
            holds = task.files[0].name if task.files else "your data sets"
            raise BadInput(f"data folder {str(root)!r} does not exist; give the folder that holds {holds}")
        roots.append((str(root), root))
    if os.environ.get("EQUIPOISE_DATA"):
        roots.append(("$EQUIPOISE_DATA", Path(os.environ["EQUIPOISE_DATA"])))
    roots.append(("the cache", cache_folder()))
    names = (task.name, *task.folders)
    return [(f"{label}/{n}" if n else label, root / n) for label, root in roots for n in (*names, "")]


def find(task: Task, folder: Folder, *names: str) -> tuple[str, bytes, str] | None:
    """Return (name, unpacked bytes, place) of the first of the named files that lies anywhere, or None."""
    for label, place in places(task, folder):
        for name in names:
            data = in_folder(place, file_of(task, name))
            if data is not None:
                return name, data, label
    for name in names:
        data = embedded(name)
        if data is not None:
            return name, data, "the package"
    return None


@dataclass(frozen=True, slots=True)
class Finder:
    """What readers call for their files (a ``Get``); it fills ``log`` and ``hashes``."""

    task: Task
    folder: Folder
    log: list[str]
    hashes: dict[str, str]

    def __call__(self, *names: str) -> tuple[str, bytes]:
        """Return the first of the named files that lies anywhere, or say how to get it."""
        found = find(self.task, self.folder, *names)
        if found is None:
            place = where(self.task, self.folder)
            lack = f"lacks {names[0]} beside its other files in {place}" if place else "is not here"
            raise BadInput(f"{self.task.name} {lack}: {how_to_get(self.task, *names)}")
        name, data, place = found
        self.hashes[name] = digest = sha256(data)
        file = file_of(self.task, name)
        known = {file.sha256, *file.also} - {""}
        if place == "the package" and digest not in known:
            raise BadInput(f"{name} inside the package is damaged (sha256 {digest[:12]}...); install equipoise again")
        if not known:
            verdict = "no published sha256 to compare with"
        elif digest in known:
            verdict = "as published" if digest == file.sha256 else "the same rows as published"
        else:
            verdict = f"NOT the published file: its sha256 begins with {digest[:12]}"
        self.log.append(f"{name} read from {place} ({len(data):,} bytes, {verdict})")
        return name, data

    def every(self, pattern: str) -> list[str]:
        """Return the names of all files of this form in the first place that has any."""
        for _, place in places(self.task, self.folder):
            names = sorted(path.relative_to(place).as_posix() for path in place.glob(pattern))
            if names:
                return names
        return []


def where(task: Task, folder: Folder = None) -> str:
    """Say where the data set lies (a folder, or the package that brings it), or "" if it is not here; nothing is read.

    Examples
    --------
    >>> from equipoise.data import TASKS
    >>> where(TASKS["german"]) != ""
    True
    """
    for label, place in places(task, folder):
        for file in task.files:
            names = [file.name + ending for ending in PACKED] + list(file.archives)
            if any(path.is_file() for name in names for path in place.glob(name)):
                return label
    with suppress(ImportError):  # a finder may refuse to look
        if task.library and find_spec(task.library[0]):
            return task.library[0]
    return "the package" if any(_embedded_path(file.name) for file in task.files) else ""


def how_to_get(task: Task, *names: str) -> str:
    """Say in one sentence what to download from where and where to put it."""
    if task.library:
        return f"it comes with {task.library[0]}; install that with: pip install 'equipoise[{task.library[1]}]'"
    files = [file_of(task, name) for name in names] or list(task.files)
    origin = next((f.url for f in files if f.url), task.source)
    archive = origin.rsplit("/", 1)[-1]
    wanted = archive if archive in files[0].archives else " or ".join(names[:2] or [files[0].name])
    fetch = f"; or run: equipoise data fetch {task.name}" if any(f.url for f in task.files) else ""
    return f"get {wanted} from {origin} and {where_to_put(task)}{fetch}"


def where_to_put(task: Task) -> str:
    """Say where a file that was downloaded by hand belongs."""
    return f"put it into a folder {task.name}/, and give the folder above that one (data.folder, or EQUIPOISE_DATA)"


def file_of(task: Task, name: str) -> File:
    """Return the declared file of that name, or a bare one."""
    return next((f for f in task.files if f.name == name), File(name))


def in_folder(place: Path, file: File) -> bytes | None:
    """Return the unpacked bytes of a file in one folder: as it is, compressed or in a zip; None if it is absent."""
    for ending, unpack in PACKED.items():
        path = place / (file.name + ending)
        if path.is_file():
            return _unpacked(path, unpack)
    for name in file.archives:
        path = place / name
        if path.is_file():
            return usable(file.name, member(str(path), usable(str(path), _bytes(path)), file.name))
    return None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise BadInput(f"{path} cannot be read ({e.strerror}); check its permissions") from None


def _unpacked(path: Path, unpack: Callable[[bytes], bytes]) -> bytes:
    data = usable(str(path), _bytes(path))
    try:
        return usable(str(path), unpack(data))
    except (lzma.LZMAError, EOFError, OSError) as e:
        raise BadInput(f"{path} cannot be unpacked ({e}): it is cut off or not compressed; get it again") from None


def usable(path: str, data: bytes) -> bytes:
    """Return ``data`` unless it is empty or a web page, which is what a blocked download leaves behind.

    Examples
    --------
    >>> usable("a.zip", b"<!DOCTYPE html><title>403 Forbidden")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: a.zip is a web page, not data: the download was refused; delete it and get it again
    """
    if not data.strip():
        raise BadInput(f"{path} is empty; delete it and get it again")
    start = data[:256].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise BadInput(f"{path} is a web page, not data: the download was refused; delete it and get it again")
    return data


def member(path: str, data: bytes, name: str) -> bytes:
    """Return one member of a zip or tar archive, looked for in zips inside it too (UCI packs Bank Marketing so)."""
    try:
        found = _inside(data, name)
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as e:
        kind = "tar" if ".tar" in path else "zip"
        raise BadInput(f"{path} is not a whole {kind} archive ({e}); delete it and get it again") from None
    if found is None:
        raise BadInput(f"{path} holds no {name}; delete it and get it again")
    return found


def _inside(data: bytes, name: str, deeper: bool = True) -> bytes | None:
    for path, content in members(data):
        if f"/{path}".endswith(f"/{name}"):
            return content()
    for path, content in members(data) if deeper else ():
        found = _inside(content(), name, False) if path.endswith(".zip") else None
        if found is not None:
            return found
    return None


def members(data: bytes) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Go through a zip or compressed tar archive: the path of every file, and what reads it while it is its turn."""
    if data.startswith(b"\x1f\x8b"):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for info in tar:
                file = tar.extractfile(info)  # None for folders and links
                if file is not None:
                    yield info.name, file.read
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for path in archive.namelist():
            yield path, functools.partial(archive.read, path)


def _embedded_path(name: str) -> Path | None:
    folder = resources.files("equipoise.data") / "embedded"
    for ending in ("", ".xz"):
        path = Path(str(folder / (name + ending)))
        if path.is_file():
            return path
    return None


def embedded(name: str) -> bytes | None:
    """Return the unpacked bytes of a file that ships inside the package, or None."""
    path = _embedded_path(name)
    return None if path is None else _unpacked(path, PACKED[".xz" if path.suffix == ".xz" else ""])


def sha256(data: bytes) -> str:
    """Return the hexadecimal sha256 of some bytes.

    Examples
    --------
    >>> sha256(b"")[:12]
    'e3b0c44298fc'
    """
    return hashlib.sha256(data).hexdigest()
