"""Write the stacks of a process to a file on a signal, whatever its threads are doing.

Python's faulthandler writes from the signal handler, also while the main thread is blocked in C or the
interpreter's lock is held. It writes only the signalled thread, because walking the frames of other running
threads has ended in SIGSEGV. Those are reported by a thread of the process itself (`others`). Standard
library only."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

SIGNAL = signal.SIGRTMIN + 6
"""A real-time signal: scripts and schedulers use SIGUSR1 and SIGUSR2 themselves."""

CHARS_MAX = 64_000
"""Characters of stacks that are read or sent, at most."""
_FRAMES_MAX = 20
_OTHERS_CHARS = 16_000
_STUCK_MAX = 3
"""Threads in the kernel that are named."""
_STATES = {
    "R": "runs, or could",
    "S": "sleeps",
    "D": "waits in the kernel",
    "I": "is idle",
    "T": "is stopped",
    "t": "is held by a debugger",
    "Z": "has ended, and its parent has not collected it",
    "X": "has ended",
}
"""The letters of State: in /proc/PID/status, by proc_pid_stat(5)."""
_kept: list[int] = []  # the descriptor of the file, which stays open


def beside(page: str) -> Path:
    """The file of stacks that belongs to the progress page at this path."""
    return Path(page).with_suffix(".stacks")


def register(page: str) -> None:
    """Make this process write its stacks, at each SIGNAL, to a file beside its progress page.

    Does nothing without a page, or if its folder is gone."""
    if not page:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(beside(page), flags, 0o600)
    except OSError:
        return
    faulthandler.register(SIGNAL, file=descriptor, all_threads=False, chain=False)
    while _kept:
        os.close(_kept.pop())
    _kept.append(descriptor)


def others() -> str:
    """The stacks of all threads except the main one and the caller's.

    The caller holds the interpreter's lock, so that no frame changes meanwhile."""
    known = {thread.ident: thread.name for thread in threading.enumerate()}
    passed = (threading.main_thread().ident, threading.get_ident())
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident not in passed:
            rows = "".join(reversed(traceback.format_stack(frame, limit=_FRAMES_MAX)))
            parts.append(f"thread {known.get(ident, ident)} (most recent call first):\n{rows}")
    return "\n".join(parts)[:_OTHERS_CHARS]


def ask(pid: int) -> str:
    """Signal a process to write its stacks, if it has registered. Returns "" or why it was not signalled.

    A process that has not registered is never signalled, because the signal would end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        if "\nState:\tT" in status:
            return "it is stopped, so it cannot report its stacks"
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if not int(caught.split()[1], 16) >> (SIGNAL - 1) & 1:
            return "it does not report its Python stacks"
        os.kill(pid, SIGNAL)
    except (OSError, StopIteration, ValueError) as error:
        return f"it cannot be asked: {error}"
    return ""


def process_state(pid: int) -> str:
    """How the kernel lists a process, in words: `its process is stopped (T)`, and which of its threads wait
    in the kernel (state D; proc_pid_stat(5)), where it tells in what. "" if it does not list it."""
    code = _first(Path(f"/proc/{pid}/status"), "State:")[:1]
    if code not in _STATES:
        return ""
    stuck = [task for task in _tasks(pid) if _first(task / "status", "State:").startswith("D")]
    words = f"its process {_STATES[code]} ({code})"
    if not stuck:
        return words
    named = "; ".join(f"thread {task.name}{_sleeps_in(task)}" for task in stuck[:_STUCK_MAX])
    more = f"; {len(stuck) - _STUCK_MAX} more" if len(stuck) > _STUCK_MAX else ""
    return f"{words}, in the kernel without waking for a signal (D): {named}{more}"


def _sleeps_in(task: Path) -> str:
    where = _read(task / "wchan")
    return f" in {where}" if where not in ("", "0") else ""


def _tasks(pid: int) -> list[Path]:
    try:
        return sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name))
    except OSError:
        return []


def native(pid: int) -> str:
    """The kernel's view of a process: each thread's state, what it sleeps in, and its kernel stack if
    readable."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        state = _first(task / "status", "State:")
        words = [f"thread {task.name} ({_read(task / 'comm')}) {state}"]
        words += [f"in {name} {text}" for name in ("wchan", "syscall") if (text := _read(task / name))]
        stack = [line.split()[-1] for line in _read(task / "stack").splitlines()]
        lines.append(", ".join(words) + (f": {' < '.join(stack)}" if stack else ""))
    return "\n".join(lines)


def _first(path: Path, key: str) -> str:
    return next((line[len(key) :].strip() for line in _read(path).splitlines() if line.startswith(key)), "?")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
