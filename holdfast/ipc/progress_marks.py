"""Mark on the progress page what this rank is doing. Its agent judges its progress by these marks."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.ipc.progress_page import ACTIVITIES, DECLARED, PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.ipc.progress_page import ProgressPage

IN_PHASE = {
    "barrier": "none",
    "forming": "none",
    "finished": "none",
    "snapshot": "checkpoint",
    "between": "step",
}
"""The activity as which the agent judges a phase. Phases within a step are not marked."""

_CODE = {name: code for code, name in enumerate(ACTIVITIES)}
_PHASE = {name: code for code, name in enumerate(PHASES)}
_NONE, _FIRST, _STEP, _AFTER = (_CODE[name] for name in ("none", "first", "step", "after"))


class ProgressMarks:
    """Marks the page of one rank; without a page it does nothing."""

    def __init__(self, page: ProgressPage | None) -> None:
        self._page = page
        self._activity = _NONE
        self._limit_ns = 0

    @property
    def in_step(self) -> bool:
        """Whether the rank is in a step, and in nothing that the script has declared."""
        return self._activity in (_FIRST, _STEP)

    def mark(self, activity: str) -> None:
        """End the present activity and begin this one, or the next part of the same."""
        self._set(_CODE[activity], 0)

    def show(self, phase: str) -> None:
        """Show the phase that the rank is in. Phases within a step are not marks."""
        if self._page is not None:
            self._page.phase = _PHASE[phase]
            if phase in IN_PHASE:
                self.mark(IN_PHASE[phase])

    def begin_step(self) -> None:
        """Begin a step: the same activity goes on. After an earlier loop over steps it is a step again."""
        if self._activity == _AFTER:
            self._activity, self._limit_ns = _STEP, 0
        self.show("forward")
        self._set(self._activity, self._limit_ns)

    def close(self) -> None:
        """Stop writing to the page."""
        self._page = None

    @contextlib.contextmanager
    def phase(self, name: str, timeout_s: float | None) -> Iterator[None]:
        """Declare what is done within. Raises SessionError for an unknown name or an impossible time."""
        if name not in DECLARED:
            raise SessionError(f"phase: {name!r:.80} must be one of {', '.join(DECLARED)}")
        if timeout_s is not None and not 0 < timeout_s < 1e9:
            raise SessionError(f"phase: timeout_s must be a number of seconds above 0, not {timeout_s!r:.80}")
        before, limit_ns = self._activity, self._limit_ns
        self._set(_CODE[name], round((timeout_s or 0.0) * 1e9))
        try:
            yield
        finally:
            self._set(before, limit_ns)

    def _set(self, activity: int, limit_ns: int) -> None:
        self._activity, self._limit_ns = activity, limit_ns
        if self._page is not None:
            self._page.mark(time.monotonic_ns(), activity, limit_ns)
