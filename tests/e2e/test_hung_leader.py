"""A leader that hangs, while gRPC's own threads go on answering for it: its agents do not stay with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.server import PrivateEtcd
from tests.e2e.cli_running import JournalLines, until
from tests.e2e.test_cli_by_hand import daemon, folder
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["folder"]

TTL_S = 2.0
HANGS = (sys.executable, "-m", "tests.e2e.hanging")


def flags_for(etcd: PrivateEtcd) -> tuple[str, ...]:
    where = ("--etcd", etcd.endpoint, "--etcd-private", "--listen", "127.0.0.1:0")
    return (*where, "--lease-ttl-s", str(TTL_S))


@contextmanager
def hangs(folder: Path, name: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A coordinator that can be hung; yields its process, and the address it listens at."""
    file, log = folder / f"{name}.json", folder / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            leashed([*HANGS, "coordinator", *words, "--address-file", str(file), "--cluster", folder.name]),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        until(lambda: file.exists() or process.poll() is not None, f"{name} serves")
        assert process.poll() is None, log.read_text()
        yield process, json.loads(file.read_text())["listen"]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        (signal.SIGUSR1, 1, ("this coordinator hangs", "has not turned for 6 s", "in wait_for_ever")),
        (signal.SIGUSR2, -signal.SIGPROF, ("most recent call first", "in compute_for_ever")),
    ],
)
async def test_a_leader_that_hangs_ends_and_no_node_is_lost(
    folder: Path, how: signal.Signals, code: int, words: tuple[str, ...]
) -> None:
    async with PrivateEtcd(folder / "etcd") as etcd:
        flags = (*flags_for(etcd), "--node-timeout-s", "100")  # of CPU time there may be little
        journals = {name: JournalLines(folder / f"{name}.jsonl") for name in ("c1", "c2")}
        written = {name: ("--journal", str(folder / f"{name}.jsonl")) for name in journals}
        with ExitStack() as stack:
            leader, first = stack.enter_context(hangs(folder, "c1", *flags, *written["c1"]))
            until(lambda: "leading cluster" in (folder / "c1.log").read_text(), "the first one leads")
            second = stack.enter_context(daemon(folder, "c2", "coordinator", *flags, *written["c2"]))
            places = ("--run-dir", str(folder / "run"), "--shm-dir", str(folder), "--slots", "1")
            where = ("--coordinator", f"{first},{second}", "--node", "n7", "--orphan-timeout-s", "110")
            stack.enter_context(daemon(folder, "agent", "agent", *where, *places))
            until(lambda: journals["c1"].bodies("NodeJoined"), "the node joins the first leader")
            os.kill(leader.pid, how)
            until(lambda: journals["c2"].bodies("NodeJoined"), "the node joins the next leader", 90.0)
            assert "node_lost" not in [body["kind"] for body in journals["c2"].bodies("Note")]
            assert leader.wait(10) == code
            said = (folder / "c1.log").read_text()
            assert all(word in said for word in words), said


async def test_a_leader_that_was_stopped_for_long_goes_on(folder: Path) -> None:
    async with PrivateEtcd(folder / "etcd") as etcd:
        with daemon(folder, "c1", "coordinator", *flags_for(etcd)):
            log = folder / "c1.log"
            until(lambda: "leading cluster" in log.read_text(), "it leads")
            pid = json.loads((folder / "c1.json").read_text())["pid"]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(5 * TTL_S)  # noqa: ASYNC251 -- longer than a loop may hang
            os.kill(pid, signal.SIGCONT)
            until(lambda: log.read_text().count("leading cluster") == 2, "it leads again", 60.0)
