"""Give DataLoader the batches of the current step and all later ones, computed from the step alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from holdfast.data import contract, sampling, streams
from holdfast.errors import SessionError
from holdfast.state import functions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.data.contract import SampleOrder
    from holdfast.data.streams import SampleStreams
    from holdfast.rank_state import RankState


_NAME = "session.sampler"


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """Which samples this rank has in every step, as long as none of these fields changes.

    - `share`: this rank's places in the global batch.
    - `parts`: micro-batches per step.
    - `windows`: batches that are left out, ascending."""

    generation: int
    order: SampleOrder
    share: range
    parts: int
    windows: tuple[tuple[int, int], ...]
    base: int  # the job's step at which the elastic function began

    def batches(self, step: int) -> Iterator[tuple[int, int, int, list[int], list[int]]]:
        """Endless tuples from `step` on: step, batch, micro-batch, its samples, all samples of the step."""
        ahead = sampling.Ahead()
        while True:
            batch = functions.batch(self.base, self.base + step, self.windows)
            whole = streams.samples(self.order, batch, self.share, ahead).tolist()
            for part in range(self.parts):
                mine = sampling.share(len(whole), part, self.parts)
                yield step, batch, part, whole[mine.start : mine.stop], whole
            step += 1


def course(
    streams: SampleStreams, sizes: tuple[int, int, int], micro: int | None, caller: str
) -> BatchSchedule:
    """This rank's schedule from the present step on. Raises SessionError."""
    state = streams.state
    order = streams.use(*sizes, caller=caller)
    share = streams.share(order.global_batch)
    parts = micro_batches(order.global_batch, state.layout.dp, micro)
    check_share(state, len(share), parts, order.global_batch, micro)
    return BatchSchedule(state.generation, order, share, parts, state.skipped, state.functions.base)


def micro_batches(global_batch: int, dp: int, micro: int | None) -> int:
    """The number of micro-batches in a step: on every rank as many as the largest share needs."""
    return math.ceil(math.ceil(global_batch / dp) / micro) if micro else 1


def check_share(state: RankState, samples: int, parts: int, global_batch: int, micro: int | None) -> None:
    """Raise SessionError if one of this rank's micro-batches would have no samples."""
    if samples < parts:
        raise SessionError(
            f"a global batch of {global_batch} over {state.layout.dp} replicas"
            + (f" in micro-batches of {micro}" if micro else "")
            + f" leaves rank {state.rank} one without samples: choose a larger global_batch or micro"
        )


def check(n: int, global_batch: int, micro: int | None, caller: str) -> None:
    """Raise SessionError for impossible sizes."""
    sampling.check(n, global_batch, caller)
    if micro is not None and (type(micro) is not int or micro < 1):
        raise SessionError(f"{caller}: micro must be the size of a micro-batch, 1 or more, not {micro!r:.80}")


class Sampler(torch.utils.data.Sampler[list[int]]):
    """A batch sampler for a DataLoader of the script's own: yields lists of sample indices."""

    def __init__(
        self, streams: SampleStreams, n: int, global_batch: int, micro: int | None, seed: int
    ) -> None:
        check(n, global_batch, micro, _NAME)
        self._streams, self._sizes, self._micro = streams, (n, global_batch, seed), micro

    def __iter__(self) -> Iterator[list[int]]:
        state = self._streams.state
        if not state.entry.inside:
            raise SessionError(
                "session.sampler: iterate over its DataLoader inside of the function under @session.elastic"
            )
        found = course(self._streams, self._sizes, self._micro, _NAME)
        if found.parts > 1 and self._sizes[1] % (state.layout.dp * found.parts):
            raise SessionError(
                f"session.sampler: micro-batches of {contract.shown(self._sizes)} are not equally large on "
                f"{state.layout.dp} replicas, and your own DataLoader cannot tell which one is being "
                "computed: use session.loader, which weights them"
            )
        return _Drawing(self._streams, found)


class _Drawing:
    """One pass of a DataLoader over a sampler, in one generation.

    It cannot see what a step takes. So while the pass lives, each step counts as consuming its share."""

    def __init__(self, streams: SampleStreams, course: BatchSchedule) -> None:
        self._streams, self._state, self._course = streams, streams.state, course
        self._batches = course.batches(self._state.step)
        self._steps = self._state.step  # steps before this one have been drawn completely
        streams.watch(self)
        if streams.running:
            self._consume()

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        if self._stale():
            raise SessionError(
                "this iterator belongs to an earlier generation, or was made before batches were left out: "
                "make a new one with iter(loader) in the function under @session.elastic"
            )
        step, _, part, indices, _ = next(self._batches)
        self._steps = step + (part + 1 == self._course.parts)
        return indices

    def _stale(self) -> bool:
        state = self._state
        return (state.generation, state.skipped) != (self._course.generation, self._course.windows)

    def begin(self) -> None:
        """Begin a step, which consumes its share."""
        if not self._stale():
            self._consume()

    def _consume(self) -> None:
        order, share = self._course.order, self._course.share
        self._streams.use(*order.sizes, caller=_NAME)
        self._streams.weigh(len(share), 1, order.global_batch)
        if self._streams.records:
            indices = order.samples(self._state.data_step, share).tolist()
            self._streams.attempt(order.global_batch, indices)

    def end(self) -> None:
        """Check that the share of the step was drawn. Raises SessionError."""
        state = self._state
        if not self._stale() and self._steps <= state.step:
            raise SessionError(
                f"step {state.step} has not taken its {self._course.parts} batches from a DataLoader over "
                f"session.sampler({contract.shown(self._course.order.sizes)}): take them in every step, or "
                "drop the iterator"
            )

    def leave(self) -> None:
        """Leave the elastic function: nothing is drawn any more."""
        self._streams.unwatch(self)
