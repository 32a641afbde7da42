"""Read lines of the kernel's log: those that name a process (its OOM killer, Xid errors), or fit a pattern.

`/dev/kmsg` is readable for root, or where the kernel allows it to all. The kernel names processes as the
machine numbers them, so from within a container with numbers of its own nothing can be told of one."""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path

_RECORD_BYTES = 8192
_RECORDS_MAX = 4096
"""Records that one look reads at most; the kernel's ring holds some thousands."""
_KEPT = 256
_TEXT_MAX = 4000
_TELLING = re.compile(
    r"\bxid\b|out of memory|oom-kill|killed process|general protection|segfault", re.IGNORECASE
)
_HOSTS_PIDS = "pid:[4026531836]"
"""The first PID namespace (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h)."""


class KernelRecords:
    """The records of the kernel's log that fit a pattern, from the moment on at which this is made.

    `reason`: why they cannot be read; "": they can."""

    def __init__(self, path: Path, telling: re.Pattern[str]) -> None:
        self._descriptor, self.reason, self._telling = -1, "", telling
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.reason = f"{path}: {error.strerror}"
            self.close()

    def close(self) -> None:
        """Close the kernel's log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def new(self) -> list[str]:
        """The text of each telling record that was written since this was asked last."""
        found: list[str] = []
        for _ in range(_RECORDS_MAX if self._descriptor >= 0 else 0):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except (
                BrokenPipeError
            ):  # the ring has overwritten records that were not read: go on with the next
                continue
            except OSError as error:
                self.reason = f"the kernel's log: {error.strerror}"
                self.close()
                break
            if not record:
                break
            text = record.decode(errors="replace").partition(";")[2].partition("\n")[0]
            if self._telling.search(text):
                found.append(text)
        return found


class KernelLog:
    """The newest lines of the kernel's log that may tell of a process, from the moment on at which this is
    made.

    `reason`: why they cannot be read; "": they can."""

    def __init__(self, path: Path = Path("/dev/kmsg"), namespace: Path = Path("/proc/self/ns/pid")) -> None:
        self._own_numbers = _numbers_by_itself(namespace)
        self._records = None if self._own_numbers else KernelRecords(path, _TELLING)
        self._lines: deque[str] = deque(maxlen=_KEPT)

    @property
    def reason(self) -> str:
        """Why nothing can be told of a process; "": something can."""
        return self._own_numbers if self._records is None else self._records.reason

    def naming(self, pid: int) -> str:
        """The telling lines that name this process, the newest last."""
        if self._records is not None:
            self._lines.extend(self._records.new())
        named = re.compile(rf"\b(?:pid[=:]? ?|process |\[){pid}\b", re.IGNORECASE)
        return "\n".join(line for line in self._lines if named.search(line))[-_TEXT_MAX:]

    def close(self) -> None:
        """Close the kernel's log."""
        if self._records is not None:
            self._records.close()


def _numbers_by_itself(namespace: Path) -> str:
    """Why the kernel's numbers of processes are not those of this container; "": they are."""
    try:
        same = os.readlink(namespace) == _HOSTS_PIDS
    except OSError as error:
        return f"{namespace}: {error.strerror}"
    return "" if same else "this container numbers processes by itself"
