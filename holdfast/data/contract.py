"""Define the order of a stream's samples, and how it goes on when the sizes change. Plain numbers in, samples
out; the state's header carries them.

A stream is known by its seed. Its batches are numbered; batch `batch` begins at `position` of the samples'
order, each later one `global_batch` further. The order is made of stretches: one, as long as neither the
number of samples nor the seed has changed. How a change is taken:

- another global_batch: no sample is repeated, none is skipped;
- more samples, or another seed: the epoch that has begun is finished in the old order, then comes the new;
- fewer samples: what the begun epoch still had to give may be gone, so a new epoch begins at once: what was
  consumed of the begun one may come again in it."""

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
"""Batches that are left out: from the first of each, up to and not including the second."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the order: from position `first` on, the samples are those of the endless order over n
    samples as if that had begun at position `base`."""

    first: int
    n: int
    seed: int
    base: int


@dataclass(frozen=True, slots=True)
class Order:
    """Which samples each batch of one stream has, from batch `batch` on."""

    n: int
    global_batch: int
    seed: int
    batch: int = 0
    position: int = 0
    stretches: tuple[Stretch, ...] = ()

    @classmethod
    def new(cls, n: int, global_batch: int, seed: int) -> Order:
        """One that has never changed."""
        return cls(n, global_batch, seed, stretches=(Stretch(0, n, seed, 0),))

    @property
    def plain(self) -> bool:
        """Whether batch b begins at b * global_batch of the one order."""
        whole = len(self.stretches) == 1 and not self.stretches[0].base
        return whole and self.position == self.batch * self.global_batch

    @property
    def sizes(self) -> tuple[int, int, int]:
        """What a script names it by."""
        return self.n, self.global_batch, self.seed

    def start(self, batch: int) -> int:
        """The position at which a batch begins: how many samples come before it."""
        return self.position + (batch - self.batch) * self.global_batch

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

    def changed(self, batch: int, n: int, global_batch: int, seed: int) -> Order:
        """The order that goes on with other sizes from this batch on."""
        position, stretches = self.start(batch), self.stretches
        current = next((s for s in reversed(stretches) if s.first <= position), stretches[0])
        if (n, seed) != (self.n, self.seed):
            begun = -(-(position - current.base) // current.n)  # epochs
            first = current.base + begun * current.n
            if n < current.n:
                first = position
            new = Stretch(first, n, seed, first - begun * n)
            stretches = (current, new) if first > position else (new,)
        return Order(n, global_batch, seed, batch, position, stretches)


@dataclass(slots=True)
class Stream:
    """One stream in use. `orders`: what its order was, one after the other, as far back as training may go;
    `last`: the newest step that asked for samples of it."""

    orders: list[Order]
    last: int

    @property
    def order(self) -> Order:
        """The newest."""
        return self.orders[-1]

    def at(self, batch: int) -> Order:
        """The order as it was when this batch was to come. Raises SessionError when that is not known."""
        for order in reversed(self.orders):
            if order.batch <= batch:
                return order
        raise SessionError(
            f"batch {batch} of the data with {shown(self.order.sizes)} comes before batch "
            f"{self.orders[0].batch}, and which samples it had is not known any more: go on from a "
            "checkpoint (run the same command again)"
        )

    def change(self, order: Order) -> None:
        """From its batch on it goes on so."""
        while self.orders and self.orders[-1].batch >= order.batch:
            self.orders.pop()
        self.orders.append(order)

    def renumber(self, counted: int, batch: int) -> None:
        """What was to come as batch `counted` comes as batch `batch`."""
        order = self.at(counted)
        self.orders = [replace(order, batch=batch, position=order.start(counted))]

    def trim(self, anchor: int, batch: int, step: int) -> None:
        """Batch `batch` comes next, in `step`, and training may go back to batch `anchor`: let go of the
        rest, of what was to come as well, for it comes again."""
        while len(self.orders) > 1 and self.orders[-1].batch > batch:
            self.orders.pop()
        while len(self.orders) > 1 and self.orders[1].batch <= anchor:
            del self.orders[0]
        self.last = min(self.last, step - 1)


def common(some: Windows, others: Windows) -> Windows:
    """The batches (ascending windows of them) that are left out by both."""
    both = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return tuple(sorted((first, end) for first, end in both if first < end))


def lost(counted: int, batch: int, step: int) -> str:
    """Why the state of this step is refused: for it the next batch is `counted`, and for the job `batch`."""
    return (
        f"the state of step {step} goes on with batch {counted} of its data: some before that were left out "
        f"by policy, which is not known of this job any more (was the checkpoint adopted?). By what is known "
        f"batch {batch} comes next, and batches would be repeated: go on by samples consumed with "
        'Session(data_change="continue")'
    )


@dataclass(frozen=True, slots=True)
class Held:
    """Where an iterable stream stands, with so many completed steps: a state of each data-parallel
    coordinate."""

    global_batch: int
    states: tuple[bytes, ...]


def tell(stream: Stream, batch: int, step: int) -> dict[str, Any]:
    """A stream as plain data, in a state of `step` completed steps in which `batch` comes next."""
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


def hear(entry: dict[str, Any]) -> Stream:
    """The stream that a state's header describes. Raises RestoreError."""
    try:
        stretches = tuple(Stretch(*map(int, numbers)) for numbers in entry["stretches"])
        n, global_batch, seed = (int(entry[name]) for name in ("n", "global_batch", "seed"))
        order = Order(n, global_batch, seed, int(entry["batch"]), int(entry["position"]), stretches)
        if not stretches or min(order.n, order.global_batch, *(s.n for s in stretches)) < 1:
            raise ValueError("no samples")
        return Stream([order], int(entry["last"]))
    except (LookupError, TypeError, ValueError) as error:
        raise RestoreError(f"the state's data contract cannot be read: {error!r}") from error


@functools.cache
def script() -> str:
    """A hash of this script and its arguments: equal hashes, the same program."""
    path = Path(sys.argv[0])
    content = path.read_bytes() if path.is_file() else str(path).encode()
    return hashlib.blake2s(content + json.dumps(sys.argv[1:]).encode(), digest_size=8).hexdigest()


def shown(sizes: tuple[int, int, int]) -> str:
    """Sizes for people."""
    return "n={}, global_batch={}, seed={}".format(*sizes)
