"""Prove that ranks hold equal state where the script claims it; otherwise end the training on all of them.

When a generation begins, the ranks that hold its state compare all of it: at the start of the job before any
state is given, later because what one of them gives must be what the others hold. While training, they
compare a slice after the first step of each generation and at every snapshot boundary. All ranks see the same
numbers, so all decide alike.

With `--check-replicas-every`, whole replicas are compared instead of slices (`replica_check`). What has never
been equal after a step is a mistake of the script, and ends the training; what was equal and differs now is
reported as damaged."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

import torch.distributed as dist

from holdfast.agreement import differing, giving, odd_replicas
from holdfast.agreement.drawn_alike import DrawnAlike, described
from holdfast.agreement.gradient_sums import GradientSums
from holdfast.agreement.proof import NUMBERS, Proof
from holdfast.agreement.replica_check import ReplicaCheck
from holdfast.agreement.running_code import RunningCode
from holdfast.errors import SessionError, StateError
from holdfast.groups import transfer
from holdfast.groups.groups import carrier, gather_numbers
from holdfast.ipc import recovery_log
from holdfast.state import shard_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from holdfast.agreement.beginnings import Beginnings
    from holdfast.agreement.drawn_alike import Streams
    from holdfast.agreement.snapshot_turns import SnapshotTurns
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.messages.replicas import ReplicasCompared
    from holdfast.rank_state import RankState
    from holdfast.snapshots.plan import SnapshotPlan

LOOK_EVERY = 100
"""Steps between two comparisons if no snapshots are taken."""

_APART = (
    "ranks cut their shares from different orders of the same samples, so that some samples are trained with "
    "more than once in an epoch and others not at all: %s. Does every rank see the same data set, and give "
    "the same sizes? Where each has data of its own, give it a seed of its own"
)
Rows = list[list[int]]
log = logging.getLogger("holdfast.sdk")


class Equality:
    """Compares one rank's state with its peers'.

    `ask_for_room` asks the agent for room for snapshots. `turns`: what the ranks agree on together with each
    comparison. `streams` gives the streams of samples in use. `beginnings`: what the ranks compare of the
    script when they meet."""

    def __init__(
        self,
        state: RankState,
        ask_for_room: Callable[[AgentClient], None],
        turns: SnapshotTurns,
        *,
        streams: Callable[[], Streams],
        beginnings: Beginnings,
    ) -> None:
        self._state, self._ask_for_room, self._turns = state, ask_for_room, turns
        self._proof = Proof(state.tracked)
        self._gradients, self._drawn = GradientSums(state), DrawnAlike(state, streams)
        self._check = ReplicaCheck(state, self._proof, self._gradients, self._drawn)
        self._code, self._beginnings = RunningCode(state), beginnings
        self._columns = 0  # numbers per row: those of the rank that tracks most
        self._first = False  # the next boundary is the generation's first
        self._logged = False  # it was logged that buffers differ
        self._silent: list[int] = []  # ranks last logged as having a state that cannot be compared
        self._apart: set[int] = set()  # of what the ranks draw by, what differs in this generation
        self._told_apart = ""  # how that was told
        self._differing = False  # buffers differ, and without snapshots no rank's own can be kept

    def prepare(self) -> None:
        """Do what `meet` needs of this process alone: beforehand, while nobody waits for this rank, and
        before it takes a state."""
        self._code.number()
        self._beginnings.note(self._code.names)

    def meet(self, step: int, *, holds: bool, fresh: bool) -> None:
        """Compare the whole state among the ranks that hold that of `step`.

        `fresh`: it is as the script built it; objects tracked with `from_rank_0` are given to all first.
        Raises SessionError on every rank if it differs."""
        state = self._state
        own = state.tracked.objects
        claims = state.tracked.claims
        chosen = [name for name in own if fresh and holds and claims[name].from_rank_0]
        optimizers = len(state.tracked.optimizers)
        numbers = [len(own), len(chosen), holds, self._differing, self._code.number(), optimizers]
        rows = self._gather([*numbers, *self._beginnings.numbers()])
        self._code.compare([row[4] for row in rows])
        self._apart = set()
        self._gradients.begin(max(row[5] for row in rows))
        self._beginnings.meet([row[6:] for row in rows])
        self._columns, self._first = max(row[0] for row in rows) * NUMBERS, True
        if most := max(row[1] for row in rows):
            giving.give(state, chosen, most)
        states, buffers = differing.keys(self._compare(None if holds else -1))
        self._check.begin(step)
        self._turns.begin()
        if states:
            when = "as the script built it" if fresh else f"in the state of step {step}"
            self._refuse(states, when, holds=holds)
        lost = [rank for rank, row in enumerate(rows) if not row[2] and row[0]]
        if fresh and buffers:
            self._scatter()
        elif state.rank in lost and (buffers or any(row[3] for row in rows)):
            state.inexact.append(f"buffers of rank {state.rank}")

    def restored(self, step: int) -> None:
        """The state of `step` is restored on this rank."""
        if self._state.world_size == 1:  # it has met nobody
            self._beginnings.meet([self._beginnings.numbers()])
        self._beginnings.restored(step)

    def begin_step(self) -> None:
        """A step begins: what a broken one has left is no longer of use."""
        self._gradients.forget()

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step: if this step is a checked one, its gradients are compared, too."""
        check, state = self._check, self._state
        if not check.on or state.agent is None or state.world_size == 1 or not self._columns:
            return
        if self._first or check.due_with(state.completed + 1):
            self._gradients.take(optimizer)

    def at_boundary(self) -> ReplicasCompared | None:
        """Compare what is due, and agree on a snapshot; all ranks have completed this step. Raises
        SessionError.

        Returns what this rank has to report of it; None: nothing."""
        state = self._state
        if state.world_size == 1:  # it has met nobody, and has no first boundary
            self._beginnings.compare()
        every = state.environment.snapshot_every or LOOK_EVERY
        due = self._check.due if self._check.on else state.completed % every == 0
        alone = state.world_size == 1 and self._check.on  # nothing to compare with: that is reported, too
        met = alone or (self._columns and dist.is_initialized())
        if state.agent is None or not met:
            return None
        if not (self._first or due):
            if state.spacing.due(state.completed):
                self._gather_with_turns([])
            return None
        if self._first:
            self._beginnings.compare()
        self._first = False
        if self._check.on:
            return self._compare_replicas()
        states, buffers = differing.keys(self._compare(state.completed // every, turns=True))
        if states:
            self._refuse(states, f"after step {state.completed - 1}")
        if buffers:
            self._keep_own_buffers(state.agent)
        return None

    def _compare_replicas(self) -> ReplicasCompared | None:
        state, check = self._state, self._check
        assert state.agent is not None
        plan = self._plan()
        silent = plan is None and bool(state.tracked.objects)
        own = check.row(plan, self._columns)
        cut = len(own)
        own += self._gradients.row()
        until = len(own)
        own += [*self._drawn.row(thorough=True), int(self._differing), int(silent)]
        gathered = self._gather_with_turns(own)
        self._log_silent([rank for rank, row in enumerate(gathered) if row[-1]])
        self._differing = any(row[-2] for row in gathered)
        rows = [row[:cut] for row in gathered]
        gradients = self._gradients.learn([row[cut:until] for row in gathered])
        drawn = self._learn_drawn([row[until:-2] for row in gathered])
        found = odd_replicas.claims([row[:-1] for row in rows])
        keys, buffers = odd_replicas.differing(found), check.buffer_keys(rows)
        if self._differing:
            keys -= buffers
        if not check.were_equal(rows) and (keys - buffers):
            self._refuse(keys - buffers, f"after step {state.completed - 1}")
        own_buffers = {
            key
            for key in keys & buffers
            if not check.were_equal(rows) or not odd_replicas.has_majority(found[key])
        }
        if own_buffers:  # as with batch norm: each rank's batches give it other numbers
            self._keep_own_buffers(state.agent)
        keys -= own_buffers
        keys |= drawn
        if keys or gradients.keys:
            return check.differ(plan, found, keys, gradients, buffers=keys <= buffers)
        return check.agree(plan, found)

    def _keep_own_buffers(self, agent: AgentClient) -> None:
        self._scatter()
        self._ask_for_room(agent)

    def _compare(self, look: int | None, *, turns: bool = False) -> Rows:
        """Every rank's numbers. `look` -1: this rank has nothing to compare. `turns`: agree on a snapshot,
        too."""
        plan = self._plan() if look != -1 else None
        own = self._proof.rows(plan, look) if plan is not None else []
        silent = look != -1 and plan is None and bool(self._state.tracked.objects)
        numbers = [*own, *[0] * (self._columns - len(own)), int(silent)]
        cut = len(numbers)
        if turns:
            rows = self._gather_with_turns([*numbers, *self._drawn.row(thorough=False)])
            self._learn_drawn([row[cut:] for row in rows])
        else:
            rows = self._gather(numbers)
        self._log_silent([rank for rank, row in enumerate(rows) if row[cut - 1]])
        return [row[: cut - 1] for row in rows]

    def _learn_drawn(self, rows: Rows) -> set[int]:
        """Take note of what the ranks draw by. Returns the keys under which that has come to differ.

        Tells, on rank 0 and once, of ranks that have different orders of the same stream of samples."""
        state = self._state
        if state.world_size == 1:
            return set()
        seen = self._drawn.learn(rows)
        told = seen.apart if self._check.on else seen.apart | seen.damaged
        if apart := told - self._apart:
            self._apart |= apart
            every = transfer.exchange(self._drawn.details(apart), carrier(state.backend, state.device))
            words = described(every)
            if words and words != self._told_apart and state.rank == 0 and state.agent is not None:
                self._told_apart = words
                recovery_log.write(state.agent, logging.WARNING, _APART, words)
        return seen.damaged

    def _log_silent(self, ranks: list[int]) -> None:
        """Log on every rank, once, the ranks whose state is compared with no other rank's."""
        if ranks and ranks != self._silent:
            log.warning(
                "the state of ranks %s cannot be compared with that of the other ranks, so a difference "
                "would go unnoticed: state_dict of one of their tracked objects fails, or its result "
                "cannot be kept (the logs of these ranks name the object)",
                ", ".join(map(str, ranks)),
            )
        self._silent = ranks

    def _plan(self) -> SnapshotPlan | None:
        state = self._state
        if not state.tracked.objects:
            return None
        try:
            return state.snapshots.plan()
        except StateError as error:  # snapshots fail too then, and their report names the object
            log.warning("the state cannot be compared with that of the other ranks: %s", error)
            return None

    def _gather_with_turns(self, numbers: list[int]) -> Rows:
        """Every rank's numbers; what the ranks say of snapshots comes with them, and is decided on."""
        own, begun = [*numbers, *self._turns.numbers()], time.perf_counter()
        rows = self._gather(own)
        self._turns.learn([row[len(numbers) :] for row in rows], time.perf_counter() - begun)
        return [row[: len(numbers)] for row in rows]

    def _gather(self, numbers: list[int]) -> Rows:
        state = self._state
        if not numbers:
            return [[] for _ in range(state.world_size)]
        return gather_numbers(numbers, carrier(state.backend, state.device), state.world_size)

    def _refuse(self, keys: set[int], when: str, *, holds: bool = True) -> None:
        plan = self._plan() if holds else None
        details = self._proof.details(plan, keys) if plan is not None else {}
        every = transfer.exchange(details, carrier(self._state.backend, self._state.device))
        # A gather without content: no rank leaves before all have received the details.
        with contextlib.suppress(RuntimeError):
            self._gather([0])
        raise SessionError(differing.text(every, when, resumed=self._resumed))

    @property
    def _resumed(self) -> bool:
        """Whether this generation goes on with a state that was equal on all ranks."""
        return not self._first and self._state.clean.step > self._state.functions.base

    def _scatter(self) -> None:
        """Buffers differ: from now on each rank keeps its own, if snapshots are taken."""
        state, tracked = self._state, self._state.tracked
        agent = state.agent
        if agent is None:
            return
        if state.environment.snapshot_every:
            tracked.scattered = True
            state.shard_id = shard_ids.of(tracked)
            becomes = (
                "from now on each rank keeps its own, and a lost rank costs the steps since the snapshot"
            )
        else:
            self._differing = True
            becomes = "and no snapshots are taken, so those of a lost rank are gone"
        if not self._logged and state.rank == 0:
            recovery_log.write(
                agent,
                logging.WARNING,
                "buffers of the tracked modules differ between ranks (batch norm under plain DDP or FSDP, or "
                "where torch.utils.checkpoint runs forward again?): %s; session.ddp(model) makes them equal "
                "at the end of each forward pass, and if they stay so, no step is lost",
                becomes,
            )
        self._logged = True
