"""Check that each step takes its batch once, completely, and while the step runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.data.streams import SampleStreams


@dataclass(frozen=True, slots=True)
class Batch:
    """A loader's batches, as the script asks for them.

    `micro`: largest number of samples in a micro-batch; None: one batch per step."""

    size: int  # samples per step, of all ranks
    micro: int | None
    seed: int


class MicroBatches:
    """An iterator with a length over the micro-batches of one step."""

    def __init__(self, count: int, pull: Callable[[int], Any]) -> None:
        self._count, self._pull = count, pull
        self.given = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> MicroBatches:
        return self

    def __next__(self) -> Any:
        if self.given == self._count:
            raise StopIteration
        data = self._pull(self.given)
        self.given += 1
        return data


class Taking:
    """What a loader has given to the current step."""

    def __init__(self, streams: SampleStreams) -> None:
        self._streams, self._state = streams, streams.state
        self._taken: MicroBatches | None = None
        streams.watch(self)

    def check(self) -> None:
        """Raise SessionError unless a step runs that has not taken its batch yet.

        Raises Interrupted if the step cannot be completed any more."""
        state = self._state
        if not self._streams.running:
            raise SessionError(
                "session.loader: a batch belongs to a step, and no step is running: write "
                "for step, batch in zip(session.steps(n), loader), the steps first"
            )
        if self._taken is not None:
            raise SessionError(
                f"session.loader: step {state.step} has taken its batch already, and there is one per step; "
                "micro= splits it into several micro-batches"
            )
        state.check_interrupted()

    def take(self, count: int, pull: Callable[[int], Any], *, whole: bool) -> Any:
        """This step's micro-batches, or its single batch if it is given `whole`."""
        self._taken = parts = MicroBatches(count, pull)
        return next(parts) if whole else parts

    def begin(self) -> None:
        """Begin a step."""
        self._taken = None

    def end(self) -> None:
        """End the step. Raises SessionError if some of its micro-batches are left."""
        taken, self._taken = self._taken, None
        if taken is not None and len(taken) != taken.given:
            raise SessionError(
                f"step {self._state.step} took {taken.given} of its {len(taken)} micro-batches: "
                "the others would be skipped"
            )

    def leave(self) -> None:
        """Leave the elastic function: drop what was fetched ahead."""
        self._taken = None
