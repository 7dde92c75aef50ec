"""A federation on this machine: its keys, its processes, what it refuses, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from equipoise import cli
from equipoise.flower import warm
from equipoise.flower.certificates import authority, node_key
from equipoise.flower.new import write_app
from equipoise.flower.processes import Processes, alive, free_ports, kill, listens, program, stoppable
from equipoise.flower.up import QUIET, Drill, Federation, RunFailed, prepare, tail, telling, up
from equipoise.study import check

from .tiny import CLIENT, SERVER

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")
FAMILY = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); {}"


def until(ready: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.02)


def members(group: int) -> int:
    """Living processes of a group; the dead that nobody has reaped do not count."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return sum(int(g) == group and not s.startswith("Z") for g, s in (line.split() for line in listed.splitlines()))


# -- certificates and keys


def test_a_client_that_trusts_the_authority_trusts_the_server_at_localhost_only(tmp_path: Path) -> None:
    made = authority(tmp_path)
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(made.certificate, made.key)
    here = ssl.create_default_context(cafile=str(made.ca))
    here.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on

    def shake(name: str) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = here.wrap_bio(to_client, to_server, server_hostname=name)
        server = there.wrap_bio(to_server, to_client, server_side=True)
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    for name in ("localhost", "127.0.0.1", "::1"):
        shake(name)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake("example.org")


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = authority(tmp_path / "a"), authority(tmp_path / "b")
    server = x509.load_pem_x509_certificate(ours.certificate.read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(ours.ca.read_bytes()))
    with pytest.raises(InvalidSignature):
        server.verify_directly_issued_by(x509.load_pem_x509_certificate(theirs.ca.read_bytes()))


def test_a_node_key_is_what_flower_reads_and_nobody_else_can(tmp_path: Path) -> None:
    made = node_key(tmp_path, "node0")
    private = serialization.load_ssh_private_key(made.private.read_bytes(), None)
    public = serialization.load_ssh_public_key(made.public.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP384R1)
    assert private.public_key() == public
    keys = [made.private, authority(tmp_path).key]
    assert all(stat.S_IMODE(k.stat().st_mode) == 0o600 for k in keys)


# -- processes


def test_killing_a_group_reaches_children_that_outlived_their_parent(tmp_path: Path) -> None:
    with Processes(tmp_path) as some:
        parent = some.start("parent", [sys.executable, "-c", FAMILY.format("time.sleep(0.1)")])
        until(lambda: not parent.alive)
        assert members(parent.group) == 1  # the orphan
        some.stop(parent)
        assert members(parent.group) == 0


def test_an_error_leaves_no_process_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Processes(tmp_path) as some:
        one = some.start("one", [sys.executable, "-c", FAMILY.format("time.sleep(60)")])
        other = some.start("other", [sys.executable, "-c", "import time; time.sleep(60)"], group=one.group)
        until(lambda: members(one.group) == 3)
        raise ZeroDivisionError
    assert members(one.group) == 0 and not one.alive and not other.alive


