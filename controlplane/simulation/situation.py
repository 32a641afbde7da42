"""What up nodes are busy with while nobody trains, and the booking of every span of time."""

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
"""The core's phase, and what its time is lost to; phases that are not here change nothing."""


class Situation:
    """Why nobody trains, if nobody does, and since when that is not booked."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.cause = "start"
        self.planned = False  # the core changes the job's size, and nothing failed
        self._since = 0.0

    def book(self) -> None:
        """Put the time since the last booking down to its causes."""
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
        """Nodes that are up and do not train."""
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
        """From now on nobody trains for this reason."""
        self.book()
        self.cause = cause

    def failed(self) -> None:
        """A rank of the job died."""
        self.book()
        self.scene.training.halt(self.scene.clock.now)
        if self.cause != "start":
            self.cause, self.planned = "detect", False

    def judged(self, effect: fx.Judged) -> None:
        """The core has a verdict."""
        self.planned = effect.verdict.cause is Cause.RESIZED
        self._go("stop")

    def changed(self, effect: fx.JobChanged) -> None:
        """The job's phase, as the core sees it."""
        cause = _PHASES.get(effect.state.phase)
        if cause is not None:
            self._go(cause)

    def restoring(self) -> None:
        """Groups are there, the state is on its way."""
        if self.cause == "reform":
            self._go("restore")

    def begun(self) -> None:
        """Training goes on from here."""
        self.book()
        self.cause, self.planned = "detect", False

    def _go(self, cause: str) -> None:
        if self.cause == "start":
            return
        self.become("resize" if self.planned and cause != "waiting" else cause)
