"""What must never happen, looked at from outside the core: in the ranks, in etcd, on the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core import effects as fx
from controlplane.core.model import NO_STEP, Tier

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.ranks import Group, Rank
    from tests.sim.world import World


class Safety:
    """Watches a world. Every method raises AssertionError on what must not be."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.newest: dict[str, int] = {}  # job -> newest generation that formed
        self.best: dict[tuple[str, str], int] = {}  # (job, lineage) -> newest completed step
        self.committed: dict[str, int] = {}  # checkpoint -> step
        self.bad: set[str] = set()
        self.forms = 0

    def effect(self, effect: fx.Effect) -> None:
        """An effect leaves the leader."""
        check = CHECKS.get(type(effect))
        if check is not None:
            check(self, effect)

    def form(self, effect: fx.Form) -> None:
        assert effect.generation in self.world.etcd.written, "a Form names a generation that etcd never saw"
        assert effect.generation.store, "a Form names no place to meet"

    def launch(self, effect: fx.Launch) -> None:
        if effect.generation is not None:
            assert effect.generation in self.world.etcd.written, "a Launch names a generation etcd never saw"

    def checkpoint(self, effect: fx.CheckpointChanged) -> None:
        if effect.outcome == "bad":
            self.bad.add(effect.checkpoint)
        if effect.outcome != "committed" or effect.record is None:
            return
        held = self.world.etcd.checkpoints[(effect.job, effect.checkpoint)]
        assert held.published and not held.bad, f"{effect.checkpoint} is committed, but etcd says otherwise"
        assert effect.checkpoint in self.world.storage.lines, f"{effect.checkpoint} has no manifest"
        self.committed[effect.checkpoint] = effect.record.step

    def formed(self, group: Group) -> None:
        """All members met: is it the newest, and does it start where the newest clean state is?"""
        generation = group.generation
        newest = self.newest.get(generation.job, 0)
        assert generation.number >= newest, f"generation {generation.number} forms after {newest}"
        self.newest[generation.job] = generation.number
        self.forms += 1
        resume = generation.resume
        best = max(rank.held for rank in group.members.values())
        assert resume.step >= best, f"resumes at {resume.step}, a living replica holds {best}"
        if resume.tier is not Tier.FRESH:
            return
        reader = group.members[resume.rank]
        assert reader.generation == generation.number
        if self.world.line_count:
            left = [name for name in self.committed if name not in self.bad]
            assert not left, f"begins again although checkpoints {left} are good"

    def stepped(self, group: Group) -> None:
        """A collective went through: only the newest formed generation may do that."""
        number, newest = group.generation.number, self.newest[group.generation.job]
        assert number == newest, f"generation {number} trains while {newest} has formed"
        held = {(rank.held, rank.line) for rank in group.members.values()}
        steps = sorted({step for step, _ in held})
        assert len({line for _, line in held}) == 1, f"states of several lineages meet: {held}"
        assert len(steps) == 1 and steps[0] > NO_STEP, f"ranks at several steps meet: {steps}"

    def completed(self, rank: Rank) -> None:
        """A rank completed a step."""
        key = (rank.spec.job, rank.line)
        best = self.best.get(key, 0)
        self.best[key] = max(best, rank.held)

    def finished(self) -> None:
        """At the end: nothing that was committed is lost, and every rank of the job is at the last step."""
        etcd = self.world.etcd
        for name in self.committed:
            record = etcd.checkpoints[(self.world.spec.job, name)]
            assert record.published, f"committed checkpoint {name} is lost"
            assert not record.bad or name in self.world.storage.rotten or name in self.bad
        if self.world.elastic and self.world.spec.storage and not self.world.quiet_failures:
            best = max((s for n, s in self.committed.items() if n not in self.bad), default=0)
            assert best == self.world.steps, f"finished, but the newest checkpoint is of step {best}"


CHECKS: dict[type[Any], Callable[[Safety, Any], None]] = {
    fx.Form: Safety.form,
    fx.Launch: Safety.launch,
    fx.CheckpointChanged: Safety.checkpoint,
}
