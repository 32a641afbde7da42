"""What a person gets wrong before anything runs: told at once, with the thing and the mend."""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.main import main
from tests.e2e.test_cli_run import holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return str(path)


@pytest.fixture
def no_etcd() -> Iterator[int]:
    """The port of something that speaks, but not etcd's protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--log-dir", "cannot be created: File exists"),
        ("--ledger", "cannot be created: File exists"),
        ("--shm-dir", "is not a folder: name one in memory"),
        ("--state-dir", "give another with --state-dir"),
        ("--storage", "a file is where a folder is needed"),
    ],
)
def test_a_file_where_a_folder_is_needed(
    flag: str, said: str, script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stands = tmp_path / "file"
    stands.touch()
    assert main(["run", flag, str(stands), script]) in (1, 2)
    told = capsys.readouterr().err
    assert said in told and str(stands) in told and "Traceback" not in told


def test_a_folder_that_cannot_be_made_names_the_mend(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--storage", "/proc/none", script]) == 2
    assert "name another with --storage" in capsys.readouterr().err


def run_with_etcd(etcd: str, script: str, tmp_path: Path) -> tuple[int, str]:
    done = holdfast("run", "--state-dir", str(tmp_path / "state"), "--etcd", etcd, script)
    assert "Traceback" not in done.stderr and "hello" not in done.stdout
    return done.returncode, done.stderr


def test_an_etcd_that_will_not_do(script: str, tmp_path: Path, no_etcd: int, unused_tcp_port: int) -> None:
    code, said = run_with_etcd("nonsense", script, tmp_path)
    assert code == 2 and "--etcd 'nonsense' is not an address: give host:port" in said
    code, said = run_with_etcd(f"127.0.0.1:{no_etcd}", script, tmp_path)
    assert code == 3 and "does not speak etcd's API" in said and "omit --etcd" in said
    code, said = run_with_etcd(f"127.0.0.1:{unused_tcp_port}", script, tmp_path)
    assert code == 3 and "nothing listens there" in said and "omit --etcd" in said


@pytest.mark.parametrize("program", ["/no/such/etcd", sys.executable])
def test_a_program_that_is_no_etcd(
    program: str,
    script: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ETCD_BIN", program)
    done = holdfast("run", "--state-dir", str(tmp_path / "state"), script)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert program in done.stderr and "ETCD_BIN=/path/to/etcd" in done.stderr


def test_a_port_that_is_taken(no_etcd: int) -> None:
    done = holdfast("coordinator", "--listen", f"127.0.0.1:{no_etcd}")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"cannot listen on 127.0.0.1:{no_etcd}" in done.stderr and "give another --listen" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("submit", "--nnodes", "99999999999"),
            "99999999999 is too large: give at most 1000000000",
        ),
        (("submit", "--spares", "99999999999"), "--spares: 99999999999 is too large"),
        (("submit", "--env", "WORD"), "what is in env"),
        (("events", "--after", "9" * 20), "--after: 99999999999999999999 is too large"),
        (("exec", "--grace-s", "nan"), "'nan' is not a finite number"),
        (("exec", "--orphan-timeout-s", "-1"), "-1 is not allowed: give a number of seconds, 1 or more"),
        (
            ("simulate", "--mtbf-s", "9", "--nodes", "4", "--days", "inf"),
            "--days: 'inf' is not a finite number",
        ),
        (("simulate", "--mtbf-s", "9", "--nodes", "4", "--recovery-s", "nan"), "--recovery-s: 'nan' is no"),
        (("stop", "j", "--coordinator", "h:٣"), "--coordinator 'h:٣' is not an address"),
        (("stop", "j", "--coordinator", "h:0"), "nothing can listen on port 0"),
        (("agent", "--coordinator", "h:99999"), "--coordinator 'h:99999' is not an address: give host:port"),
        (("agent", "--coordinator", ""), "--coordinator is empty: give host:port"),
        (
            ("kubernetes", "render", "--image", "i:1", "--insecure", "--coordinator", "h", "t.py"),
            "--coordinator 'h' is not an address: give host:port",
        ),
        (("coordinator", "--advertise", "here"), "--advertise 'here' is not an address: give host:port"),
    ],
)
def test_values_that_nobody_can_take(
    words: tuple[str, ...], said: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", os.fsdecode(b"secret\xff"))
    done = holdfast(*words, *([script] if words[0] == "submit" else []))
    assert done.returncode == 2 and said in done.stderr
    assert "Traceback" not in done.stderr and "secret" not in done.stderr


def test_a_folder_without_leave_to_write(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "logs").mkdir(mode=0o500)
    assert main(["run", "--log-dir", str(tmp_path / "logs"), script]) == 2
    assert "is not writable" in capsys.readouterr().err


def test_an_agent_without_a_route_leaves_nothing(tmp_path: Path) -> None:
    places = ("--run-dir", str(tmp_path / "run"), "--shm-dir", str(tmp_path))
    done = holdfast("agent", "--coordinator", "no-such-host.invalid:7070", *places)
    assert done.returncode == 2 and "fix --coordinator, or give --address" in done.stderr
    assert list(tmp_path.iterdir()) == []
