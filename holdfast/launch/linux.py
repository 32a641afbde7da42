"""Wrap what Linux and C offer for owning processes: death signals, subreapers, an interpreter's dict.

Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OUT_OF_REACH = (ProcessLookupError, PermissionError)
_CARETAKERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
_libc = ctypes.CDLL(None, use_errno=True)


class OrphanedError(RuntimeError):
    """The process that should be our parent is gone."""


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def become_subreaper() -> None:
    """Make orphaned descendants of this process its children from now on."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends. Raises OrphanedError if it has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise OrphanedError(f"the parent process {parent} has ended")


def await_parent(parent: int, timeout_s: float = 10.0) -> None:
    """Wait until `parent` has adopted this process, then die with it. Raises OrphanedError."""
    deadline = time.monotonic() + timeout_s
    while os.getppid() != parent:
        if time.monotonic() > deadline:
            raise OrphanedError(f"process {parent} did not become this process's parent within {timeout_s} s")
        time.sleep(0.0005)
    die_with_parent(parent)


def children(of: int | str = "self") -> list[int]:
    """The direct children of this process, or of another one, zombies included."""
    return [
        int(pid)
        for task in Path(f"/proc/{of}/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]


def next_ended() -> os.waitid_result | None:
    """A child that has ended, still to be reaped; None: there is none."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def kill_session(leader: int) -> None:
    """SIGKILL what is left of a session: its leader's process group, and its orphans that are our children
    now.

    A process that belongs to another user by now (by sudo, say) is left alone. So are caretakers: they end by
    themselves when all processes whose names they keep have ended, and remove those names first."""
    below = _left_of(leader)
    if not any(map(is_caretaker, below)):
        with contextlib.suppress(*_OUT_OF_REACH):
            os.killpg(leader, signal.SIGKILL)
        _kill(below)
        return
    killed: set[int] = set()
    while others := {pid for pid in below if pid not in killed and not is_caretaker(pid)}:
        _kill(others)
        killed |= others
        below = _left_of(leader)  # including what they have forked meanwhile


def is_caretaker(pid: int) -> bool:
    """Whether a process keeps the names of other processes' semaphores and shared memory.

    It removes them when those processes have ended: multiprocessing's resource tracker, torch_shm_manager."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name in words for name in _CARETAKERS)


def _left_of(leader: int) -> list[int]:
    """The processes of a session whose leader, our child, has ended, and those that they have started."""
    found = []
    for pid in children():
        with contextlib.suppress(*_OUT_OF_REACH):
            if pid != leader and os.getsid(pid) == leader:
                found.append(pid)
    for pid in found:  # the list grows while it is walked
        with contextlib.suppress(OSError):
            found += [each for each in children(pid) if os.getsid(each) == leader]
    return found


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(*_OUT_OF_REACH):
            os.kill(pid, signal.SIGKILL)


def signal_group(leader: int, number: int) -> bool:
    """Send a signal to a child's process group. False if it is gone, or another user's by now.

    A child just forked leads no group yet: then the signal goes to the child alone. So does SIGKILL always:
    `kill_session` ends the rest once the child has ended. The child must not have been reaped."""
    for send in (os.kill,) if number == signal.SIGKILL else (os.killpg, os.kill):
        try:
            send(leader, number)
        except _OUT_OF_REACH:
            continue
        return True
    return False


def interpreter_dict() -> dict[Any, Any]:
    """The dict of this interpreter in which modules written in C keep what they share."""
    current = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyInterpreterState_Get", ctypes.pythonapi))
    shared = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        ("PyInterpreterState_GetDict", ctypes.pythonapi)
    )
    found = ctypes.cast(shared(current()), ctypes.py_object).value  # a borrowed reference: made our own here
    return dict(found)


def threads() -> int:
    """The number of threads in this process."""
    return len(os.listdir("/proc/self/task"))
