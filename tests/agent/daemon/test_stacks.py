"""Stacks of real processes that do not help: asleep in Python, in C with the interpreter's lock, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent.daemon.stacks import frames_of
from holdfast.ipc import traces
from holdfast.ipc.progress_page import ACTIVITIES, RING, ProgressPage
from tests.agent.support import until_sync

ASLEEP = "import time\ndef rests():\n    print('there', flush=True)\n    time.sleep(1000)\nrests()\n"
LOCKED = """
import ctypes
lock = ctypes.create_string_buffer(64)
take = ctypes.PyDLL(None).pthread_mutex_lock
def holds():
    take(lock)
    print('there', flush=True)
    take(lock)
holds()
"""
BUSY = """
import threading, time
def works():
    while True:
        exec("def f(n): return n if n == 0 else f(n - 1)\\nf(%d)" % (time.monotonic_ns() % 300), {})
for _ in range(2):
    threading.Thread(target=works, daemon=True).start()
print('there', flush=True)
time.sleep(1000)
"""
REGISTER = "import sys; from holdfast.ipc import traces; traces.register(sys.argv[1])\n"


def started(folder: Path, script: str) -> subprocess.Popen[str]:
    """A process of this script, once it says that it is there."""
    path = folder / "script.py"
    path.write_text(script)
    argv = [sys.executable, str(path), str(folder / "m.board")]
    env = os.environ | {"PYTHONPATH": os.getcwd()}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.parametrize(("script", "frame"), [(ASLEEP, "rests"), (LOCKED, "holds")])
def test_a_process_tells_where_it_stands_whatever_it_does(folder: Path, script: str, frame: str) -> None:
    process = started(folder, REGISTER + script)
    try:
        assert traces.ask(process.pid) == ""
        frames = until_sync(lambda: frames_of(read(folder)), "its stacks")
        assert frames[0].startswith(f"{frame} (script.py:")
        assert f"thread {process.pid}" in traces.native(process.pid)
        assert process.poll() is None
    finally:
        end(process)


def test_threads_that_run_meanwhile_do_no_harm(folder: Path) -> None:
    process = started(folder, REGISTER + BUSY)
    try:
        for _ in range(200):
            assert traces.ask(process.pid) == "", f"it ended with {process.poll()}"
            time.sleep(0.002)
        assert process.poll() is None
        assert frames_of(read(folder))
    finally:
        end(process)


def test_other_threads_are_told_by_one_of_them() -> None:
    told, over = list[str](), threading.Event()
    resting = threading.Thread(target=over.wait, name="rests")
    resting.start()
    asking = threading.Thread(target=lambda: told.append(traces.others()))
    asking.start()
    asking.join()
    over.set()
    resting.join()
    assert "thread rests (most recent call first):" in told[0] and "wait" in told[0]
    assert "test_other_threads_are_told" not in told[0]


def read(folder: Path) -> str:
    return traces.beside(str(folder / "m.board")).read_text()


def test_a_process_that_has_not_registered_is_never_signalled(folder: Path) -> None:
    process = started(folder, ASLEEP)
    try:
        assert traces.ask(process.pid) == "it does not report its Python stacks"
        assert process.poll() is None
    finally:
        end(process)


def test_a_stopped_process_is_not_waited_for(folder: Path) -> None:
    process = started(folder, REGISTER + ASLEEP)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        status = Path(f"/proc/{process.pid}/status")
        until_sync(lambda: "State:\tT" in status.read_text(), "its stop")
        assert traces.ask(process.pid) == "it is stopped, so it cannot report its stacks"
    finally:
        end(process)


def test_the_kernel_tells_a_stopped_process_from_one_that_sleeps_and_one_that_is_gone(folder: Path) -> None:
    process = started(folder, ASLEEP)
    try:
        until_sync(lambda: traces.process_state(process.pid) == "its process sleeps (S)", "its sleep")
        os.kill(process.pid, signal.SIGSTOP)
        until_sync(lambda: traces.process_state(process.pid) == "its process is stopped (T)", "its stop")
        process.kill()
        zombie = "its process has ended, and its parent has not collected it (Z)"
        until_sync(lambda: traces.process_state(process.pid) == zombie, "its end")
    finally:
        end(process)
    assert traces.process_state(process.pid) == ""


def test_threads_in_the_kernel_are_named(folder: Path) -> None:
    """vfork() holds the parent in the kernel, in state D, until its child runs another program or ends."""
    held = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nprint('there', flush=True)\nlibc.vfork() or libc.pause()\n"
    )
    process = started(folder, held)
    try:
        words = until_sync(lambda: (found := traces.process_state(process.pid)).count("(D)") and found, "D")
        assert words.startswith("its process waits in the kernel (D), in the kernel without waking")
        assert f"thread {process.pid}" in words
    finally:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        end(process)


def test_marks_become_gaps_by_activity_and_what_is_broken_off_becomes_none(folder: Path) -> None:
    board, code = ProgressPage.create(folder / "b"), {name: number for number, name in enumerate(ACTIVITIES)}
    board.mark(1_000_000_000, code["first"])
    board.mark(3_000_000_000, code["step"])
    board.mark(3_500_000_000, code["evaluate"], limit_ns=7)
    assert (board.limit_ns, board.activity) == (7, code["evaluate"])
    board.mark(9_500_000_000, code["none"])
    assert board.gaps(0) == (2, [("first", 2.0), ("step", 0.5)])
    assert board.gaps(2) == (2, [])
    board.close()


def test_only_the_newest_marks_are_kept(folder: Path) -> None:
    board = ProgressPage.create(folder / "b")
    for number in range(1, 3 * RING):
        board.mark(number * 1_000_000, ACTIVITIES.index("step"))
    count, gaps = board.gaps(0)
    assert count == 3 * RING - 2
    assert gaps == [("step", 0.001)] * RING
    board.close()
