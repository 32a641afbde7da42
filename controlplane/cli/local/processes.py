"""Find the processes below one of ours in /proc, reap them, and end them for certain."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.pids import fields

if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make orphans among our descendants our children from now on. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def is_running(pid: int) -> bool:
    """Whether it exists and is not a zombie."""
    found = fields(pid)
    return bool(found) and found[0] not in "ZX"


def descendants(root: int) -> list[int]:
    """All processes below `root`, zombies included, parents before children."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (each := fields(int(name))):
            below.setdefault(int(each[1]), []).append(int(name))
    found, front = [], [root]
    while front:
        front = [child for parent in front for child in below.get(parent, [])]
        found += front
    return found


def send(pid: int, number: int) -> bool:
    """Send a signal; False when the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def reap(pids: Iterable[int]) -> None:
    """Take the exit status of those among these children that have ended."""
    for pid in pids:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            continue  # another process's child, or reaped already


def end_all_below(root: int, timeout_s: float = 10.0) -> list[int]:
    """Kill descendants until none runs. Returns those that the kernel still holds after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        alive = [pid for pid in descendants(root) if is_running(pid)]
        if not alive or time.monotonic() > deadline:
            reap(descendants(root))
            return alive
        for pid in alive:
            send(pid, signal.SIGKILL)
        reap(descendants(root))
        time.sleep(0.01)


async def wait_for_end(pid: int) -> None:
    """Return when this process has ended. Its exit status is left to its parent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def children() -> list[int]:
    """Our child processes, whichever of our threads started them."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        found += [int(word) for word in path.read_text().split()]
    return found


def freeze_and_kill(root: int) -> None:
    """Kill `root` and everything below it at one instant.

    All are stopped first, so that none can react to the death of another."""
    family = [root, *descendants(root)]
    for pid in family:
        send(pid, signal.SIGSTOP)
    for pid in dict.fromkeys([*family, *descendants(root)]):
        send(pid, signal.SIGKILL)
