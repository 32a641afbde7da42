"""A file that lines are appended to by a thread of its own, so that a slow disk holds up nobody.

When it is full it gets a number, and another one takes its place (rotation.py)."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from typing import TYPE_CHECKING

from controlplane.daemon.journal import rotation

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.daemon.journal.rotation import Limits

log = logging.getLogger(__name__)

WAITING_LINES_MAX = 50_000
TAIL_BYTES = 8 << 20
_BATCH_LINES = 512


class LineFile:
    """Appends lines. One that cannot be written is counted in `lines_lost`, and `trouble` says why.

    Raises OSError when the file cannot be opened at the start."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        """`limits`: when it is followed by another; None: never."""
        self.trouble = ""
        self._refused = self._unwritten = 0  # each is counted by one thread only
        self._over = False
        self._torn = _is_torn(path)
        self._path = path
        self._file = _open(path)
        self._limits = limits if limits is not None and limits.file_bytes and path.is_file() else None
        self._stuck = ""  # why it could not be followed by another
        self._waiting: queue.Queue[str | None] = queue.Queue(WAITING_LINES_MAX)
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def lines_lost(self) -> int:
        """Lines that are not, or not whole, in the file."""
        return self._refused + self._unwritten

    @property
    def waiting(self) -> int:
        """Lines that the thread has not taken yet."""
        return self._waiting.qsize()

    def write(self, text: str) -> None:
        """Append a line soon."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            self._refused += 1
            self._complain(f"{WAITING_LINES_MAX} lines wait for {self._path}: the disk does not follow")

    def end(self) -> None:
        """Take no more: what waits is written, then the file is closed. Nobody is held up."""
        self._over = True
        with contextlib.suppress(queue.Full):  # then the thread comes by here again, and sees that it is over
            self._waiting.put_nowait(None)

    def close(self, timeout_s: float = 5.0) -> None:
        """The same, and wait for it for at most `timeout_s`: a thread that hangs in the disk ends with the
        process."""
        self.end()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        going = True
        while going:
            batch = [self._waiting.get()]
            while len(batch) < _BATCH_LINES and batch[-1] is not None and not self._waiting.empty():
                batch.append(self._waiting.get())
            self._append([line for line in batch if line is not None])
            going = batch[-1] is not None and not (self._over and self._waiting.empty())
        os.close(self._file)

    def _turn(self, coming: int) -> None:
        """With so many bytes more it would be too large: another one follows it. Where that cannot be, it
        grows, which loses nothing."""
        size = os.fstat(self._file).st_size if self._limits is not None else 0
        if self._limits is None or not size or size + coming <= self._limits.file_bytes:
            return
        try:
            troubles = rotation.turn(self._path, self._limits.former_files) if self._path.exists() else []
            full, self._file = self._file, _open(self._path)  # not before: the old one takes lines until then
            os.close(full)
            self._torn = False
        except OSError as error:
            troubles = [f"{self._path} grows beyond its bound: {error.strerror}"]
        if troubles and troubles[0] != self._stuck:
            log.error("journal: %s", "; ".join(troubles))
        self._stuck = troubles[0] if troubles else ""

    def _append(self, lines: list[str]) -> None:
        """One write for all of them; after a torn one, the next begins on a line of its own."""
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
    """The last whole lines of a journal, across its files; none when there is no file (or it is a device)."""
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
    """Whether the file ends within a line (it was killed, or the disk was full)."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
