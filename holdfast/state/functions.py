"""Record a script's elastic functions, one after the other: which are over, and what they returned.

Agents and coordinators know one count of steps that only grows: a function begins one step after the end of
the one before. A script counts the steps of each function from 0; here is the border between the two.

A process that joins a job later calls the functions that are over, too: they are not entered, and return what
was kept of them with the state."""

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
class Finished:
    """A function that is over on all ranks. `base`, `end`: the job's steps when it began and when it was
    over; `value`: what it returned, as typed data; `refused`: why that is not kept, "" when it is."""

    name: str
    base: int
    end: int
    steps: int
    value: Any = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """A generation that this process has met before it came to the function that runs. Times in s."""

    formation: Formation
    port: int
    begun: float
    formed: float
    apart: bool = False  # some rank has yet to come to the function that runs
    entered: bool = False  # some rank has had a state of the function that runs


class Functions:
    """Of one process, whatever sessions it has."""

    def __init__(self) -> None:
        self.finished: list[Finished] = []
        self.called = 0  # the functions that this process has called, one that runs included
        self.joined: Joined | None = None
        self.behind = False  # it has passed functions that it was not in: it holds no state
        self.thrown = ""  # what left a function: nothing is known of what the ranks do then
        self.generation = 0  # the newest that this process was in
        self.completed = 0  # the job's steps, as this process knows them
        self.held_in = 0

    @property
    def base(self) -> int:
        """The job's step with which the next function begins."""
        return self.finished[-1].end + 1 if self.finished else 0

    def place(self) -> tuple[str, int]:
        """Where the process stands when it makes a session: its phase, and the generation."""
        if self.joined is not None:
            return "forming", self.joined.formation.number
        return ("finished", self.generation) if self.generation else ("starting", 0)

    def local(self, completed: int) -> int:
        """The steps of the function that this process is in, or was in last, at this step of the job."""
        if 0 < self.called <= len(self.finished):
            return self.finished[self.called - 1].steps
        return max(completed - self.base, 0)

    def batch(self, step: int, windows: Sequence[tuple[int, int]]) -> int:
        """Which batch of its function a step of the job consumes when these batches of the job (ascending)
        are left out: those of the functions before do not count. One that is over stays at its last."""
        done = self.finished[-1] if self.finished else None
        if done is not None and step <= done.end:
            return batch(done.base, min(step, done.base + done.steps), windows)
        return batch(self.base, step, windows)

    # ------------------------------------------------------------------ calls

    def call(self, name: str) -> int:
        """This process calls a function: which one it is, from 0. Raises SessionError."""
        if self.thrown:
            raise SessionError(
                f"{name}: {self.thrown}, and the script went on: what other ranks do then is not known. "
                "Catch it within the elastic function, and return a value that says what happened"
            )
        number = self.called
        if self.over(number) and self.finished[number].name != name:
            raise SessionError(
                f"this process joined the job later, and calls {name} as elastic function {number + 1}, "
                f"where the other ranks had called {self.finished[number].name}: have all ranks call the "
                "same ones, in the same order"
            )
        self.called += 1
        return number

    def over(self, number: int) -> bool:
        """Whether this function is known to be over on all ranks."""
        return number < len(self.finished)

    def marks(self, number: int, step: int) -> bool:
        """Whether the state of this step of the job is that of just this function's end."""
        return number == len(self.finished) - 1 and self.finished[number].end == step

    def value(self, number: int) -> Any:
        """What a function returned that this process was not in. Raises SessionError."""
        done = self.finished[number]
        if done.refused:
            raise SessionError(
                f"{done.name} is over, and this process, which joined the job later, needs what it returned: "
                f"{done.refused}. Have it return plain data (numbers, strings, bytes, None, lists, tuples "
                "and dicts of them, equal on all ranks), and track what holds tensors"
            )
        return typed.decode(done.value)

    # ------------------------------------------------------------------ ends

    def end(self, name: str, completed: int, value: Any, refused: str, *, kept: bool) -> int:
        """The function has returned something on all ranks. `kept`: its last state has been kept without the
        value, so that the one with it is a state of its own, one step on. The job's steps from now on."""
        if self.over(self.called - 1):
            return completed
        end = completed + int(kept)
        self.finished.append(Finished(name, self.base, end, completed - self.base, value, refused))
        return end

    def leave(self, name: str, completed: int) -> None:
        """The ranks return from the function; one without a value is over now."""
        if not self.over(self.called - 1):
            self.finished.append(Finished(name, self.base, completed, completed - self.base))

    def text(self) -> str:
        """What is over, for the header of a state; "" when nothing is."""
        return json.dumps([astuple(each) for each in self.finished]) if self.finished else ""

    def learn(self, text: str, step: int) -> None:
        """What others, or the header of the state after `step` steps of the job, know to be over. Raises
        RestoreError."""
        found = parse(text)
        if len(found) > len(self.finished):
            self.finished = found
        while self.finished and self.finished[-1].end > step:
            self.finished.pop()


def batch(base: int, step: int, windows: Sequence[tuple[int, int]]) -> int:
    """Which batch of the function that began with step `base` of the job a step of the job consumes."""
    return shifted(step, windows) - shifted(base, windows)


def shifted(step: int, windows: Sequence[tuple[int, int]]) -> int:
    """Which batch of the endless order a step consumes when these windows (ascending) are left out."""
    for first, end in windows:
        if step >= first:
            step += end - first
    return step


def parse(text: str) -> list[Finished]:
    """The functions of a header. Raises RestoreError."""
    try:
        found = [Finished(*entry) for entry in json.loads(text or "[]")]
        if all(type(each.end) is int and type(each.steps) is int for each in found):
            return found
    except (TypeError, ValueError) as error:
        raise RestoreError(f"what the state says of finished functions cannot be read: {error}") from error
    raise RestoreError("what the state says of finished functions is no list of them")


def kept(value: Any) -> tuple[Any, str]:
    """A value as it is kept: typed data, or None and why it is not."""
    try:
        return typed.encode(value, path="its value"), ""
    except typed.TypedDataError as error:
        return None, str(error)


_process: dict[str, Functions] = {}


def of(member: str) -> Functions:
    """The functions of this process, where it is a member of a job; else new ones."""
    return _process.setdefault(member, Functions()) if member else Functions()
