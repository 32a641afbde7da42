"""Compare whole replicas every few steps, and say which one differs (`--check-replicas-every`).

A bit that flips in the memory of one rank makes its state differ from that of its replicas, and stays there;
what it changes in the gradients reaches everybody alike. So replicas that hold other bits, although they held
the same before, were damaged: by memory, a device, or a script that treats one rank differently. Ranks
exchange one 64-bit sum for each tracked object (`holdfast.state.sums`), and digests of single tensors only
when these differ. What is compared with what is the business of `proof`; `gradient_sums` adds the gradients
of the step, which tell where the damage came from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.agreement import odd_replicas
from holdfast.agreement.proof import NUMBERS
from holdfast.groups import transfer
from holdfast.groups.groups import carrier
from holdfast.ipc.messages.replicas import ReplicasCompared
from holdfast.state import sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.agreement.drawn_alike import DrawnAlike
    from holdfast.agreement.gradient_sums import GradientSums, OddGradients
    from holdfast.agreement.odd_replicas import Claims, OddReplicas
    from holdfast.agreement.proof import Proof
    from holdfast.rank_state import RankState
    from holdfast.snapshots.plan import SnapshotPlan

EXTRA = 3
"""Numbers of a row beside those of the objects: key and number of the place in the data, and whether this
rank has seen all agree after a step."""
_PLACE = 1
"""The key of the place in the data. Keys of objects are hashes, which are as good as never so small."""
_PLACE_NAME = "the place in the data"
log = logging.getLogger("holdfast.sdk")


class ReplicaCheck:
    """One rank's part of the comparisons. `proof` computes the numbers of its tracked objects."""

    def __init__(self, state: RankState, proof: Proof, gradients: GradientSums, drawn: DrawnAlike) -> None:
        self._state, self._proof, self._gradients, self._drawn = state, proof, gradients, drawn
        self._seen_equal = False  # all agreed after some step, in this process
        self._agreed_step = 0
        self._told_generation = 0  # in which it was last reported that all agree
        self._uncovered: tuple[str, ...] | None = None  # as last logged

    @property
    def on(self) -> bool:
        """Whether replicas are compared at all."""
        return self._state.environment.check_replicas_every > 0

    @property
    def due(self) -> bool:
        """Whether the step that has just ended is one after which they are compared.

        That after the last step of a loop too: nothing leaves it unchecked."""
        return self.due_with(self._state.completed)

    def due_with(self, completed: int) -> bool:
        """Whether they are compared when so many steps are completed."""
        state = self._state
        return completed % state.environment.check_replicas_every == 0 or completed == state.entry.last_step

    def begin(self, step: int) -> None:
        """Begin a generation, with a state of `step` that was just found equal where it was held."""
        self._agreed_step = step

    def row(self, plan: SnapshotPlan | None, columns: int) -> list[int]:
        """This rank's numbers: `columns` of its objects, and EXTRA."""
        own = self._proof.sums(plan) if plan is not None else []
        place = sums.text(repr((self._state.completed, self._state.skipped)).encode())
        return [
            *own,
            *[0] * (columns - len(own)),
            *(_PLACE, sums.signed(place), int(self._seen_equal)),
        ]

    @staticmethod
    def were_equal(rows: Sequence[Sequence[int]]) -> bool:
        """Whether all agreed before: then what differs now was damaged since."""
        return any(row[-1] for row in rows)

    @staticmethod
    def buffer_keys(rows: Sequence[Sequence[int]]) -> set[int]:
        """The keys that stand for buffers."""
        return {row[at] for row in rows for at in range(NUMBERS - 2, len(row) - EXTRA, NUMBERS)} - {0}

    def agree(self, plan: SnapshotPlan | None, found: Claims) -> ReplicasCompared | None:
        """All agree. Returns what is to be reported; None: nothing that is new."""
        state = self._state
        self._seen_equal, self._agreed_step = True, state.completed
        uncovered = (*self._alone(plan, found), *self._gradients.uncovered())
        if uncovered != self._uncovered:
            self._uncovered = uncovered
            self._log(uncovered)
        elif self._told_generation == state.generation:
            return None
        self._told_generation = state.generation
        if state.agent is not None:
            state.agent.forget("replicas")  # that they differed is over
        if state.rank != 0:
            return None
        return ReplicasCompared(state.generation, state.completed, state.completed, uncovered=uncovered)

    def differ(
        self, plan: SnapshotPlan | None, found: Claims, keys: set[int], odd: OddGradients, *, buffers: bool
    ) -> ReplicasCompared | None:
        """These keys differ, or the gradients do. Every rank calls it; returns what this one is to report.

        Where the job goes back, all ranks report it, because the report of one may be lost with its node."""
        state = self._state
        self._told_generation = 0
        details = self._proof.details(plan, keys) if plan is not None else {}
        details |= self._drawn.details(keys)
        everything = transfer.exchange(
            [self._gradients.details(odd.keys), details], carrier(state.backend, state.device)
        )
        of_gradients = odd_replicas.judge([each[0] for each in everything])
        seen = odd_replicas.judge([each[1] for each in everything])
        if keys and not seen.ranks:  # no single tensor shows it: the objects' own numbers have to do
            seen = self._by_object(plan, found, keys)
        seen = odd_replicas.together(of_gradients, seen)
        message = ReplicasCompared(
            state.generation,
            state.completed,
            self._agreed_step,
            ranks=seen.ranks,
            odd=seen.odd,
            tensors=seen.tensors,
            more=seen.more,
            digests=seen.digests,
            buffers=buffers,
            gradients=odd.word,
        )
        if not keys:  # the state is equal
            self._seen_equal, self._agreed_step = True, state.completed
        speaker = next(rank for rank in seen.ranks if rank not in seen.odd)
        return message if state.environment.corrupt_acts or state.rank == speaker else None

    def _by_object(self, plan: SnapshotPlan | None, found: Claims, keys: set[int]) -> OddReplicas:
        """Who differs, named by whole objects."""
        names = {key: name for name, key in self._proof.names(plan)} if plan is not None else {}
        own = {**names, _PLACE: _PLACE_NAME}
        texts = [
            {
                str(key): {own.get(key, "an object"): ["", f"{sums.unsigned(found[key][rank]):x}"]}
                for key in sorted(keys)
                if rank in found[key]
            }
            for rank in range(self._state.world_size)
        ]
        return odd_replicas.judge(texts)

    def _alone(self, plan: SnapshotPlan | None, found: Claims) -> tuple[str, ...]:
        """The names of what this rank holds and nobody else, or what may differ."""
        if plan is None:
            return ()
        single = odd_replicas.alone(found)
        return tuple(name for name, key in self._proof.names(plan) if name and (not key or key in single))

    def _log(self, uncovered: tuple[str, ...]) -> None:
        if self._state.rank == 0 and uncovered:
            log.warning(
                "rank 0: not covered by the check of replicas: %s. No other rank holds the same, or it "
                "cannot be compared: damage to it may go unnoticed",
                ", ".join(uncovered),
            )
