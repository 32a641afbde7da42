"""What etcd holds, and the promises that a leader must keep towards it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core import events as ev

if TYPE_CHECKING:
    from controlplane.core import effects as fx
    from controlplane.core.model import (
        CheckpointRecord,
        Generation,
        JobSpec,
        JobState,
        LemonRecord,
        NodeMarks,
    )


@dataclass
class Etcd:
    """Records by job, the term that may write, and every generation that was ever written."""

    term: int = 0
    fences: bool = True  # compares the term of every write
    specs: dict[str, JobSpec] = field(default_factory=dict)
    states: dict[str, JobState] = field(default_factory=dict)
    generations: dict[str, Generation] = field(default_factory=dict)
    checkpoints: dict[tuple[str, str], CheckpointRecord] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    lemons: dict[str, LemonRecord] = field(default_factory=dict)
    marks: dict[str, NodeMarks] = field(default_factory=dict)
    written: list[Generation] = field(default_factory=list)

    def put(self, effect: fx.Store) -> bool:
        """Take one transaction; False when its term is over."""
        if self.fences and effect.term != self.term:
            return False
        if effect.lemon is not None:
            self.lemons[effect.lemon.node] = effect.lemon
        if effect.spec is not None:
            self.specs[effect.job] = effect.spec
        if effect.state is not None:
            self.states[effect.job] = effect.state
        if effect.generation is not None:
            self._generation(effect.generation)
        if effect.checkpoint is not None:
            self._checkpoint(effect.checkpoint)
        for name in effect.forget:
            self.checkpoints.pop((effect.job, name), None)
        if effect.node:
            self.nodes[effect.node] = effect.node_state
            if effect.marks is not None:
                self.marks[effect.node] = effect.marks
        return True

    def _generation(self, new: Generation) -> None:
        old = self.generations.get(new.job)
        nodes = len({seat.node for seat in new.seats})
        assert nodes >= self.specs[new.job].nnodes_min, f"{new.number} has {nodes} nodes only"
        if old is not None:
            assert new.term >= old.term, f"term {new.term} writes over term {old.term}"
            first_form = new.number == old.number and not old.store
            same = new == old
            assert new.number > old.number or first_form or same, f"{new.number} after {old.number}"
        self.generations[new.job] = new
        self.written.append(new)

    def _checkpoint(self, new: CheckpointRecord) -> None:
        old = self.checkpoints.get((new.job, new.id))
        if old is not None:
            assert old.manifest_digest == new.manifest_digest, f"checkpoint {new.id} was overwritten"
            assert new.published >= old.published or new.bad, f"checkpoint {new.id} was unpublished"
        self.checkpoints[(new.job, new.id)] = new

    def elect(self) -> ev.Elected:
        """The next leader's first event."""
        self.term += 1
        return ev.Elected(
            term=self.term,
            nodes=tuple(self.nodes),
            specs=tuple(self.specs.values()),
            states=tuple(self.states.values()),
            generations=tuple(self.generations.values()),
            checkpoints=tuple(self.checkpoints.values()),
            marks=tuple(self.marks.values()),
            lemons=tuple(self.lemons.values()),
        )
