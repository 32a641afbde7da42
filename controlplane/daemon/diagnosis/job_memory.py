"""Hold what the diagnosis of one leader term remembers of one job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.analysis.live.curves import JobCurves
from controlplane.analysis.live.eta import EtaMemory
from controlplane.analysis.live.slow_steps import SlowStepMemory

if TYPE_CHECKING:
    from controlplane.analysis.live.eta import WindowPace
    from controlplane.analysis.live.readings import JobWindow
    from controlplane.analysis.live.watch import JobWatch, LiveDiagnosis
    from controlplane.analysis.small_kernels import ProfiledKernels
    from controlplane.core.records.diagnosis import OpenFinding
    from controlplane.core.records.evidence import ReplicasReported


@dataclass(slots=True)
class JobMemory:
    """What windows, comparisons of replicas and profiles of a job have shown."""

    watch: JobWatch | None = None  # None: no window was judged yet
    newest: LiveDiagnosis | None = None  # of the newest window
    curves: JobCurves = field(default_factory=JobCurves)
    eta: EtaMemory | None = None  # None: no rank has reported a step yet
    slow_steps: SlowStepMemory = field(default_factory=SlowStepMemory)
    reported: tuple[OpenFinding, ...] = ()  # what the core has heard to be open
    began_s: float | None = None  # when the window began that is collected now; None: the first one
    dispute: ReplicasReported | None = None  # the newest comparison that was shown
    profiled: dict[int, ProfiledKernels] = field(default_factory=dict)  # the newest profile, by rank

    def take_pace(self, window: JobWindow, pace: WindowPace) -> None:
        """Take in a window, and how fast its ranks went, for the forecast of the job's end."""
        if self.eta is None:
            self.eta = EtaMemory()
        self.eta.take(window, pace)
