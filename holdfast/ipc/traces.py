"""Dump the stacks of a process to a file on a signal: the interpreter does it, whatever its threads do.

Python's faulthandler writes from the signal handler: while the main thread is blocked in C, and while the
interpreter's lock is held. It writes of the signalled thread alone: to walk the frames of threads that run
meanwhile has been seen to end in SIGSEGV. Those are told by a thread of the process's own (`others`).
Standard library only."""

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
_FRAMES_MAX = 20
_OTHERS_CHARS = 16_000
_kept: list[int] = []  # the file stays open


def beside(page: str) -> Path:
    """The file of stacks that belongs to the progress page at this path."""
    return Path(page).with_suffix(".stacks")


def register(page: str) -> None:
    """Have this process write its stacks beside its progress page at each SIGNAL. Does nothing without
    one, or where its folder is gone."""
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
    """The stacks of all threads but the main one and the caller's, which holds the interpreter's lock: no
    frame moves meanwhile."""
    known = {thread.ident: thread.name for thread in threading.enumerate()}
    passed = (threading.main_thread().ident, threading.get_ident())
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident not in passed:
            rows = "".join(reversed(traceback.format_stack(frame, limit=_FRAMES_MAX)))
            parts.append(f"thread {known.get(ident, ident)} (most recent call first):\n{rows}")
    return "\n".join(parts)[:_OTHERS_CHARS]


def ask(pid: int) -> str:
    """Signal a process that has registered: "" or why it was not done. Never harms one that has not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        if "\nState:\tT" in status:
            return "it is stopped, and tells nothing"
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if not int(caught.split()[1], 16) >> (SIGNAL - 1) & 1:
            return "it does not tell its Python stacks"
        os.kill(pid, SIGNAL)
    except (OSError, StopIteration, ValueError) as error:
        return f"it cannot be asked: {error}"
    return ""


def native(pid: int) -> str:
    """The kernel's view of a process: per thread its state, what it sleeps in, and its kernel stack where we
    may read it."""
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
