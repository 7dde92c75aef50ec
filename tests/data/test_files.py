"""Hostile files, where files are searched, and downloads that fail."""

from __future__ import annotations

import functools
import gzip
import io
import lzma
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from equipoise.checks import BadInput
from equipoise.data import TASKS, fetch, files, load, where
from equipoise.data.fetch import download
from equipoise.data.files import embedded, sha256
from equipoise.data.task import File

GERMAN = embedded("german.data") or b""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"<!DOCTYPE html><html>403 Forbidden</html>", "is a web page"),
        (b"\xef\xbb\xbf<html>", "is a web page"),
        (GERMAN[:-30], "line 1000 has"),
        (GERMAN.replace(b"A34", b"A39", 1), "column 'history' holds 'A39' in row 1"),
        (GERMAN.replace(b" 1169 ", b" NaN ", 1), "column 'amount' is numeric, but row 1 holds 'NaN'"),
        (GERMAN.replace(b" 5951 ", b" inf ", 1), "column 'amount' is numeric, but row 2 holds 'inf'"),
        (GERMAN.replace(b" 5951 ", b" 59,51 ", 1), "row 2 holds '59,51'"),
        (GERMAN.replace(b"A201 1\n", b"A201 3\n", 1), "the label 'class' holds '3' in row 1"),
        (GERMAN + b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_hostile_german(content, says, tmp_path):
    (tmp_path / "german.data").write_bytes(content)
    with pytest.raises(BadInput, match=says):
        load("german", tmp_path)


def test_a_byte_order_mark_and_windows_lines_are_no_cells(tmp_path):
    (tmp_path / "german.data").write_bytes(b"\xef\xbb\xbf" + GERMAN.replace(b"\n", b"\r\n"))
    assert (load("german", tmp_path).x == load("german").x).all()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"30, Private, 1\n", "line 1 has 3 cells instead of 15"),
        (b'30, "Private, 100000\n', "is not well-formed in line 1"),
        (b"|1x3 Cross validator\n", "is empty"),
        (
            b"30, Privat, 1, HS-grad, 9, Divorced, Sales, Wife, White, Male, 0, 0, 40, Cuba, <=50K\n",
            "column 'workclass' holds 'Privat' in row 1",
        ),
        (b"?, ?, 1, HS-grad, 9, Divorced, Sales, Wife, White, Male, 0, 0, 40, Cuba, <=50K\n", "no rows left"),
    ],
)
def test_hostile_adult(content, says, tmp_path):
    (tmp_path / "adult.data").write_bytes(content)
    with pytest.raises(BadInput, match=says):
        load("adult", tmp_path)


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    (tmp_path / "law_school_clean.csv").write_text(
        "decile1b,decile3,lsat,ugpa,zfygpa,zgpa,fulltime,fam_inc,male,tier,rase,pass_bar\n"
    )
    with pytest.raises(BadInput, match="no column 'race'; did you mean 'rase'"):
        load("law", tmp_path)


def test_compressed_files_and_archives(tmp_path):
    for ending, pack in ((".xz", lzma.compress), (".gz", gzip.compress)):
        folder = tmp_path / ending
        folder.mkdir()
        (folder / f"german.data{ending}").write_bytes(pack(GERMAN))
        assert len(load("german", folder).y) == 1000
        (folder / f"german.data{ending}").write_bytes(pack(GERMAN)[:500])
        with pytest.raises(BadInput, match="cannot be unpacked"):
            load("german", folder)
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as z:
        z.writestr("data/german.data", GERMAN)
    with zipfile.ZipFile(outer, "w") as z:
        z.writestr("notes.txt", "x")
        z.writestr("inner.zip", inner.getvalue())
    name = tmp_path / TASKS["german"].files[0].archives[0]
    for content in (inner.getvalue(), outer.getvalue()):
        name.write_bytes(content)
        assert len(load("german", tmp_path).y) == 1000
    name.write_bytes(inner.getvalue()[:200])
    with pytest.raises(BadInput, match="is not a whole zip archive"):
        load("german", tmp_path)
    name.write_bytes(b"<html>403")
    with pytest.raises(BadInput, match="is a web page"):
        load("german", tmp_path)


