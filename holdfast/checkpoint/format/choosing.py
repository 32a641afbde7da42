"""Decide by measurement whether compression pays: the time it takes against the time it saves."""

from __future__ import annotations

import threading
from dataclasses import dataclass

_STEADY = 0.8
"""The weight of an average's old value when a new measurement comes in."""
_FIRST = 4
"""Uploads that are measured before anything is decided."""
_SAMPLE_EVERY = 64
_MARGIN = 1.25
"""The gain that is needed to change the choice, either way."""


def pays(upload_bytes_per_s: float, codec_bytes_per_s: float, ratio: float, now: bool) -> bool:
    """Whether to compress.

    Speeds are those of one worker, the codec's in raw bytes. `ratio`: stored bytes by raw bytes. `now`: the
    present choice, which stays unless the other one is better by a margin."""
    saved_s, spent_s = (1.0 - ratio) / upload_bytes_per_s, 1.0 / codec_bytes_per_s
    return saved_s * _MARGIN >= spent_s if now else saved_s >= spent_s * _MARGIN


@dataclass(slots=True)
class _Average:
    """An exponential moving average."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.value = value if not self.count else _STEADY * self.value + (1 - _STEADY) * value
        self.count += 1


class Meter:
    """Measures uploads and the codec, and chooses. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._upload, self._codec, self._ratio = _Average(), _Average(), _Average()
        self._asked = 0
        self.compressing = False

    def choose(self) -> bool:
        """Whether to compress the next chunk; now and then also in order to measure the codec."""
        with self._lock:
            self._asked += 1
            if not self._codec.count or self._asked % _SAMPLE_EVERY == 0:
                return True
            if self._upload.count >= _FIRST:
                self.compressing = pays(
                    self._upload.value, self._codec.value, self._ratio.value, self.compressing
                )
            return self.compressing

    def uploaded(self, nbytes: int, duration_s: float) -> None:
        """Record an upload of `nbytes`."""
        with self._lock:
            self._upload.add(nbytes / max(duration_s, 1e-6))

    def encoded(self, nbytes: int, stored: int, duration_s: float) -> None:
        """Record a compression of `nbytes` raw bytes to `stored` bytes."""
        with self._lock:
            self._codec.add(nbytes / max(duration_s, 1e-6))
            self._ratio.add(stored / nbytes)
