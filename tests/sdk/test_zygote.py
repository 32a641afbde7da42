"""No rank outlives the test session that forked it, however that session ends, nor its job. A daemon that is
forked is what `python -c` would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.local.processes import is_running
from tests.sdk.node import Node
from tests.sdk.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
KINDS = ROOT / "tests" / "sdk" / "clean" / "kinds.py"
SESSION = """
import os, sys, time
from pathlib import Path
from tests.sdk.zygote import Zygote

folder = Path(sys.argv[1])
zygote = Zygote(torch=False)
(folder / "rank.py").write_text("import time\\ntime.sleep(600)\\n")
rank = zygote.spawn(folder / "rank.py", dict(os.environ), folder / "log")
(folder / "new").write_text(f"{zygote.pid} {rank}")
(folder / "new").rename(folder / "pids")
time.sleep(600)
"""


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


@pytest.mark.parametrize("killed", ["session", "server"])
def test_ranks_end_with_a_session_that_is_cut_off(killed: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SESSION, str(tmp_path)]
    session = subprocess.Popen(command, cwd=ROOT)
    pids: list[int] = []
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / "pids").exists():
            assert session.poll() is None and time.monotonic() < deadline, "no rank was forked"
            time.sleep(0.05)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        server, rank = pids
        assert is_running(server) and is_running(rank)
        os.kill(session.pid if killed == "session" else server, signal.SIGKILL)
        if killed == "session":
            session.wait()
        assert gone(rank, within_s=60), f"the rank outlives its {killed}"
        assert gone(server, within_s=60)
    finally:
        session.kill()
        session.wait()
        for pid in pids:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_rank_that_is_there_only_after_the_end_ends_too(zygote: Zygote) -> None:
    with Node(zygote, KINDS, 1, KIND="ema", KILL="[]") as node:
        node.run(until=lambda: node.complete)
        node.start()
        node.run(timeout_s=60)
        assert len(node.members) == 2


@pytest.fixture
def bare() -> Iterator[Zygote]:
    zygote = Zygote("json", torch=False)
    yield zygote
    zygote.close()


DAEMON = """
import atexit, os, sys
assert __name__ == "__main__" and "json" in sys.modules
atexit.register(print, "left", sys.argv[1:], dict(os.environ), flush=True)
print("said", file=sys.stderr)
if sys.argv[1] == "waits":
    import signal, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("waits", flush=True)
    time.sleep(600)
sys.exit(sys.argv[1])
"""


def test_a_daemon_begins_and_ends_as_a_process_of_its_own(bare: Zygote, tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    err.write_text("before\n")
    daemon = bare.run(DAEMON, "a word", out=out, err=err, env={"ONLY": "this"})
    assert daemon.wait(60) == 1
    assert err.read_text() == "before\nsaid\na word\n"
    assert out.read_text() == "left ['a word'] {'ONLY': 'this'}\n", "what is registered for the end runs"
    assert daemon.poll() == 1
    daemon.kill()  # of a process that has ended: nothing


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 7)])
def test_a_daemon_is_ended_by_signals(number: int, code: int, bare: Zygote, tmp_path: Path) -> None:
    daemon = bare.run(DAEMON, "waits", err=tmp_path / "said", env=os.environ)
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.wait(0.0)
    began(tmp_path / "said")
    daemon.send_signal(number)
    assert daemon.wait(60) == code


def test_a_daemon_is_told_to_end_when_its_session_ends(tmp_path: Path) -> None:
    zygote = Zygote(torch=False)
    daemon = zygote.run(
        DAEMON.replace('"json" in sys.modules', "True"), "waits", err=tmp_path / "said", env={}
    )
    began(tmp_path / "said")
    zygote.close()
    assert gone(daemon.pid, within_s=60)
    assert "left ['waits']" in (tmp_path / "said").read_text(), "SIGTERM, which it may act upon"


def began(said: Path) -> None:
    deadline = time.monotonic() + 60
    while not (said.exists() and "waits\n" in said.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
