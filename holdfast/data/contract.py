"""Define the order of a stream's samples, and how it goes on when the sizes change.

Pure: plain numbers in, samples out; the state's header carries them. A stream is known by its seed. Its
batches are numbered. Batch `batch` begins at `position` in the order of samples, and each later batch begins
`global_batch` further on. The order consists of stretches: a single one, unless the number of samples or the
seed has changed. How a change is taken:

- another global_batch: no sample is repeated or skipped;
- more samples, or another seed: the current epoch is finished in the old order, then the new one begins;
- fewer samples: the rest of the current epoch may be gone, so a new epoch begins at once, in which samples of
  the old one may come again."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from holdfast.data import sampling
from holdfast.errors import RestoreError, SessionError

Windows = tuple[tuple[int, int], ...]
"""Batches that are left out: each window from its first batch up to, not including, its second."""


@dataclass(frozen=True, slots=True)
class OrderStretch:
    """A piece of the order.

    From position `first` on, the samples are those of the endless order over `n` samples with `seed`, as if
    that had begun at position `base`."""

    first: int
    n: int
    seed: int
    base: int


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """Which samples each batch of one stream has, from batch `batch` on, which begins at `position`."""

    n: int
    global_batch: int
    seed: int
    batch: int = 0
    position: int = 0
    stretches: tuple[OrderStretch, ...] = ()

    @classmethod
    def new(cls, n: int, global_batch: int, seed: int) -> SampleOrder:
        """An order that has never changed."""
        return cls(n, global_batch, seed, stretches=(OrderStretch(0, n, seed, 0),))

    @property
    def plain(self) -> bool:
        """Whether batch b begins at b * global_batch of a single endless order."""
        whole = len(self.stretches) == 1 and not self.stretches[0].base
        return whole and self.position == self.batch * self.global_batch

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(n, global_batch, seed): what a script asks for."""
        return self.n, self.global_batch, self.seed

    def start(self, batch: int) -> int:
        """The position at which a batch begins: the number of samples before it."""
        return self.position + (batch - self.batch) * self.global_batch

    def from_here(self, batch: int) -> str:
        """What decides the samples from this batch on, in words: equal for equal samples, however the order
        came about."""
        begin = self.start(batch)
        later = [each for each in self.stretches if each.first > begin]
        now = [each for each in self.stretches if each.first <= begin][-1:]
        parts = [(max(each.first, begin), each.n, each.seed, each.base) for each in (*now, *later)]
        return f"{self.n} samples, {self.global_batch} a step, from sample {begin} on of {parts}"

    def samples(self, batch: int, places: range) -> torch.Tensor:
        """The samples at these places of a batch (int64)."""
        begin, parts = self.start(batch) + places.start, []
        end = begin + len(places)
        for index, stretch in enumerate(self.stretches):
            last = index + 1 == len(self.stretches)
            until = end if last else min(end, self.stretches[index + 1].first)
            if begin < until:
                parts.append(sampling.indices(stretch.n, begin - stretch.base, until - begin, stretch.seed))
                begin = until
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def changed(self, batch: int, n: int, global_batch: int, seed: int) -> SampleOrder:
        """The order that goes on with other sizes from this batch on."""
        position, stretches = self.start(batch), self.stretches
        current = next((s for s in reversed(stretches) if s.first <= position), stretches[0])
        if (n, seed) != (self.n, self.seed):
            begun = -(-(position - current.base) // current.n)  # epochs
            first = current.base + begun * current.n
            if n < current.n:
                first = position
            new = OrderStretch(first, n, seed, first - begun * n)
            stretches = (current, new) if first > position else (new,)
        return SampleOrder(n, global_batch, seed, batch, position, stretches)


@dataclass(slots=True)
class SampleStream:
    """One stream in use.

    - `orders`: its orders, oldest first, as far back as training may return.
    - `last`: the newest step that asked for samples of it."""

    orders: list[SampleOrder]
    last: int

    @property
    def order(self) -> SampleOrder:
        """The newest order."""
        return self.orders[-1]

    def at(self, batch: int) -> SampleOrder:
        """The order that this batch belongs to. Raises SessionError if it is no longer known."""
        for order in reversed(self.orders):
            if order.batch <= batch:
                return order
        raise SessionError(
            f"batch {batch} of the data with {shown(self.order.sizes)} comes before batch "
            f"{self.orders[0].batch}, and its samples are no longer known: continue from a checkpoint "
            "(run the same command again)"
        )

    def change(self, order: SampleOrder) -> None:
        """Go on with this order from its first batch on."""
        while self.orders and self.orders[-1].batch >= order.batch:
            self.orders.pop()
        self.orders.append(order)

    def renumber(self, counted: int, batch: int) -> None:
        """Give the batch numbered `counted` the number `batch`, and forget all orders before it."""
        order = self.at(counted)
        self.orders = [replace(order, batch=batch, position=order.start(counted))]

    def trim(self, anchor: int, batch: int, step: int) -> None:
        """Forget orders that are not needed any more.

        Batch `batch` comes next, in `step`, and training may go back to batch `anchor`. Orders that begin
        after `batch` are forgotten too: they will be made again."""
        while len(self.orders) > 1 and self.orders[-1].batch > batch:
            self.orders.pop()
        while len(self.orders) > 1 and self.orders[1].batch <= anchor:
            del self.orders[0]
        self.last = min(self.last, step - 1)


def common(some: Windows, others: Windows) -> Windows:
    """The batches (as ascending windows) that both leave out."""
    both = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return tuple(sorted((first, end) for first, end in both if first < end))


def lost(counted: int, batch: int, step: int) -> str:
    """The error for a state of `step` whose next batch is `counted`, while for the job it is `batch`."""
    return (
        f"the state of step {step} continues with batch {counted} of its data, because earlier batches were "
        "left out by policy. This job has no record of that (was the checkpoint adopted?) and would take "
        f"batch {batch} next, which repeats batches: continue after the samples consumed so far with "
        'Session(data_change="continue")'
    )


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position of an iterable stream after a step: one encoded state per data-parallel replica."""

    global_batch: int
    states: tuple[bytes, ...]


def stream_entry(stream: SampleStream, batch: int, step: int) -> dict[str, Any]:
    """A stream as plain data, for a state of `step` completed steps whose next batch is `batch`."""
    order = stream.at(batch)
    return {
        "seed": order.seed,
        "n": order.n,
        "global_batch": order.global_batch,
        "batch": batch,
        "position": order.start(batch),
        "stretches": [(s.first, s.n, s.seed, s.base) for s in order.stretches],
        "last": min(stream.last, step - 1),
    }


def stream_from(entry: dict[str, Any]) -> SampleStream:
    """The stream that a state's header describes. Raises RestoreError."""
    try:
        stretches = tuple(OrderStretch(*map(int, numbers)) for numbers in entry["stretches"])
        n, global_batch, seed = (int(entry[name]) for name in ("n", "global_batch", "seed"))
        order = SampleOrder(n, global_batch, seed, int(entry["batch"]), int(entry["position"]), stretches)
        if not stretches or min(order.n, order.global_batch, *(s.n for s in stretches)) < 1:
            raise ValueError("no samples")
        return SampleStream([order], int(entry["last"]))
    except (LookupError, TypeError, ValueError) as error:
        raise RestoreError(f"the state's data contract cannot be read: {error!r}") from error


@functools.cache
def script() -> str:
    """A hash of this script and its arguments: an equal hash means the same program."""
    path = Path(sys.argv[0])
    content = path.read_bytes() if path.is_file() else str(path).encode()
    return hashlib.blake2s(content + json.dumps(sys.argv[1:]).encode(), digest_size=8).hexdigest()


def shown(sizes: tuple[int, int, int]) -> str:
    """Sizes as text."""
    return "n={}, global_batch={}, seed={}".format(*sizes)
