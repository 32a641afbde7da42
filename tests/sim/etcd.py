"""Simulate etcd, and check the promises that a leader must keep towards it.

What is written, and what the next leader reads of it, goes through the daemon's own records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership.rows import RecordMapping

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import CheckpointRecord, Generation, JobSpec, JobState, NodeMarks

EPOCH_S = 1_700_000_000.0
"""The Unix time at which the virtual clock is 0."""


@dataclass
class Etcd:
    """Keys and values, the term that may write, and every generation that was ever written.

    Facts that tests ask about are also kept as records."""

    term: int = 0
    fences: bool = True  # compares the term in every write
    values: dict[str, bytes] = field(default_factory=dict)
    records: RecordMapping = field(default_factory=lambda: RecordMapping(Keyspace("sim")))
    specs: dict[str, JobSpec] = field(default_factory=dict)
    states: dict[str, JobState] = field(default_factory=dict)
    generations: dict[str, Generation] = field(default_factory=dict)
    checkpoints: dict[tuple[str, str], CheckpointRecord] = field(default_factory=dict)
    marks: dict[str, NodeMarks] = field(default_factory=dict)
    written: list[Generation] = field(default_factory=list)

    def put(self, effect: fx.Store) -> bool:
        """Take one transaction. False when its term is over."""
        if self.fences and effect.term != self.term:
            return False
        for key, value in self.records.puts(effect).items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        if isinstance(effect, fx.StoreJob):
            self._job(effect)
        elif isinstance(effect, fx.ForgetJob):
            self._forget_job(effect)
        elif isinstance(effect, fx.StoreCheckpoint):
            self._checkpoint(effect.checkpoint)
        elif isinstance(effect, fx.ForgetCheckpoints):
            for name in effect.forget:
                self.checkpoints.pop((effect.job, name), None)
        elif isinstance(effect, fx.StoreNode) and effect.marks is not None:
            self.marks[effect.node] = effect.marks
        return True

    def _forget_job(self, effect: fx.ForgetJob) -> None:
        for rows in (self.specs, self.states, self.generations):
            rows.pop(effect.job, None)
        for name in effect.checkpoints:
            self.checkpoints.pop((effect.job, name), None)

    def _job(self, effect: fx.StoreJob) -> None:
        if effect.spec is not None:
            self.specs[effect.job] = effect.spec
        self.states[effect.job] = effect.state
        if effect.generation is not None:
            self._generation(effect.generation)

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

    def elect(self, now: float) -> ev.Elected:
        """The next leader's first event, at `now` (s on the virtual clock)."""
        self.term += 1
        self.records = RecordMapping(self.records.keys)
        elected = self.records.elected(self.term, self.values)
        return dataclasses.replace(elected, wall_s=EPOCH_S + now)
