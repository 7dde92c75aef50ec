"""Where the original files lie, and what may go wrong on the way: cut off, changed, a web page instead of data."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path, PurePosixPath

from ..checks import BadInput
from .task import File, Get, Task

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
            raise BadInput(f"data folder {str(root)!r} does not exist; give the folder that holds {task.files[0].name}")
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


def finder(task: Task, folder: Folder, log: list[str], hashes: dict[str, str]) -> Get:
    """Return the function that readers call for their files; it fills ``log`` and ``hashes``."""

    def get(*names: str) -> tuple[str, bytes]:
        found = find(task, folder, *names)
        if found is None:
            raise BadInput(f"{task.name} is not here: {how_to_get(task, *names)}")
        name, data, place = found
        hashes[name] = digest = sha256(data)
        file = file_of(task, name)
        known = {file.sha256, *file.also} - {""}
        if place == "the package" and digest not in known:
            raise BadInput(f"{name} inside the package is damaged (sha256 {digest[:12]}...); install equipoise again")
        if not known:
            verdict = "no published sha256 to compare with"
        elif digest in known:
            verdict = "as published" if digest == file.sha256 else "the same rows as published"
        else:
            verdict = f"NOT the published file: its sha256 begins with {digest[:12]}"
        log.append(f"{name} read from {place} ({len(data):,} bytes, {verdict})")
        return name, data

    return get


def where(task: Task, folder: Folder = None) -> str:
    """Say where the data set lies, or "" if it is not here; nothing is read.

    Examples
    --------
    >>> from equipoise.data import TASKS
    >>> where(TASKS["german"]) != ""
    True
    """
    for label, place in places(task, folder):
        for file in task.files:
            names = [file.name + ending for ending in PACKED] + list(file.archives)
            if any((place / name).is_file() for name in names):
                return label
    return "the package" if any(_embedded_path(file.name) for file in task.files) else ""


def how_to_get(task: Task, *names: str) -> str:
    """Say in one sentence what to download from where and where to put it."""
    files = [file_of(task, name) for name in names] or list(task.files)
    origin = next((f.url for f in files if f.url), task.source)
    wanted = " or ".join(names[:2] or [files[0].name])
    return f"get {wanted} from {origin} and {where_to_put(task)}; or run: equipoise data fetch {task.name}"


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
    """Return one member of a zip archive, looked for in archives inside it too (UCI packs Bank Marketing so)."""
    try:
        found = _inside(data, name)
    except (zipfile.BadZipFile, EOFError, zlib.error) as e:
        raise BadInput(f"{path} is not a whole zip archive ({e}); delete it and get it again") from None
    if found is None:
        raise BadInput(f"{path} holds no {name}; delete it and get it again")
    return found


def _inside(data: bytes, name: str, deeper: bool = True) -> bytes | None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for path in archive.namelist():
            if PurePosixPath(path).name == name:
                return archive.read(path)
        for path in archive.namelist() if deeper else ():
            found = _inside(archive.read(path), name, False) if path.endswith(".zip") else None
            if found is not None:
                return found
    return None


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
