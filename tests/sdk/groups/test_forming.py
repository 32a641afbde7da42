"""A group that can never stand, a transfer whose other end has died halfway: everyone comes back from it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from torch._C._distributed_c10d import TCPStore

from tests.sdk import double_deaths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("lone.py")
ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0  # torch itself would wait for half an hour
ROUNDS = 12


def wait_for(zygote: Zygote, path: Path, pid: int, log: Path) -> str:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert zygote.poll(pid) is None, log.read_text()
        assert time.monotonic() < deadline, f"{path.name} is not there\n{log.read_text()}"
        time.sleep(0.005)
    return path.read_text()


@contextlib.contextmanager
def lone(
    zygote: Zygote, folder: Path, store: str, rank: int, *deed: str, script: str = "lone.py"
) -> Iterator[tuple[int, Path]]:
    log = folder / f"log.{rank}"
    log.touch()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pid = zygote.spawn(SCRIPT.with_name(script), env, log, store, str(rank), *deed, str(folder))
    try:
        yield pid, log
    finally:
        while zygote.poll(pid) is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.002)


def served() -> TCPStore:
    return TCPStore("127.0.0.1", 0, None, True, timeout=timedelta(seconds=30), wait_for_workers=False)


def published(store: TCPStore) -> tuple[str, bytes]:
    """What rank 0 has told of where gloo reaches it."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        for key in store.list_keys():
            if key.startswith("generation-1/") and key.endswith("/0") and "/alike/" not in key:
                return key, store.get(key)
        assert time.monotonic() < deadline, "rank 0 has not told where it is"
        time.sleep(0.005)


def elsewhere(told: bytes, port: int) -> bytes:
    """The same, at another port: the port follows the host's name and the family, each after its length."""
    (length,) = struct.unpack_from("=Q", told)
    at = 8 + length + 8 + 2
    return told[:at] + struct.pack(">H", port) + told[at + 2 :]


def tell(store: Any, key: str, value: bytes) -> None:
    """As gloo does; torch takes bytes, and its stubs only text."""
    store.set(key, value)


@contextlib.contextmanager
def called(callers: int) -> Iterator[socket.socket]:
    """A listener that gloo calls, and does not wait to be called by: of two ports the one whose second byte
    is the higher one calls. It has so many callers already, and takes two."""
    with contextlib.ExitStack() as opened, socket.socket() as listener:
        for port in range(0x0500, 0x8000, 0x100):
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                break
        listener.listen(1)
        for _ in range(callers):
            caller = opened.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        listener.settimeout(LIMIT_S)
        yield listener


@pytest.mark.parametrize("peer", ["tells nothing", "never calls", "cannot be reached"])
def test_a_peer_that_does_not_come_is_left(zygote: Zygote, folder: Path, peer: str) -> None:
    """Of two ranks one calls, the other one waits for that. This one calls rank 1, then comes to rank 2."""
    store = served()
    address = f"127.0.0.1:{store.port}"
    with contextlib.ExitStack() as held:
        first, full = held.enter_context(called(0)), held.enter_context(called(4))
        pid, log = held.enter_context(lone(zygote, folder, address, 0, "forms"))
        key, told = published(store)
        tell(store, key[:-1] + "1", elsewhere(told, first.getsockname()[1]))
        if peer != "tells nothing":
            port = 65535 if peer == "never calls" else full.getsockname()[1]
            tell(store, key[:-1] + "2", elsewhere(told, port))
            held.enter_context(first.accept()[0])
        (folder / "interrupt").touch()
        assert not wait_for(zygote, folder / "0", pid, log).startswith("ended well")


def test_a_store_that_says_nothing_is_left(zygote: Zygote, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with lone(zygote, folder, address, 0, "forms") as (pid, log):
            with silent.accept()[0]:
                (folder / "interrupt").touch()
                assert wait_for(zygote, folder / "0", pid, log).startswith("left")


@pytest.mark.parametrize("deed", ["receives", "broadcasts", "sends"])
@pytest.mark.parametrize("told", [False, True])
def test_a_transfer_is_left_whose_other_end_died_halfway(
    zygote: Zygote, folder: Path, deed: str, told: bool
) -> None:
    """gloo forgets an operation that was half done when its connection ended. It is left untold, too."""
    store = served()
    address = f"127.0.0.1:{store.port}"
    with (
        lone(zygote, folder, address, 0, deed) as (victim, _),
        lone(zygote, folder, address, 1, deed) as (pid, log),
    ):
        deadline = time.monotonic() + LIMIT_S
        while zygote.poll(victim) is None:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.005)
        if told:
            (folder / "interrupt").touch()
        said = wait_for(zygote, folder / "1", pid, log)
        assert said.startswith(("left", "broken")), said
        while "dissolved" not in said:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.005)
            said = (folder / "1").read_text()


def test_a_second_death_while_the_group_forms(zygote: Zygote) -> None:
    """Nobody who was not killed stays behind, and the end is that of a run in which nobody died."""
    struck = double_deaths.Struck(zygote, seed=4)
    try:
        for _ in range(ROUNDS):
            found = struck.round()
            assert not found.stuck, f"{found}\n{struck.node.report()}"
        reached, digests = struck.finish()
    finally:
        struck.node.close()
    assert digests == double_deaths.undisturbed(zygote, reached)
