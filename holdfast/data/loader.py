"""Load batches of a map data set: workers fetch ahead, and each step consumes its own batch.

What was fetched ahead is not consumed. It carries the generation, step, batch and micro-batch it was fetched
for, and is thrown away if one of them has changed. The loss weight and the ledger follow what a step
takes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from holdfast.anatomy.phases import DATA
from holdfast.data import sampler, sampling
from holdfast.data.seeding import Collated, FetchedBatch, PreservedGenerators, Seeded, Tag, Wanted, WorkerInit
from holdfast.data.stateful import StateLoader, end_workers, is_maker
from holdfast.data.taking import Taking
from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.data.sampler import BatchSchedule
    from holdfast.data.streams import SampleStreams
    from holdfast.data.taking import Batch

_OURS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator", "in_order")
"""Options of DataLoader that follow from global_batch, micro and seed."""


def make(streams: SampleStreams, dataset: Any, batch: Batch, options: dict[str, Any]) -> Loader | StateLoader:
    """The loader for this kind of data set. Raises SessionError."""
    for name in _OURS:
        if name in options:
            raise SessionError(
                f"session.loader: {name} follows from global_batch, micro and seed: leave it out"
            )
    if is_maker(dataset):
        return StateLoader(streams, dataset, batch, options)
    iterable = isinstance(dataset, DataLoader | IterableDataset)
    if not iterable and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return Loader(streams, dataset, batch, options)
    if not (hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")):
        raise SessionError(
            f"session.loader: a {type(dataset).__name__} cannot report its position: give a map data set "
            "(with __getitem__ and __len__), or one with state_dict and load_state_dict, or a function "
            "(dp_rank, dp) that makes one; if you have a DataLoader, give its data set"
        )
    return StateLoader(streams, dataset, batch, options)


class Loader(Taking):
    """Gives the batch of the current step: `for step, batch in zip(session.steps(n), loader)`.

    With `micro` it gives an iterator with a length over the step's micro-batches."""

    def __init__(self, streams: SampleStreams, dataset: Any, batch: Batch, options: dict[str, Any]) -> None:
        sampler.check(len(dataset), batch.size, batch.micro, "session.loader")
        super().__init__(streams)
        self._micro, self._sizes = batch.micro, (len(dataset), batch.size, batch.seed)
        collate = options.pop("collate_fn", None) or default_collate
        self._feed, self._seeded = _Feed(batch.seed), Seeded(dataset, collate)
        given = ((getattr(each, "__name__", type(each).__name__), each) for each in (dataset, collate))
        self._given = {f"loader({name})": each for name, each in given}
        self._torch: DataLoader[Any] = DataLoader(
            self._seeded,
            batch_sampler=self._feed,  # type: ignore[arg-type]  # what it gives is for Seeded alone
            collate_fn=Collated(collate),  # type: ignore[arg-type]
            worker_init_fn=WorkerInit(options.pop("worker_init_fn", None)),
            generator=torch.Generator(),  # else each pass would draw from the script's generators
            **options,
        )
        self._course: BatchSchedule | None = None
        self._batches: Iterator[FetchedBatch] | None = None
        self._next = -1  # the step of the workers' next batch

    @property
    def has_workers(self) -> bool:
        """Whether other processes fetch the samples, from copies of the data set."""
        return self._torch.num_workers > 0

    def from_script(self) -> dict[str, Any]:
        """The data set and what its samples are collated with, by their names: the steps may change them."""
        return self._given

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Any:
        self.check()
        state = self._state
        course = sampler.course(self._streams, self._sizes, self._micro, "session.loader")
        if course != self._course or self._next != state.step or self._batches is None:
            with state.times.within(DATA):
                self._open(course)
        self._next = state.step + 1
        pull = functools.partial(self._pull, course, state.step)
        return self.take(course.parts, pull, whole=self._micro is None)

    def _open(self, course: BatchSchedule) -> None:
        """Let the workers begin with this step. What they have fetched before is thrown away."""
        self._close()
        self._course = self._feed.course = course
        self._feed.step = self._state.step
        self._batches = iter(self._torch)

    def _pull(self, course: BatchSchedule, step: int, part: int) -> Any:
        """Take one micro-batch, which is consumed from now on. Raises SessionError."""
        state = self._state
        if self._batches is None or course != self._course or state.step != step:
            raise SessionError(f"these micro-batches belong to step {step}: take them in that step")
        # Without workers, the data set draws random numbers here.
        own = [] if self._torch.num_workers else self._seeded.own.known()
        with state.times.within(DATA), PreservedGenerators(own):
            fetched = next(self._batches)
        state.check_interrupted()
        if fetched.tag != (tag := Tag(course.generation, step, state.data_step, part)):
            raise SessionError(f"the DataLoader returned {fetched.tag} instead of {tag}")
        order, share = course.order, course.share
        if not part:
            self._streams.attempt(order.global_batch, fetched.share)
        samples = len(sampling.share(len(share), part, course.parts))
        self._streams.weigh(samples, course.parts, order.global_batch)
        return fetched.data

    def leave(self) -> None:
        """Leave the elastic function: end the workers. Persistent ones stay and get new work later."""
        super().leave()
        self._close()

    def _close(self) -> None:
        batches, self._batches, self._course = self._batches, None, None
        if not self._torch.persistent_workers:
            end_workers(batches)


class _Feed:
    """The batch sampler of a DataLoader: what to fetch, from the step at which the loader was opened."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.course: BatchSchedule | None = None
        self.step = 0

    def __iter__(self) -> Iterator[Wanted]:
        course = self.course
        assert course is not None
        for step, batch, part, indices, whole in course.batches(self.step):
            share = [] if part else whole
            yield Wanted(Tag(course.generation, step, batch, part), self._seed, indices, share)
