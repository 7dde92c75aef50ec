"""Where the original files of a data set lie, and what may go wrong on the way: truncated, changed, a web page instead."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import zipfile
from importlib import resources
from pathlib import Path

from ..checks import BadInput
from .task import File, Get, Task

PACKED = {".xz": lzma.decompress, ".gz": gzip.decompress}


def cache_folder() -> Path:
    """Return the user's cache folder for data sets that were fetched."""
    import pooch

    return Path(pooch.os_cache("equipoise"))


def places(task: Task, folder: str | os.PathLike[str] | None) -> list[tuple[str, Path]]:
    """Return (how to call it, folder) of every place that is searched, first to last, embedded files apart.

    In each of: the given folder, ``$EQUIPOISE_DATA`` and the cache, files may lie in a folder of the data set's own
    name or directly.
    """
    roots: list[tuple[str, Path]] = []
    if folder is not None:
        root = Path(folder)
        if not root.is_dir():
            raise BadInput(f"data folder {str(root)!r} does not exist; give the folder that holds {task.files[0].name}")
        roots.append((str(root), root))
    if os.environ.get("EQUIPOISE_DATA"):
        roots.append(("$EQUIPOISE_DATA", Path(os.environ["EQUIPOISE_DATA"])))
    roots.append(("cache", cache_folder()))
    names = (task.name, *task.folders)
    return [(f"{label}/{n}" if n else label, root / n) for label, root in roots for n in (*names, "")]


def finder(task: Task, folder: str | os.PathLike[str] | None, log: list[str], hashes: dict[str, str]) -> Get:
    """Return a function (name, other names ...) -> (name found, unpacked bytes) that fills ``log`` and ``hashes``."""

    def get(*names: str) -> tuple[str, bytes]:
        for name in names:
            for label, place in places(task, folder):
                found = _read(place, name)
                if found is not None:
                    _note(task, name, found, label, log, hashes)
                    return name, found
            found = embedded(name)
            if found is not None:
                _note(task, name, found, "inside the package", log, hashes, must=True)
                return name, found
        raise BadInput(f"{task.name} is not here: {how_to_get(task, names)}")

    return get


def where(task: Task, folder: str | os.PathLike[str] | None = None) -> str:
    """Say where the first file of the data set is found, or "" if it is not."""
    for file in task.files:
        for label, place in places(task, folder):
            if any((place / (file.name + ending)).is_file() for ending in ("", *PACKED)):
                return label
        if _embedded_path(file.name) is not None:
            return "inside the package"
    return ""


def how_to_get(task: Task, names: tuple[str, ...] = ()) -> str:
    """Say in one sentence what to download from where and where to put it."""
    files = [f for f in task.files if not names or f.name in names] or list(task.files)
    wanted = " or ".join(dict.fromkeys(names or [f.name for f in files][:1]))
    origin = next((f.url for f in files if f.url), task.source)
    return (
        f"put {wanted} (from {origin}) into a folder {task.name}/ and pass its parent with folder= or EQUIPOISE_DATA, "
        f"or run: equipoise data fetch {task.name}"
    )


def _read(place: Path, name: str) -> bytes | None:
    for ending in ("", *PACKED):
        path = place / (name + ending)
        if path.is_file():
            try:
                data = path.read_bytes()
            except OSError as e:
                raise BadInput(f"{path} cannot be read ({e.strerror}); check its permissions") from None
            return usable(str(path), unpack(str(path), data))
    return None


def unpack(path: str, data: bytes) -> bytes:
    """Decompress .xz and .gz by the file's ending; refuse what is cut off or something else."""
    how = PACKED.get(Path(path).suffix)
    if how is None:
        return data
    try:
        return how(data)
    except (lzma.LZMAError, EOFError, OSError) as e:
        raise BadInput(f"{path} cannot be unpacked ({e}): it is cut off or not compressed; download it again") from None


def usable(path: str, data: bytes) -> bytes:
    """Return ``data`` unless it is empty or a web page, which is what a blocked download leaves behind.

    Examples
    --------
    >>> usable("a.zip", b"<!DOCTYPE html><title>403 Forbidden")
    Traceback (most recent call last):
    ...
    equipoise.checks.BadInput: a.zip is a web page, not data: the download was refused; delete it and download it again
    """
    if not data.strip():
        raise BadInput(f"{path} is empty; delete it and download it again")
    start = data[:256].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise BadInput(f"{path} is a web page, not data: the download was refused; delete it and download it again")
    return data


def member(path: str, data: bytes, ending: str) -> bytes:
    """Return the one member of a zip archive whose name ends so."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [n for n in archive.namelist() if n.endswith(ending)]
            if len(names) != 1:
                raise BadInput(f"{path} holds {len(names)} files that end in {ending!r}, expected one: {archive.namelist()[:8]}")
            return archive.read(names[0])
    except zipfile.BadZipFile as e:
        raise BadInput(f"{path} is not a whole zip archive ({e}); delete it and download it again") from None


def _embedded_path(name: str) -> Path | None:
    folder = resources.files("equipoise.data") / "embedded"
    for ending in ("", ".xz"):
        path = folder / (name + ending)
        if path.is_file():
            return Path(str(path))
    return None


def embedded(name: str) -> bytes | None:
    """Return the unpacked bytes of a file that ships inside the package, or None."""
    path = _embedded_path(name)
    return None if path is None else unpack(str(path), path.read_bytes())


def sha256(data: bytes) -> str:
    """Return the hexadecimal sha256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def _note(
    task: Task, name: str, data: bytes, place: str, log: list[str], hashes: dict[str, str], *, must: bool = False
) -> None:
    """Record the hash of a file; say whether it is the published one, and refuse if it ``must`` be."""
    hashes[name] = digest = sha256(data)
    published = {f.sha256 for f in task.files if f.name == name and f.sha256}
    if must and digest not in published:
        raise BadInput(f"{name} inside the package is damaged (sha256 {digest[:12]}...); install equipoise again")
    same = (
        "as published" if digest in published
        else "no published sha256 to compare with" if not published
        else f"NOT the published file: sha256 {digest[:12]}... instead of {min(published)[:12]}..."
    )  # fmt: skip
    log.append(f"{name} read from {place} ({len(data):,} bytes, {same})")


def published(task: Task, name: str) -> File:
    """Return the declared file of that name."""
    return next(f for f in task.files if f.name == name)
