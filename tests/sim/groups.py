"""Simulate the groups that ranks form: they meet, restore, and step together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.model import MemberPhase
from tests.sim.ranks import IN_GROUP
from tests.sim.restores import robbed, source_line

if TYPE_CHECKING:
    from controlplane.core.records.model import Generation
    from tests.sim.ranks import Rank
    from tests.sim.world import World

STEPS_MEASURED = 3
"""After so many steps in a generation its ranks take snapshots more often, with `--snapshot-every auto`."""


class Group:
    """One generation among the living processes: they meet, restore, and step together."""

    def __init__(self, world: World, generation: Generation) -> None:
        self.world = world
        self.generation = generation
        self.members: dict[int, Rank] = {}
        self.formed = False
        self.line = ""  # the lineage of every state that is computed in it
        self.often = False  # the ranks have agreed to take snapshots more often than the job asks for
        self.full = False  # the ranks have agreed that none takes a snapshot after this step

    @property
    def whole(self) -> bool:
        """Whether every place is taken by a rank that can take part in a collective."""
        here = len(self.members) == self.generation.world_size and all(
            rank.phase in IN_GROUP and rank.generation == self.generation.number and not rank.stopped
            for rank in self.members.values()
        )
        return here and not self.parted

    @property
    def parted(self) -> bool:
        """Whether two of its nodes do not reach each other."""
        nodes = list(dict.fromkeys(rank.agent.name for rank in self.members.values()))
        return not self.world.parts.whole(nodes)

    def join(self, seat: int, rank: Rank) -> None:
        """Note that a rank is at the meeting place."""
        self.members[seat] = rank
        if self.whole and not self.formed:
            self.world.clock.after(self.world.rng.uniform(0.02, 0.2), self._form)

    def _form(self) -> None:
        if not self.whole or self.formed:
            return
        resume = self.generation.resume
        if reader := robbed(self):
            why = "there is no such arena"
            reader.say("restore_failed", generation=self.generation.number, reason=why)
            return
        line = source_line(self)
        self.world.safety.formed(self, line)
        self.formed = True
        self.line = f"{line.split(' of ')[0]} of generation {self.generation.number}"
        for rank in self.members.values():
            rank.placed(resume.step, line, self.generation.number)
            if self.world.ends(rank.held):
                rank.finish()
        self.world.clock.after(self.world.step_s, self._step)

    def _step(self) -> None:
        """All reduce together; each then finishes its own optimizer a moment later."""
        for rank in self.members.values():
            if rank.halt >= self.generation.number and rank.phase is MemberPhase.RUNNING:
                rank.leave_group()
        if not self.whole or any(r.phase is not MemberPhase.RUNNING for r in self.members.values()):
            self._break()
            return
        if any(rank.hung for rank in self.members.values()):
            self.world.clock.after(self.world.step_s, self._step)
            return
        self._agree()
        self.world.safety.stepped(self)
        self.world.liveness.stepped(self)
        for rank in self.members.values():
            delay = self.world.rng.uniform(0.0, 0.05)
            self.world.clock.after(delay, lambda r=rank: self._finish(r))  # type: ignore[misc]
        self.world.clock.after(self.world.step_s, self._step)

    def _finish(self, rank: Rank) -> None:
        number = self.generation.number
        if rank.phase is not MemberPhase.RUNNING or rank.generation != number or rank.stopped:
            return
        world = self.world
        rank.settle()  # before the optimizer's step
        rank.held, rank.board, rank.line = rank.held + 1, rank.held + 1, self.line
        rank.done = rank.held
        rank.gaps.append(world.clock.now - rank.marked_at)
        rank.marked_at = world.clock.now
        world.safety.completed(rank)
        if rank.held == self.generation.resume.step + 1:
            step = rank.held - 1
            rank.say("started", generation=number, step=step, form_s=0.1, restore_s=0.1, first_step_s=0.1)
        if world.ends(rank.held):
            rank.finish()
        elif rank.held in world.ask_steps or (self._due(rank.held) and not self.full):
            rank.save(agreed=rank.held not in world.ask_steps)
        if rank.held in world.ask_steps:
            rank.ask(f"{rank.name}-at-{rank.held}-in-{number}")

    def _agree(self) -> None:
        """With `often`, agree on snapshots as `holdfast.agreement.snapshot_turns` does.

        Else ranks go different ways more often, which must not harm either."""
        if not self.world.options.often:
            return
        ranks = list(self.members.values())
        completed = min(rank.held for rank in ranks) + 1
        rows = [rank.row(completed) for rank in ranks]
        offer = completed % self.world.spec.snapshot_every == 0
        go = {rank.letting_go.learn(rows, completed, offer=offer) for rank in ranks}
        keep = {(rank.letting_go.keep, rank.letting_go.offer) for rank in ranks}
        assert len(go) == len(keep) == 1, "the ranks have decided on different things"
        self.world.safety.kept = max(self.world.safety.kept, ranks[0].letting_go.keep)
        decided = ranks[0].letting_go.decides
        self.full = go == {False} or not (decided or all(rank.has_slot for rank in ranks))
        measured = completed - 1 - self.generation.resume.step > STEPS_MEASURED
        self.often = measured and self.world.spec.snapshot_auto
        for rank in ranks:
            rank.letting_go.on = rank.letting_go.on or self.often or self.world.shards > 1

    def _due(self, held: int) -> bool:
        return self.often or held % self.world.spec.snapshot_every == 0

    def _break(self) -> None:
        """A peer is gone: some of its neighbours see their connection break, the others hang."""
        silent = any(rank.stopped for rank in self.members.values())
        for rank in self.members.values():
            still = rank.phase is MemberPhase.RUNNING and rank.generation == self.generation.number
            sees = rank.rank == 0 and self.parted  # nobody is dead, but one rank's connection breaks at last
            if still and not rank.stopped and not silent and (sees or self.world.rng.random() < 0.5):
                rank.say("broken", generation=rank.generation, message="connection closed by peer")
                rank.leave_group()
