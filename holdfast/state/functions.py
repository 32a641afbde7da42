"""Record a script's elastic functions in order: which are over, and what they returned.

Agents and coordinators know a single count of steps, which only grows: a function begins one step after the
end of the one before. A script counts each function's steps from 0. This module translates between the two.

A process that joins a job late also calls the functions that are over. They are not run for it: they return
what was kept with the state."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.format import typed
from holdfast.errors import RestoreError, SessionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.ipc.formation import Formation


@dataclass(frozen=True, slots=True)
class FinishedFunction:
    """A function that is over on all ranks.

    - `base`, `end`: the job's steps when it began and when it was over.
    - `steps`: its own completed steps.
    - `value`: what it returned, as typed data.
    - `refused`: why the result is not kept; "": it is kept."""

    name: str
    base: int
    end: int
    steps: int
    value: Any = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """A generation that this process has met before it reached the function that runs.

    `port`: where its groups were accepted, 0 if unknown. `begun`, `formed`: monotonic times in s."""

    formation: Formation
    port: int
    begun: float
    formed: float
    apart: bool = False  # some rank has not reached the function that runs yet
    first: int = -1  # the first rank that has restored a state of that function before; -1: none has


class Functions:
    """The elastic functions of one process, over all its sessions."""

    def __init__(self) -> None:
        self.finished: list[FinishedFunction] = []
        self.called = 0  # functions that this process has called, including one that runs
        self.joined: Joined | None = None
        self.behind = False  # it has passed functions that it did not run: it holds no state
        # The exception that left a function; "": none. If set, other ranks' progress is unknown.
        self.thrown = ""
        self.generation = 0  # the newest one that this process was in
        self.completed = 0  # the job's completed steps, as this process knows them
        self.held_in = 0

    @property
    def base(self) -> int:
        """The job's step at which the next function begins."""
        return self.finished[-1].end + 1 if self.finished else 0

    def place(self) -> tuple[str, int]:
        """Phase and generation of this process when it makes a session."""
        if self.joined is not None:
            return "forming", self.joined.formation.number
        return ("finished", self.generation) if self.generation else ("starting", 0)

    def local(self, completed: int) -> int:
        """Completed steps, at this step of the job, of the function that this process is in or was in
        last."""
        if 0 < self.called <= len(self.finished):
            return self.finished[self.called - 1].steps
        return max(completed - self.base, 0)

    def batch(self, step: int, windows: Sequence[tuple[int, int]]) -> int:
        """The number, within its function, of the batch that a step of the job consumes.

        `windows`: batches that are left out, ascending, as numbers of the job's batches; windows in earlier
        functions have no effect. A function that is over stays at its last batch."""
        done = self.finished[-1] if self.finished else None
        if done is not None and step <= done.end:
            return batch(done.base, min(step, done.base + done.steps), windows)
        return batch(self.base, step, windows)

    # ------------------------------------------------------------------ calls

    def call(self, name: str) -> int:
        """Count a call of a function by this process. Returns its index, from 0. Raises SessionError."""
        if self.thrown:
            raise SessionError(
                f"{name}: {self.thrown}, and the script continued after it: other ranks may not have. Catch "
                "the exception within the elastic function, and return a value that says what happened"
            )
        number = self.called
        if self.over(number) and self.finished[number].name != name:
            raise SessionError(
                f"this process joined the job later and calls {name} as elastic function {number + 1}, but "
                f"the other ranks called {self.finished[number].name}: all ranks must call the same elastic "
                "functions in the same order"
            )
        self.called += 1
        return number

    def over(self, number: int) -> bool:
        """Whether this function is known to be over on all ranks."""
        return number < len(self.finished)

    def marks(self, number: int, step: int) -> bool:
        """Whether the state of this step of the job is exactly that of this function's end."""
        return number == len(self.finished) - 1 and self.finished[number].end == step

    def value(self, number: int) -> Any:
        """The result of a function that this process did not run. Raises SessionError."""
        done = self.finished[number]
        if done.refused:
            raise SessionError(
                f"{done.name} has ended, and this process, which joined the job later, cannot get what it "
                f"returned: {done.refused}. Return plain data (numbers, strings, bytes, None, lists, tuples "
                "and dicts of them, equal on all ranks), and track objects that hold tensors"
            )
        return typed.decode(done.value)

    # ------------------------------------------------------------------ ends

    def end(self, name: str, completed: int, value: Any, refused: str, *, kept: bool) -> int:
        """Record that the function has returned a result on all ranks. Returns the job's steps from now on.

        `kept`: a snapshot of its last state exists without the result. Then the state with the result is a
        state of its own, one step later."""
        if self.over(self.called - 1):
            return completed
        end = completed + int(kept)
        self.finished.append(FinishedFunction(name, self.base, end, completed - self.base, value, refused))
        return end

    def leave(self, name: str, completed: int) -> None:
        """Record that the ranks return from the function: it is over now, if `end` has not recorded it."""
        if not self.over(self.called - 1):
            self.finished.append(FinishedFunction(name, self.base, completed, completed - self.base))

    def text(self) -> str:
        """The finished functions for the header of a state; "" if there are none."""
        return json.dumps([astuple(each) for each in self.finished]) if self.finished else ""

    def learn(self, text: str, step: int) -> None:
        """Take over the finished functions that other ranks, or the header of the state after `step`, know.

        Functions that ended after `step` are forgotten: they are to run again. Raises RestoreError."""
        found = parse(text)
        if len(found) > len(self.finished):
            self.finished = found
        while self.finished and self.finished[-1].end > step:
            self.finished.pop()


def batch(base: int, step: int, windows: Sequence[tuple[int, int]]) -> int:
    """The number of the batch that a step of the job consumes: 0 for `base`, the function's first step."""
    return shifted(step, windows) - shifted(base, windows)


def shifted(step: int, windows: Sequence[tuple[int, int]]) -> int:
    """The number, over the whole job, of the batch that a step consumes if these windows (ascending) are left
    out."""
    for first, end in windows:
        if step >= first:
            step += end - first
    return step


def parse(text: str) -> list[FinishedFunction]:
    """The finished functions of a header. Raises RestoreError."""
    try:
        found = [FinishedFunction(*entry) for entry in json.loads(text or "[]")]
        if all(type(each.end) is int and type(each.steps) is int for each in found):
            return found
    except (TypeError, ValueError) as error:
        raise RestoreError(f"the state's list of finished functions cannot be read: {error}") from error
    raise RestoreError("the state's list of finished functions is malformed")


def kept(value: Any) -> tuple[Any, str]:
    """A result as it is kept: (typed data, ""), or (None, why it is not kept)."""
    try:
        return typed.encode(value, path="its value"), ""
    except typed.TypedDataError as error:
        return None, str(error)


_process: dict[str, Functions] = {}
"""By member, the functions of this process."""


def of(member: str) -> Functions:
    """The functions of this process if it is a member of a job, else new ones."""
    return _process.setdefault(member, Functions()) if member else Functions()
