"""Append lines to a file from a thread of its own, so that a slow disk delays nobody.

A file that is full gets a number, and a new one takes its place (rotation.py)."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from controlplane.daemon.journal import rotation

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.daemon.journal.rotation import FileLimits

log = logging.getLogger(__name__)

WAITING_LINES_MAX = 50_000
TAIL_BYTES = 8 << 20
_BATCH_LINES = 512
GATHER_S = 0.02
"""The thread waits so long for more lines after the first one. To be woken by each line would take the
interpreter from the event loop as often as there are lines."""


class LineFile:
    """Appends lines. `lines_lost` counts those that could not be written; `trouble` says why.

    Raises OSError when the file cannot be opened at the start."""

    def __init__(self, path: Path, limits: FileLimits | None = None) -> None:
        """`limits`: when a new file takes its place; None: never."""
        self.trouble = ""
        self._refused = self._unwritten = 0  # each has one thread that counts it
        self._torn = _is_torn(path)
        self._path = path
        self._file = _open(path)
        self._limits = limits if limits is not None and limits.file_bytes and path.is_file() else None
        self._stuck = ""  # why no new file could take its place
        self._waiting: deque[str] = deque()
        self._news, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def lines_lost(self) -> int:
        """How many lines are not in the file, or not whole."""
        return self._refused + self._unwritten

    @property
    def waiting(self) -> int:
        """How many lines the thread has not taken yet."""
        return len(self._waiting)

    def write(self, text: str) -> None:
        """Queue a line. When the disk is too far behind, the line is lost."""
        if len(self._waiting) >= WAITING_LINES_MAX:
            self._refused += 1
            self._complain(f"{WAITING_LINES_MAX} lines wait for {self._path}: the disk is too slow")
            return
        self._waiting.append(text)
        if not self._news.is_set():
            self._news.set()

    def end(self) -> None:
        """Take no more lines, and return at once. The thread writes what waits, then closes the file."""
        self._ending.set()
        self._news.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Take no more lines, and wait at most `timeout_s` until all are written. A thread that hangs in the
        disk ends with the process."""
        self.end()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ending.is_set() or self._waiting:
            self._news.wait()
            self._ending.wait(GATHER_S)
            self._news.clear()
            while self._waiting:
                self._append([self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH_LINES))])
        os.close(self._file)

    def _turn(self, coming: int) -> None:
        """Begin a new file if `coming` more bytes would make this one too large. If that fails, the file
        grows: nothing is lost."""
        size = os.fstat(self._file).st_size if self._limits is not None else 0
        if self._limits is None or not size or size + coming <= self._limits.file_bytes:
            return
        try:
            troubles = rotation.turn(self._path, self._limits.former_files) if self._path.exists() else []
            full, self._file = self._file, _open(self._path)  # closed only now: until then it takes lines
            os.close(full)
            self._torn = False
        except OSError as error:
            troubles = [f"{self._path} grows beyond its limit: {error.strerror}"]
        if troubles and troubles[0] != self._stuck:
            log.error("journal: %s", "; ".join(troubles))
        self._stuck = troubles[0] if troubles else ""

    def _append(self, lines: list[str]) -> None:
        """Write all lines at once. After a partial write, the next line begins on a line of its own."""
        self._turn(sum(map(len, lines)) + len(lines))
        data = ("\n" if self._torn else "").encode() + "".join(line + "\n" for line in lines).encode()
        if not lines:
            return
        try:
            written = os.write(self._file, data)
        except OSError as error:
            self._unwritten += len(lines)
            self._complain(str(error))
            return
        if written < len(data):
            self._torn = not data[:written].endswith(b"\n")
            self._unwritten += data[written:].count(b"\n")
            self._complain(f"{self._path}: only part could be written, is the disk full?")
            return
        self._torn = False
        if self.trouble:
            log.warning("journal %s can be written again, %d lines lost", self._path, self.lines_lost)
            self.trouble = ""

    def _complain(self, why: str) -> None:
        if not self.trouble:
            log.error("journal lines are lost: %s", why)
        self.trouble = why


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def tail(path: Path) -> list[str]:
    """Return the last whole lines of a journal, across its files; [] when there is no file,
    or it is a device."""
    found: list[str] = []
    left = TAIL_BYTES
    for each in reversed(rotation.files(path)):
        if left > 0 and each.is_file():
            left -= each.stat().st_size
            found = [*_tail(each), *found]
    return found


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).split(b"\n")
    return [line.decode(errors="replace") for line in lines[1 if start else 0 :] if line]


def _is_torn(path: Path) -> bool:
    """Return whether the file ends within a line (its writer was killed, or the disk was full)."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
