"""Read the lines of the kernel's log that name a process: its OOM killer, and Xid errors of GPUs.

`/dev/kmsg` is readable for root, or where the kernel allows it to all. The kernel names processes as the
machine numbers them, so from within a container with numbers of its own nothing can be told."""

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


class KernelLog:
    """The newest telling lines of the kernel's log, from the moment on at which this is made.

    `reason`: why it cannot be read; "": it can."""

    def __init__(self, path: Path = Path("/dev/kmsg"), namespace: Path = Path("/proc/self/ns/pid")) -> None:
        self._descriptor, self.reason = -1, ""
        self._lines: deque[str] = deque(maxlen=_KEPT)
        try:
            if os.readlink(namespace) != _HOSTS_PIDS:
                self.reason = "this container numbers processes by itself"
                return
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.reason = f"{path}: {error.strerror}"

    def naming(self, pid: int) -> str:
        """The telling lines that name this process, the newest last."""
        self._read()
        named = re.compile(rf"\b(?:pid[=:]? ?|process |\[){pid}\b", re.IGNORECASE)
        return "\n".join(line for line in self._lines if named.search(line))[-_TEXT_MAX:]

    def close(self) -> None:
        """Close the kernel's log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        for _ in range(_RECORDS_MAX if self._descriptor >= 0 else 0):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                return
            except (
                BrokenPipeError
            ):  # the ring has overwritten records that were not read: go on with the next
                continue
            except OSError as error:
                self.reason = f"the kernel's log: {error.strerror}"
                self.close()
                return
            if not record:
                return
            text = record.decode(errors="replace").partition(";")[2].partition("\n")[0]
            if _TELLING.search(text):
                self._lines.append(text)
