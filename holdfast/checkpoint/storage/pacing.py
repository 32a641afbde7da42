"""Limit bandwidth: bytes per second for all threads that share a pace."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 256 << 10
"""A chunk is let through in pieces of this size, so that it is spread over its time."""
_BURST_S = 0.05
_SO_MAX_PACING_RATE = 47  # Linux; the socket module has no name for it


class UploadPace:
    """A token bucket. Rate 0 lets everything through. Threads share it."""

    def __init__(self, bytes_per_s: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.bytes_per_s = 0.0
        self.set(bytes_per_s)

    def set(self, bytes_per_s: float) -> None:
        """Change the rate; 0: no limit. Raises ValueError for a negative one."""
        if bytes_per_s < 0:
            raise ValueError(f"{bytes_per_s} bytes per second is not a valid rate; 0 means no limit")
        with self._lock:
            self.bytes_per_s = bytes_per_s
            self._free_at = 0.0

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.bytes_per_s > 0

    def take(self, nbytes: int, stop: threading.Event | None = None) -> None:
        """Wait until these bytes may go: until those taken before have had their time, or `stop` is set."""
        wait_s = self._reserve(nbytes, time.monotonic())
        if wait_s <= 0:
            return
        if stop is None:
            time.sleep(wait_s)
        else:
            stop.wait(wait_s)

    def _reserve(self, nbytes: int, now: float) -> float:
        """Claim the next free time. Returns the seconds until then."""
        with self._lock:
            if not self.limited:
                return 0.0
            start = max(self._free_at, now - _BURST_S)
            self._free_at = start + nbytes / self.bytes_per_s
            return start - now


uploads = UploadPace()
"""The pace of all uploads of this process; set from `upload_bytes_per_s`."""
scrubs = UploadPace()
"""The pace of all scrubbing reads of this process."""


def socket_factory(pace: UploadPace) -> Callable[[Any], socket.socket]:
    """Make sockets that the kernel never lets send faster than `pace`: each chunk is spread out."""

    def create(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        if pace.limited:
            made.setsockopt(
                socket.SOL_SOCKET, _SO_MAX_PACING_RATE, min(int(pace.bytes_per_s) or 1, 0xFFFFFFFE)
            )
        return made

    return create
