"""Book every span of node-time to a cause: training, or the reason why nodes that are up do not train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import Cause, JobPhase

if TYPE_CHECKING:
    from controlplane.core.records import effects as fx
    from controlplane.simulation.scene import Scene

_PHASES = {
    JobPhase.PENDING: "waiting",
    JobPhase.LAUNCHING: "stop",
    JobPhase.STOPPING: "stop",
    JobPhase.PARKED: "waiting",
    JobPhase.LOADING: "store",
    JobPhase.STORING: "store",
    JobPhase.FORMING: "reform",
}
"""What time is lost to in each phase of the job; phases that are not here change nothing."""


class SimulatedSituation:
    """The present cause of lost time, which counts while no rank trains.

    The cause is `start` until training begins for the first time."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.cause = "start"
        self.planned = False  # the open incident is a planned change: nothing failed
        self._since = 0.0

    def book(self) -> None:
        """Book the time since the last booking. Call it before anything changes that time depends on."""
        scene = self.scene
        now, since = scene.clock.now, self._since
        self._since = now
        if now <= since:
            return
        up, down = scene.setup.nodes - len(scene.down), len(scene.down)
        scene.ledger.add("down", since, now, down)
        if not scene.training.on:
            scene.ledger.add(self.cause, since, now, up)
            return
        for cause, count in self._idle(up).items():
            scene.ledger.add(cause, since, now, count)

    def _idle(self, up: int) -> dict[str, int]:
        """Return the nodes that are up while the job trains without them: their number by cause."""
        setup, seated = self.scene.setup, self.scene.training.nodes
        usable = min(up, setup.nodes_max)
        fit = usable // setup.nodes_per_replica * setup.nodes_per_replica
        joining = max(0, fit - seated)
        layout = max(0, min(usable - fit, up - seated - joining))
        return {
            "joining": joining,
            "idle_layout": layout,
            "idle_spare": max(0, up - seated - joining - layout),
        }

    def become(self, cause: str) -> None:
        """Book the time until now; from now on, time without training is lost to `cause`."""
        self.book()
        self.cause = cause

    def failed(self) -> None:
        """Note that a rank of the job died: training halts, and the failure is not detected yet."""
        self.book()
        self.scene.training.halt(self.scene.clock.now)
        if self.cause != "start":
            self.cause, self.planned = "detect", False

    def judged(self, effect: fx.Judged) -> None:
        """Note that the core has judged an incident."""
        self.planned = effect.verdict.cause is Cause.RESIZED
        self._go("stop")

    def changed(self, effect: fx.JobChanged) -> None:
        """Note the job's new phase."""
        cause = _PHASES.get(effect.state.phase)
        if cause is not None:
            self._go(cause)

    def restoring(self) -> None:
        """Note that the process groups stand and the state is being put in place."""
        if self.cause == "reform":
            self._go("restore")

    def begun(self) -> None:
        """Note that training goes on; the next loss of time would be a failure that is not detected yet."""
        self.book()
        self.cause, self.planned = "detect", False

    def _go(self, cause: str) -> None:
        if self.cause == "start":
            return
        self.become("resize" if self.planned and cause != "waiting" else cause)
