"""Check jobs whose replicas differ. One that acts on that (`--on-corrupt-state act`) never ends with what
descends from such a state, however late the report of it came. One that only reports it goes on, by its
user's wish, with states of which nobody knows which replica is right.

What may be: it goes on from memory with a state in doubt, and with a checkpoint in doubt if no other one is
left. What must be: a state in doubt counts as any other, so the report itself costs no step; the reason of a
restore says that its state is in doubt; what is computed from it is in doubt, too. What must never be: a
checkpoint in doubt is read while one is left of which nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import events as ev
from controlplane.core.records.model import Tier
from tests.sim import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.model import Fault, Generation
    from tests.sim.world import World


class Doubts:
    """Watches a world. Every method raises AssertionError when a rule is broken."""

    def __init__(self, world: World) -> None:
        self.world = world
        # Generation -> its job, and the step and the generation that computed the state it began with.
        self.starts: dict[int, tuple[str, int, int]] = {}
        self.unread: set[str] = set()  # checkpoints that could not be loaded once, so that others were tried

    @property
    def reports(self) -> bool:
        """Whether this job goes on with states in doubt."""
        return self.world.spec.on_corrupt_state != numbers.ACT

    def event(self, event: ev.Event) -> None:
        """Note a checkpoint that was found unreadable."""
        if isinstance(event, ev.Loaded) and event.reason:
            self.unread.add(event.checkpoint)

    def chosen(self, generation: Generation, windows: Sequence[Fault]) -> None:
        """A generation is on its way into etcd, and with it the windows that its leader knows: check what it
        says of its state, and that it was the right one to take."""
        resume = generation.resume
        older = [window for window in windows if window.generation < generation.number]
        if not _hit(older, resume.step, resume.born):
            return
        where = f"generation {generation.number} goes on from step {resume.step}, in doubt"
        assert "it is suspect" in resume.reason, f"{where}, and does not say so: {resume.reason}"
        if resume.tier is Tier.CHECKPOINT:
            sound = self._sound(generation.job, older)
            assert not sound, f"{where}, although checkpoints {sound} are good and in no doubt"

    def formed(self, generation: Generation, line: str) -> None:
        """A generation begins from a state of this lineage."""
        self.starts[generation.number] = generation.job, generation.resume.step, numbers.born(line)

    def finished(self) -> None:
        """At the end: what was computed from a state in doubt is in doubt, however late the report of that
        state came, and every checkpoint in doubt that is left has its mark in etcd."""
        if not self.reports:
            self._gone_back()
        for number, (job, step, born) in self.starts.items():
            windows = self.world.etcd.states[job].suspect_states
            if _hit(windows, step, born):
                where = f"generation {number} went on from step {step} of generation {born}, in doubt"
                assert _hit(windows, step, number), f"{where}, and what it made is not"
        for (job, name), record in self.world.etcd.checkpoints.items():
            doubted = _hit(self.world.etcd.states[job].suspect_states, record.step, record.generation)
            assert not doubted or record.suspect or record.bad, (
                f"checkpoint {name} is in doubt, and not marked"
            )

    def _gone_back(self) -> None:
        """A job that acts: what this leader was told speaks against no state that the last ranks went on
        from."""
        told, number = self.world.safety.faults_told(self.world.term), max(self.starts, default=0)
        while number in self.starts:
            _, step, born = self.starts[number]
            where = f"generation {number} went on from step {step} of generation {born}, and was not stopped"
            assert not _hit([each for each in told if each.generation < number], step, born), where
            number = born

    def _sound(self, job: str, windows: Sequence[Fault]) -> list[str]:
        """The checkpoints that could be read instead."""
        storage = self.world.storage
        return [
            name
            for (its, name), record in self.world.etcd.checkpoints.items()
            if its == job and record.published and not record.bad and not record.suspect
            and storage.whole(name) and name not in self.unread and name not in storage.rotten
            and not _hit(windows, record.step, record.generation)
        ]  # fmt: skip


def _hit(windows: Sequence[Fault], step: int, born: int) -> bool:
    """Whether replicas are known to have differed in the state of this generation after so many steps."""
    return any(
        step >= each.step and born <= each.generation and (not each.last_step or step <= each.last_step)
        for each in windows
    )
