"""Request checkpoints for the script, and give it a handle for each that learns the outcome."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.ipc.messages.rank import Checkpoint
from holdfast.reentry import snapshotting

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.messages.agent import CheckpointTold
    from holdfast.ipc.skips import Skip
    from holdfast.rank_state import RankState

_OUTCOMES = ("committed", "skipped", "failed")
_ROOM_WAIT_S = 10.0
"""Seconds that a requested snapshot waits for a slot: all ranks must have taken their newest snapshot first,
and uploads must have finished reading theirs."""


class CheckpointHandle:
    """The outcome of a checkpoint that the script asked for.

        handle = session.checkpoint()
        ...
        if handle.wait(60) != "committed":
            print(handle.reason)

    - `outcome`: "" while open, then "committed", "skipped" (not made) or "failed".
    - `reason`: why it was skipped or failed, or what was made.
    - `checkpoint`: the id of a committed one, else "".
    - `generation`: the generation in which it was asked for. If that ends first, the request fails.
    - `request`: the id that agents use; "" until the step that asked is complete."""

    def __init__(self, agent: AgentClient | None, generation: int) -> None:
        self._agent = agent
        self._setting = threading.Lock()
        self.request = ""
        self.generation = generation
        self.outcome = self.reason = self.checkpoint = ""

    def wait(self, timeout_s: float | None = None) -> str:
        """Block until the outcome is known or `timeout_s` seconds are over. Returns the outcome; "" if still
        open.

        Raises SessionError inside the step that asked: the checkpoint is made when that step is complete."""
        if not self.request and not self.outcome:
            raise SessionError(
                "the checkpoint is made after the step that asked for it: wait after that step, or ask for "
                "the checkpoint between steps"
            )
        agent = self._agent
        if agent is not None and not self.outcome:
            agent.wait(lambda orders: self.outcome or orders.interrupted >= self.generation, timeout_s)
            if not self.outcome and agent.interrupted(self.generation):
                self.resolve("failed", _ended(self.generation))
        return self.outcome

    def resolve(self, outcome: str, reason: str = "", checkpoint: str = "") -> None:
        """Set the outcome; only the first call has an effect."""
        with self._setting:
            if not self.outcome:
                self.reason, self.checkpoint, self.outcome = reason, checkpoint, outcome

    def answered(self, answer: CheckpointTold) -> None:
        """Take the agent's answer. Runs in the agent client's thread."""
        outcome, reason = answer.outcome, answer.reason
        if outcome not in _OUTCOMES:
            outcome, reason = "failed", f"the agent reports the unknown outcome {outcome!r:.80}: {reason}"
        self.resolve(outcome, reason, answer.checkpoint)


class CheckpointRequests:
    """The checkpoints requested in one generation whose outcomes are still open."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._waiting: list[CheckpointHandle] = []  # wait for the end of the step
        self._open: list[CheckpointHandle] = []
        self._count = 0

    def ask(self, *, now: bool) -> CheckpointHandle:
        """Request a checkpoint now, or at the end of the step. Returns its handle."""
        handle = CheckpointHandle(self._state.agent, self._state.generation)
        if self._state.agent is None:
            handle.resolve("skipped", "no agent: this process was not started by Holdfast")
        elif not self._state.tracked.objects:
            handle.resolve("skipped", "nothing is tracked")
        else:
            self._waiting.append(handle)
            if now:
                self.step_ended()
        return handle

    @property
    def due(self) -> bool:
        """Whether a request waits for a snapshot at the end of this step."""
        return bool(self._waiting)

    def step_ended(self) -> None:
        """Take a snapshot and ask the agent to make it durable, for all waiting requests."""
        state, agent = self._state, self._state.agent
        assert agent is not None
        waiting, self._waiting = self._waiting, []
        skip = _snapshot(state, agent)
        self._open = [handle for handle in self._open if not handle.outcome]
        for handle in waiting:
            self._count += 1
            handle.request = f"{state.generation}.{state.completed}.{self._count}"
            if skip is not None:
                handle.resolve("skipped", skip.reason)
            else:
                self._send(handle, agent)
        if skip is not None:
            snapshotting.report(state, agent, skip)

    def end(self, reason: str = "") -> None:
        """Fail every open request: the generation is over and they will not be answered."""
        state = self._state
        for handle in (*self._waiting, *self._open):
            handle.resolve("failed", reason or _ended(handle.generation))
            if state.agent is not None:
                state.agent.give_up(handle.request)
        self._waiting, self._open = [], []

    def _send(self, handle: CheckpointHandle, agent: AgentClient) -> None:
        state = self._state
        self._open.append(handle)
        agent.ask(Checkpoint(handle.request, state.completed, state.generation), handle.answered)


def _snapshot(state: RankState, agent: AgentClient) -> Skip | None:
    """Take a snapshot of this very step, if there is none yet; wait a while for room. Returns None, or why
    there is none."""
    snapshotting.settle(state)
    if state.newest_snapshot == (state.completed, state.generation):
        return None
    skip = snapshotting.snapshot(state, agent)
    if skip is not None and agent.orders.arena is None:
        snapshotting.ask_for_room(state, agent, forced=True)
    return snapshotting.insist(state, agent, skip, _ROOM_WAIT_S)


def _ended(generation: int) -> str:
    return f"generation {generation} ended before the checkpoint was committed"
