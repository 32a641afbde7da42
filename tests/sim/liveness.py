"""Check what must go on: a training job's snapshots and checkpoints keep coming once faults have stopped.

Snapshots are released at their cadence, and with a storage checkpoints are committed at theirs, within a
bound of virtual seconds. This looks from outside the core, at the ranks and at what was committed. The bounds
leave room for what may rightly be in the way (a slot that is read, a skew that is being repaired), but none
for the core's own watch over what is overdue: that is a safety net, and a job that falls into it has failed
here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim import fencing

if TYPE_CHECKING:
    from tests.sim.groups import Group
    from tests.sim.world import World

SNAPSHOTS_S = 20.0
CHECKPOINTS_S = 24.0
STEPS = 4
"""This many times the steps between two of them must also have passed."""

FURTHER = 140
"""How many more steps a job makes that still trains when faults stop, so that it can be watched."""


class Stalled(AssertionError):
    """Training goes on, and nothing of it is kept."""


class Liveness:
    """Watches the snapshots and checkpoints of a training job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.looked = 0  # steps at which it was checked
        self._since: dict[str, tuple[tuple[int, int], float, int]] = {}  # what -> (newest, s, step)

    def calm(self) -> None:
        """Faults stop: a job that trains continues long enough to see that its state is kept."""
        world = self.world
        ranks = [rank for agent in world.agents for rank in agent.ranks.values()]
        if ranks and all(rank.held < world.steps - 1 for rank in ranks):
            world.steps += FURTHER

    def stepped(self, group: Group) -> None:
        """A group begins another step."""
        world, spec = self.world, self.world.spec
        heard = all(fencing.reached(rank.agent) for rank in group.members.values())
        if world.faults_on or not heard or not self._quiet():  # without an agent nothing can be kept
            self._since.clear()
            return
        number, ranks = group.generation.number, list(group.members.values())
        step = min(rank.held for rank in ranks)
        self.looked += 1
        kept = min(rank.released for rank in ranks)
        if any(rank.name == name for rank in ranks for name, _ in rank.agent.reads):
            self._since.pop("snapshot", None)  # a slot is being read: having no room is right
        self._demand("snapshot", (number, kept), step, spec.snapshot_every, SNAPSHOTS_S)
        if spec.storage:
            choice = world.cluster.state.jobs["j"].checkpoints.choice if world.cluster else None
            auto_s = 2 * choice.interval_s if spec.checkpoint_auto and choice else 0.0
            mark = (number, len(world.safety.committed) + world.quiet_failures)
            self._demand("checkpoint", mark, step, spec.checkpoint_every, CHECKPOINTS_S + auto_s)

    def _demand(self, what: str, mark: tuple[int, int], step: int, every: int, bound_s: float) -> None:
        now = self.world.clock.now
        before, at, first = self._since.get(what, ((0, 0), 0.0, 0))
        if before != mark:
            self._since[what] = (mark, now, step)
            return
        if now > at + bound_s and step >= first + STEPS * every:
            where = f"steps {first} to {step} of generation {mark[0]}"
            raise Stalled(f"no {what} for {now - at:.1f} s, {where}: {self._state()}")

    def _quiet(self) -> bool:
        """Whether no fault has effects any more: every node that is away was given up."""
        state = self.world.cluster.state if self.world.cluster else None
        if state is None or state.dcs_trouble or self.world.stops:
            return False
        for agent in self.world.agents:
            if fencing.reached(agent):
                continue
            node = state.nodes.get(agent.name)
            if agent.up or (node is not None and node.state != "lost"):
                return False
        return not any(rank.wedged for agent in self.world.agents for rank in agent.ranks.values())

    def _state(self) -> str:
        job = self.world.cluster.state.jobs["j"] if self.world.cluster else None
        if job is None:
            return "no leader"
        flying = {saving.id: saving.stage.value for saving in job.checkpoints.savings.values()}
        copied = job.snapshots
        return f"released {copied.released}, void {copied.voided}, held {copied.held}, in flight {flying}"
