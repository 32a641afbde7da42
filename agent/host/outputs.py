"""Show the members' output: follow their logs and copy each line to standard output, prefixed.

This runs in a thread of its own: somebody who does not read our output must not stop the agent."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

_POLL_S = 0.05
_CHUNK_BYTES = 64 << 10
_LINE_BYTES_MAX = 16 << 10
"""A longer line is shown in pieces."""
_HELD_BYTES_MAX = 1 << 20
"""How much text may wait for the text that is to be hidden; beyond it everything is shown."""


@dataclass(slots=True)
class _Followed:
    path: Path
    label: Callable[[], str]
    shown: Callable[[], bool]
    descriptor: int = -1
    rest: bytes = b""
    hidden: bytes = b""  # text that is about to come and must not be shown
    from_end: bool = False
    last: bool = False  # its process is gone: read to the end once more, then close


class Outputs:
    """Follows any number of logs."""

    def __init__(self, target: BinaryIO | None = None) -> None:
        self._target = target if target is not None else sys.stdout.buffer
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outputs", daemon=True)

    def start(self) -> None:
        """Start the thread that copies the output."""
        self._thread.start()

    def follow(
        self,
        member: str,
        path: Path,
        label: Callable[[], str],
        *,
        from_end: bool = False,
        shown: Callable[[], bool] = lambda: True,
    ) -> None:
        """Show this log from its start, or from its end when an earlier agent has shown what is there.

        `label` makes the prefix of its lines, and is called at each look: a member's rank may change.
        So is `shown`, which says whether its lines are shown now."""
        with self._lock:
            if member not in self._followed:
                self._followed[member] = _Followed(path, label, shown, from_end=from_end)

    def hide(self, member: str, text: str) -> None:
        """Leave this text out when it comes."""
        with self._lock:
            if member in self._followed:
                self._followed[member].hidden = text.encode(errors="backslashreplace")

    def finish(self, member: str) -> None:
        """The process is gone: show what is left, and close its log."""
        with self._lock:
            followed = self._followed.get(member)
            if followed is not None:
                followed.last = True

    def close(self, timeout_s: float = 2.0) -> None:
        """Show what there is and stop. Takes `timeout_s` at most, when nobody reads the output."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._stop.wait(_POLL_S)
            with self._lock:
                followed = list(self._followed.items())
            for member, one in followed:
                last = one.last or stopping
                if not self._show(one, last):
                    return
                if last:
                    with self._lock:
                        del self._followed[member]

    def _show(self, one: _Followed, last: bool) -> bool:
        """Show what is new. False when standard output no longer takes anything."""
        if one.descriptor < 0 and not self._open(one):
            return True
        while data := os.read(one.descriptor, _CHUNK_BYTES):
            one.rest += data
            if not _is_held(one) and not self._write(one, _whole_lines(one)):
                return False
        if not last:
            return True
        os.close(one.descriptor)
        return not one.rest or self._write(one, one.rest.splitlines())

    def _open(self, one: _Followed) -> bool:
        try:
            descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it does not exist yet, or no descriptor is free now: the next look retries
            return False
        if one.from_end:
            os.lseek(descriptor, 0, os.SEEK_END)
        one.descriptor = descriptor
        return True

    def _write(self, one: _Followed, lines: list[bytes]) -> bool:
        if not one.shown():
            return True
        prefix = f"[{one.label()}] ".encode()
        try:
            self._target.write(b"".join(prefix + line + b"\n" for line in lines))
            self._target.flush()
        except (OSError, ValueError):  # our own output is closed; the logs still have everything
            return False
        return True


def _is_held(one: _Followed) -> bool:
    """Whether text must wait, because the text to be hidden may still be on its way."""
    if one.hidden and one.hidden in one.rest:
        one.rest, one.hidden = one.rest.replace(one.hidden, b"", 1), b""
    return bool(one.hidden) and len(one.rest) < _HELD_BYTES_MAX


def _whole_lines(one: _Followed) -> list[bytes]:
    """Take the complete lines. A line that is too long is taken in pieces."""
    lines = one.rest.split(b"\n")
    one.rest = lines.pop()
    while len(one.rest) > _LINE_BYTES_MAX:
        lines.append(one.rest[:_LINE_BYTES_MAX])
        one.rest = one.rest[_LINE_BYTES_MAX:]
    return lines