def test_one_that_ignores_sigterm_is_killed_too(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    with Processes(tmp_path) as some:
        deaf = some.start("deaf", [sys.executable, "-c", code])
        until(lambda: "deaf" in deaf.said)
    assert not deaf.alive


def test_a_log_goes_on_and_each_process_has_its_own_part(tmp_path: Path) -> None:
    for word in ("one", "two"):
        with Processes(tmp_path) as some:
            process = some.start("same", [sys.executable, "-c", f"print({word!r})"])
            until(lambda: not process.alive)
        assert process.said == f"{word}\n"
    assert process.log.read_text() == "one\ntwo\n"


def test_a_group_that_is_gone_is_no_error() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    done.wait()
    kill(done.pid)
    assert not alive(done.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_heard_in_the_pause_and_nowhere_else(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stoppable() as pause:
        pause(0.0)
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # nothing is interrupted here
        with pytest.raises(KeyboardInterrupt):
            pause(60.0)
    assert signal.getsignal(number) is before


def test_a_pause_in_a_thread_is_a_sleep() -> None:
    ended = []

    def work() -> None:
        with stoppable() as pause:
            pause(0.01)
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5 and not any(map(listens, ports))


def test_a_warm_server_forks_a_process_per_call_with_its_words_and_code(tmp_path: Path) -> None:
    code = (
        "import os, sys; from equipoise.flower import warm\n"
        "def run(): print(os.getpid() != int(sys.argv[1]), sys.argv[1:], flush=True); sys.exit(3)\n"
        "sys.argv.append(str(os.getpid())); warm.serve(sys.argv[1], run, ())"
    )
    door = tmp_path / "door"
    warm.write_stand_in(tmp_path / "bin", door, sys.executable)
    with Processes(tmp_path / "logs") as some:
        server = some.start("server", [sys.executable, "-c", code, door])
        until(door.exists)
        number = str(server.handle.pid)
        for _ in range(2):
            called = subprocess.run([tmp_path / "bin" / warm.PROGRAM, number, "a b"], check=True)
            assert called.returncode == 0
        until(lambda: server.said.count("\n") >= 2)
        assert server.said == f"True ['{number}', 'a b']\n" * 2
        assert server.alive


def test_without_a_warm_server_flowers_own_program_is_started(tmp_path: Path) -> None:
    warm.write_stand_in(tmp_path / "bin", tmp_path / "nobody", sys.executable)
    words = [str(tmp_path / "bin" / warm.PROGRAM), "-c", "import sys; print(sys.argv[1:])", "a b"]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "['a b']\n"


# -- configuration, journal, messages


@pytest.mark.parametrize("tls", [False, True])
def test_flowers_configuration_says_where_the_server_is(tmp_path: Path, tls: bool) -> None:
    from flwr.cli.flower_config import read_superlink_connection

    (tmp_path / "home").mkdir()
    federation = Federation(tmp_path / "home", Processes(tmp_path / "logs"), time.sleep, 18000, [1, 2])
    prepare(federation, tls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_HOME", federation.cli["FLWR_HOME"])
        connection = read_superlink_connection("here")
    assert connection.address == "127.0.0.1:18000"
    assert bool(connection.insecure) is not tls
    assert (connection.root_certificates == str(tmp_path / "home" / "ca.crt")) is tls
    assert len(federation.keys) == (2 if tls else 0)


def test_nobody_is_called_and_nothing_is_installed() -> None:
    assert QUIET["FLWR_TELEMETRY_ENABLED"] == "0" and QUIET["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert QUIET["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1" and QUIET["OMP_NUM_THREADS"] == "1"


def test_the_journal_is_read_line_by_line_and_a_torn_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    lines = tail(path)
    assert next(lines) == []
    path.write_text('{"round": 1}\n{"rou')
    assert next(lines) == [{"round": 1}]
    assert next(lines) == []
    path.write_text('{"round": 1}\n{"round": 2}\n')
    assert next(lines) == [{"round": 2}]


def test_the_telling_line_is_the_exception_even_among_escapes() -> None:
    log = "\x1b[91mERROR\x1b[0m: it raised\nTraceback\n  File\nValueError: quorum is too high; lower it\nINFO: bye\n"
    assert telling(log) == "ValueError: quorum is too high; lower it"
    assert telling("INFO: up\n[code: 2004] Failed to activate.\nINFO: down\n") == "[code: 2004] Failed to activate."
    assert telling("") == ""


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["flower", "up", "--study", "demo", "--set", "rounds=3", "--set", "training.steps=2", *words])
    out, err = capsys.readouterr()
    return stopped.value.code, out, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nodes", "4"), "--nodes 4 is more than the study's 3 clients; lower it, or raise partition.clients"),
        (("--kill-node", "1"), "a drill needs --at-round, from 2 to the study's 3 rounds; none was given"),
        (("--kill-server", "--at-round", "4"), "a drill needs --at-round, from 2 to the study's 3 rounds; got 4"),
        (("--kill-server", "--at-round", "1"), "got 1"),
        (("--at-round", "2"), "--at-round says when a drill begins; give --kill-node or --kill-server too"),
        (("--kill-node", "3", "--at-round", "2"), "--kill-node 3 is no node of 0..2; choose one of them"),
        (("--nodes", "0"), "Invalid value for '--nodes'"),
        (("--set", "rouns=3"), "'rouns' is no key of a study"),
        (("--set", "adversary.kind=claim_median"), "'claim_median' knows what the other clients send"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, out, err = call(capsys, "--out", str(tmp_path / "r"), *words)
    assert (code, out) == (2, "")
    assert message in err and "Traceback" not in err
    assert not (tmp_path / "r").exists()


def test_a_folder_with_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").touch()
    code, _, err = call(capsys, "--out", str(tmp_path))
    assert code == 2 and "is not empty and holds no run of ours; choose another --out" in err


# -- on loopback


def tiny(folder: Path) -> Path:
    study = check({"data": {"name": "german"}}, "study.toml")
    write_app(folder / "tiny-app", study, {"server_app.py": SERVER, "client_app.py": CLIENT})
    return folder / "tiny-app"


@pytest.fixture
def homes() -> Iterator[Path]:
    """Where temporary folders lie, with a name short enough for a Unix socket in it; nothing may be left there."""
    with tempfile.TemporaryDirectory(prefix="fl") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
        assert not [line for line in listed.splitlines() if folder in line]
        assert not list(Path(folder).iterdir())


def rounds(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on_under_tls(tmp_path: Path, homes: Path) -> None:
    heard: list[str] = []
    seconds = up(tiny(tmp_path), tmp_path / "out", nodes=2, tls=True, drill=Drill(2, server=True), say=heard.append)
    found = rounds(tmp_path / "out")
    assert [r["model"] for r in found] == [[1.0, 11.0], [2.0, 12.0], [3.0, 13.0]]
    assert [r["replies"] for r in found] == [2, 2, 2]
    assert found[0]["server"] != found[1]["server"] == found[2]["server"]
    assert [line.split(";")[0] for line in heard[1:2]] == ["drill       server killed"]
    for i in range(2):  # node i is client i
        seen = (tmp_path / "out" / "flower-memories" / str(i) / "seen").read_text().splitlines()
        assert seen[-1] == f"{i} of 2"
    print("seconds per round:", [round(s, 1) for s in seconds])


@pytest.mark.slow
def test_a_run_that_fails_says_why_whatever_flwr_run_says(tmp_path: Path, homes: Path) -> None:
    with pytest.raises(RunFailed, match=r"finished:failed: ValueError: quorum is above the number of nodes; lower it"):
        up(tiny(tmp_path), tmp_path / "out", nodes=1, config={"quorum": 2})


@pytest.mark.slow
def test_sigterm_stops_everything_and_exits_130(tmp_path: Path, homes: Path) -> None:
    words = "flower up --study demo --nodes 1 --out r --set rule=fedavg --set seeds=1"
    process = subprocess.Popen(
        [sys.executable, "-m", "equipoise", *words.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(homes)},
    )
    log = tmp_path / "r" / "flower-logs" / "node0.log"
    until(lambda: log.exists() and "SuperNode ID" in log.read_text(), 120)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "stopped; what was written is whole"


@pytest.mark.slow
def test_an_unregistered_key_is_refused(tmp_path: Path) -> None:
    """The error is the node's own: a stranger is told so, and the federation does not start with it."""
    from equipoise.flower.up import start_nodes, start_server

    with stoppable() as pause, Processes(tmp_path / "logs", {**QUIET, "PATH": path()}) as processes:
        (tmp_path / "home").mkdir()
        port, *own = free_ports(2)
        federation = Federation(tmp_path / "home", processes, pause, port, own)
        prepare(federation, True)
        start_server(federation)
        (tmp_path / "stranger").mkdir()
        federation.keys = [node_key(tmp_path / "stranger", "node0")]
        with pytest.raises(RunFailed, match=r"node0 ended at its start: \[code: 2004\] Failed to activate SuperNode"):
            start_nodes(federation, tmp_path / "out")


def path() -> str:
    return os.pathsep.join([str(Path(program("flwr")).parent), os.environ["PATH"]])


@pytest.mark.slow
def test_a_run_survives_a_node_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fairis goes on with two of three, and the record names the one that is gone."""
    words = [
        "--set",
        "seeds=42",
        "--set",
        'rule=["fairis"]',
        "--set",
        "clip.norm=4.0",
        "--set",
        "adversary.control=false",
    ]
    words += ["--kill-node", "1", "--at-round", "2", "--out", str(tmp_path / "r")]
    code, out, err = call(capsys, *words)
    assert code == 0 and "seconds " in out and "node 1 killed; round 1 was the last" in err
    lines = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert [line["clients"] for line in lines] == [[0, 1, 2], [0, 2], [0, 2], []]
    assert all("Unavailable" in line["rejected"]["1"] for line in lines[1:3])
    assert lines[-1]["measured"]["clients"] == [0, 2]
