"""Forecast when a job's training ends: the steps that are left times what a step takes. Pure.

What a step takes is the median over the newest steps (STEPS_S), without what the script declares within
them; to it comes the mean of the evaluations and checkpoints that it declares (DECLARED_S). So neither a slow
step nor a single evaluation makes the date jump. The whole is divided by the share of the last hour that no
failure took, which the caller knows. Steps of another number of ranks do not count. The date rests on the
moment when the newest step was seen, not on now."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from controlplane.analysis.live.readings import JobWindow

STEPS_S = 600.0
"""The step time is the median over the steps of the newest ten minutes, or of the newest LEAST_STEPS."""
DECLARED_S = 3600.0
"""What the script declares is the mean over the newest hour."""
LEAST_STEPS = 10
"""Fewer steps say nothing about those that follow."""
WINDOWS_MAX = 720
UNKNOWN_KINDS: dict[str, tuple[str, str]] = {
    "none": ("no loop yet", "the script has begun no loop over steps"),
    "several": (
        "no total",
        "the script runs several loops, and names no total: Session(total_steps=...)",
    ),
    "open": ("no total", "the script names no total: Session(total_steps=...)"),
    "beyond": ("wrong total", "the loop that runs ends after the total_steps that the script names"),
    "older SDK": ("older SDK", "the SDK of its ranks is older than forecasts of the end: update it"),
    "newer SDK": (
        "newer SDK",
        "the SDK of its ranks says something that the agents do not know: update them",
    ),
}
"""By what ranks say of their end (`holdfast.ipc.pages.training_end`): why it is not known, short and as a
sentence."""
KNOWN_KINDS = ("job", "loop", "trainer")


@dataclass(frozen=True, slots=True)
class Eta:
    """When the training ends. `at_s`: Unix time; None: not known, and `word` and `reason` say why."""

    at_s: float | None = None
    word: str = ""
    reason: str = ""
    end_step: int = 0  # 0: not known
    of: str = ""  # what ends there: one of KNOWN_KINDS; "": not known


class WindowPace(NamedTuple):
    """How fast a typical rank went in a window. `step_s`: of one step, without `declared_s`, which is what
    the script declares as evaluation and checkpoints in all `steps` of them."""

    completed: int  # steps of the job, at the end of the window; -1: not known
    steps: float
    step_s: float
    declared_s: float


NO_PACE = WindowPace(-1, 0.0, 0.0, 0.0)


class EtaMemory:
    """What the windows of one job have shown, over its generations."""

    def __init__(self) -> None:
        self._windows: deque[tuple[float, WindowPace]] = deque(maxlen=WINDOWS_MAX)
        self._ranks = 0
        self._ends: frozenset[tuple[str, int]] | None = None
        self._completed, self._seen_s = -1, 0.0

    def take(self, window: JobWindow, pace: WindowPace) -> None:
        """Take in a window, and how fast its ranks went."""
        if window.ranks_expected != self._ranks:
            self._ranks = window.ranks_expected
            self._windows.clear()
        if window.ends is not None:
            self._ends = window.ends
        if pace.steps > 0:
            self._windows.append((window.ended_s, pace))
            self._completed, self._seen_s = pace.completed, window.ended_s
        while self._windows and self._windows[0][0] < window.ended_s - DECLARED_S:
            self._windows.popleft()

    def eta(self, kept_share: float) -> Eta:
        """When the training ends, while it goes on. `kept_share`: of the last hour, what no failure took."""
        end = self._end()
        if end.at_s is not None or not end.end_step:
            return end
        step_s = self._step_s()
        if step_s is None:
            return Eta(None, "too early", f"fewer than {LEAST_STEPS} steps were seen", end.end_step, end.of)
        left = max(0, end.end_step - self._completed)
        return Eta(self._seen_s + left * step_s / max(kept_share, 0.01), "", "", end.end_step, end.of)

    def _end(self) -> Eta:
        """At which step it ends; or why that is not known."""
        if self._ends is None:
            return Eta(None, "no steps yet", "no rank has reported a step yet")
        if not self._ends:
            return Eta(None, "older agent", "its agents are older than forecasts of the end: update them")
        unknown = sorted(kind for kind, _ in self._ends if kind not in KNOWN_KINDS)
        if unknown:
            newer = "newer agent", f"its agents say {unknown[0]!r:.40}, which this coordinator does not know"
            return Eta(None, *UNKNOWN_KINDS.get(unknown[0], newer))
        kind, step = max(self._ends)
        if len(self._ends) > 1 and {each for each, _ in self._ends} != {"trainer"}:  # those agree roughly
            steps = ", ".join(str(step) for _, step in sorted(self._ends)[:4])
            return Eta(None, "unclear", f"its ranks name different ends: steps {steps}")
        return Eta(None, "", "", step, kind)

    def _step_s(self) -> float | None:
        """What one of the newest steps takes, with what is declared; None: too few were seen."""
        newest: list[WindowPace] = []
        seen = 0.0
        for ended_s, pace in reversed(self._windows):
            if ended_s < self._windows[-1][0] - STEPS_S and seen >= LEAST_STEPS:
                break
            newest.append(pace)
            seen += pace.steps
        if seen < LEAST_STEPS:
            return None
        declared_s = sum(pace.declared_s for _, pace in self._windows)
        steps = sum(pace.steps for _, pace in self._windows)
        below = 0.0
        for pace in sorted(newest, key=lambda each: each.step_s):
            below += pace.steps
            if below >= seen / 2:
                return pace.step_s + declared_s / steps
        raise AssertionError("half of the steps are not below the slowest of them")