def test_a_tar_holds_files_in_its_folders(tmp_path):
    task = replace(TASKS["german"], files=(File("statlog/german.data", archives=("german.tar.gz",)),))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, content in (("elsewhere/german.data", b"no"), ("x/statlog/german.data", GERMAN)):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "german.tar.gz").write_bytes(packed.getvalue())
    assert files.find(task, tmp_path, "statlog/german.data")[1] == GERMAN
    (tmp_path / "german.tar.gz").write_bytes(packed.getvalue()[:2000])
    with pytest.raises(BadInput, match="is not a whole tar archive"):
        files.find(task, tmp_path, "statlog/german.data")


def test_order_of_search(tmp_path, monkeypatch, cache):
    places = {"given": tmp_path / "given", "env": tmp_path / "env", "cache": cache}
    for i, place in enumerate(places.values()):
        (place / "german").mkdir(parents=True)
        (place / "german" / "german.data").write_bytes(GERMAN[: GERMAN.index(b"\n") + 1] * (i + 1))
    monkeypatch.setenv("EQUIPOISE_DATA", str(places["env"]))
    assert len(load("german", places["given"]).y) == 1
    assert len(load("german").y) == 2
    assert where(TASKS["german"]) == "$EQUIPOISE_DATA/german"
    monkeypatch.delenv("EQUIPOISE_DATA")
    assert len(load("german").y) == 3
    (cache / "german" / "german.data").unlink()
    assert len(load("german").y) == 1000 and where(TASKS["german"]) == "the package"
    assert where(TASKS["law"]) == ""


def test_damaged_package_data_is_refused(monkeypatch):
    monkeypatch.setattr(files, "embedded", lambda name: GERMAN[:-82])
    with pytest.raises(BadInput, match="inside the package is damaged"):
        load("german")


@pytest.fixture
def server(tmp_path):
    """A web server on this machine: folder it serves, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_fetch_checks_what_it_downloads(server, tmp_path, monkeypatch, cache):
    folder, address = server
    file = File("german.data", sha256(GERMAN), f"{address}/german.data")
    task = replace(TASKS["german"], files=(file,))
    monkeypatch.setattr(files, "embedded", lambda name: None)
    fetching = __import__("equipoise.data.fetch", fromlist=["x"])
    monkeypatch.setattr(fetching, "TASKS", {"german": task})
    monkeypatch.setattr(fetching, "cache_folder", lambda: cache)

    with pytest.raises(BadInput, match=r"cannot be fetched \(HTTPError"):
        fetch("german")
    (folder / "german.data").write_bytes(GERMAN[:5000])
    with pytest.raises(BadInput, match="its sha256 differs"):
        fetch("german")
    assert not (cache / "german" / "german.data").exists()
    (folder / "german.data").write_bytes(GERMAN)
    assert len(fetch("german").y) == 1000
    assert (cache / "german" / "german.data").read_bytes() == GERMAN
    (folder / "german.data").unlink()
    assert "already in the cache/german" in fetch("german").log[0]


def test_a_refused_archive_is_not_kept(server, tmp_path):
    folder, address = server
    file = File("psam_p06.csv", url=f"{address}/csv_pca.zip", archives=("csv_pca.zip",))
    (folder / "csv_pca.zip").write_bytes(b"<!doctype html><title>403</title>")
    with pytest.raises(BadInput, match="is a web page"):
        download(TASKS["acsincome"], file, tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []
    with zipfile.ZipFile(folder / "csv_pca.zip", "w") as z:
        z.writestr("psam_p06.csv", "a,b\n1,2\n")
    assert download(TASKS["acsincome"], file, tmp_path / "target") == b"a,b\n1,2\n"


def test_a_packed_download_is_checked_by_what_is_in_it(server, tmp_path):
    folder, address = server
    (folder / "german.data.gz").write_bytes(gzip.compress(GERMAN))
    file = File("german.data", sha256(GERMAN), f"{address}/german.data.gz")
    assert download(TASKS["german"], file, tmp_path / "right") == GERMAN
    with pytest.raises(BadInput, match="its sha256 differs"):
        download(TASKS["german"], replace(file, sha256=sha256(b"another")), tmp_path / "wrong")
    assert list((tmp_path / "wrong").iterdir()) == []


def test_no_network_says_what_to_do(tmp_path):
    file = File("x.csv", url="http://127.0.0.1:9/x.csv")
    with pytest.raises(BadInput, match=r"no network, or the server is away\); download it elsewhere and put it into"):
        download(TASKS["law"], file, tmp_path)
