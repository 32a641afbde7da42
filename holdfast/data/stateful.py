"""Load batches of an iterable data set that knows its position: one instance per data-parallel replica.

Before a step is computed, every rank has drawn its part of it. Then all ranks tell each other whether they
could, and their new states. So the data ends at the same step for all ranks, and every rank has the states of
all: whichever process takes a place, in a world of any size, continues exactly there."""

from __future__ import annotations

import functools
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, default_collate

from holdfast import coordinates
from holdfast.anatomy.phases import DATA
from holdfast.checkpoint.format import typed
from holdfast.data import objects, sampler, sampling
from holdfast.data.contract import StreamPosition
from holdfast.data.left_out import Buffers, LeftOut
from holdfast.data.seeding import PreservedGenerators, seed_all
from holdfast.data.taking import Taking
from holdfast.errors import SessionError
from holdfast.groups.groups import carrier, gather_bytes, gather_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.data.streams import SampleStreams
    from holdfast.data.taking import Batch

_LEFT_OUT = (
    "session.loader: %s draws from a random generator that its state_dict leaves out: %s. Unless it is "
    "seeded for each sample, other samples come after a rank has died: put its state into state_dict"
)
_BUFFERED = (
    "session.loader: %s keeps what its state_dict leaves out: %s. If samples wait in there, they are lost "
    "after a rank has died, and others come: put it into state_dict"
)
log = logging.getLogger("holdfast.sdk")


class StateLoader(Taking):
    """Gives the batch of the current step, or with `micro` an iterator over its micro-batches."""

    def __init__(self, streams: SampleStreams, source: Any, batch: Batch, options: dict[str, Any]) -> None:
        sampler.check(1, batch.size, batch.micro, "session.loader")
        self._collate = options.pop("collate_fn", None) or default_collate
        if options:
            raise SessionError(
                f"session.loader: an iterable data set does not support {', '.join(sorted(options))}; "
                "for workers, give torchdata's StatefulDataLoader, or a function (dp_rank, dp) that makes one"
            )
        super().__init__(streams)
        self._given, self._seed = source, batch.seed
        self._global_batch, self._micro = batch.size, batch.micro
        self._source: Any = None
        self._samples: Iterator[Any] | None = None
        self._next = -1  # the step of the source's next samples
        self._left_out, self._buffers = LeftOut(), Buffers()

    @property
    def source(self) -> Any:
        """What it reads: its state is kept."""
        return self._source or self._given

    def __iter__(self) -> StateLoader:
        return self

    def __next__(self) -> Any:
        self.check()
        rank_state = self._state
        self._streams.own(self._seed, self)
        with rank_state.times.within(DATA), PreservedGenerators():
            if self._samples is None or self._next != rank_state.step:
                self._open()
            seed_all(self._seed, rank_state.data_step, rank_state.layout.dp_rank)
            assert self._samples is not None
            objects.left(self._source, None)
            self._left_out.before(self._source, self._samples)
            self._buffers.before(self._source, self._samples)
            drawn = self._draw(self._samples)
            state = encode(self._source.state_dict()) if drawn or not is_maker(self._given) else b""
            objects.left(self._source, state)
            self._tell()
        held = self._agree(state, drawn=bool(drawn))
        if held is None:
            self._samples = None
            raise StopIteration
        self._streams.hold(self._seed, held)
        self._next = rank_state.step + 1
        return self.take(len(drawn), functools.partial(self._give, drawn), whole=self._micro is None)

    def _give(self, drawn: list[tuple[int, Any]], part: int) -> Any:
        """Take one micro-batch, which is consumed from now on."""
        samples, data = drawn[part]
        self._streams.weigh(samples, len(drawn), self._global_batch)
        return data

    def _tell(self) -> None:
        """Warn of random generators that the source has drawn from and leaves out of its state."""
        left_out = self._left_out.after(lambda: encode(self._source.state_dict()))
        if left_out and self._state.rank == 0:
            log.warning(_LEFT_OUT, type(self._source).__name__, ", ".join(left_out))
        buffered = self._buffers.after(lambda: encode(self._source.state_dict()))
        if buffered and self._state.rank == 0:
            log.warning(_BUFFERED, type(self._source).__name__, ", ".join(buffered))

    # ------------------------------------------------------------------ where the source stands

    def _open(self) -> None:
        """Make or take the source, and restore its state for this step."""
        at = self._state.layout
        made = is_maker(self._given)
        self._source = source = self._given(at.dp_rank, at.dp) if made else self._given
        self._check_source()
        functions, first = self._state.functions, None
        if not made:
            first = objects.begin(source, functions, lambda: encode(source.state_dict()))
        held = self._streams.held(self._seed)
        if held is not None:
            self._check_contract(held)
            source.load_state_dict(decode(self._placed(held.states, at.dp)[at.dp_rank]))
        elif first is not None:
            source.load_state_dict(decode(first))
        self._samples = iter(self._source)

    def _check_source(self) -> None:
        for name in ("state_dict", "load_state_dict", "__iter__"):
            if not hasattr(self._source, name):
                raise SessionError(f"session.loader: {type(self._source).__name__} has no {name}")

    def _check_contract(self, held: StreamPosition) -> None:
        if held.global_batch != self._global_batch and not self._streams.goes_on:
            raise SessionError(
                f"the state of step {self._state.step} was trained with global_batch={held.global_batch}, "
                f"seed={self._seed}; this script asks for global_batch={self._global_batch}: resume with the "
                'old value, or continue from there with Session(data_change="continue")'
            )

    def _placed(self, states: Sequence[bytes], dp: int) -> Sequence[bytes]:
        """One state for each of `dp` replicas, redistributed if there were others."""
        if len(states) == dp:
            return states
        deal = getattr(self._source, "redistribute", None)
        deal = deal or getattr(getattr(self._source, "dataset", None), "redistribute", None)
        if deal is None:
            raise SessionError(
                f"session.loader: a {type(self._source).__name__} was read by {len(states)} replicas and has "
                f"no method redistribute(states, old_dp, new_dp) that makes states for {dp}: add one"
            )
        dealt = deal([decode(state) for state in states], len(states), dp)
        if len(dealt) != dp:
            raise SessionError(f"redistribute returned {len(dealt)} states for {dp} replicas")
        return [encode(state) for state in dealt]

    # ------------------------------------------------------------------ a step's part

    def _draw(self, items: Iterator[Any]) -> list[tuple[int, Any]]:
        """The step's micro-batches, each with its number of samples; [] if the data ends too early."""
        share, dp = len(self._streams.share(self._global_batch)), self._state.layout.dp
        parts = sampler.micro_batches(self._global_batch, dp, self._micro)
        sampler.check_share(self._state, share, parts, self._global_batch, self._micro)
        cuts = [sampling.share(share, part, parts) for part in range(parts)]
        if isinstance(self._source, DataLoader):
            self._check_loader(self._source, {len(cut) for cut in cuts})
            found = _take(items, parts)
            return [(len(cuts[0]), data) for data in found] if len(found) == parts else []
        found = _take(items, share)
        if len(found) < share:
            return []
        return [(len(cut), self._collate(found[cut.start : cut.stop])) for cut in cuts]

    def _check_loader(self, loader: DataLoader[Any], sizes: set[int]) -> None:
        if sizes != {loader.batch_size} or not loader.drop_last:
            raise SessionError(
                f"session.loader: rank {self._state.rank} computes batches of {sorted(sizes)} samples; the "
                f"{type(loader).__name__} makes batches of {loader.batch_size}, "
                f"drop_last={loader.drop_last}: give it that batch_size, with global_batch and micro that "
                "make all equal, and drop_last=True"
            )

    def _agree(self, state: bytes, *, drawn: bool) -> StreamPosition | None:
        """The states of all replicas; None if some rank has reached the end of its data."""
        rank_state = self._state
        device, world = carrier(rank_state.backend, rank_state.device), rank_state.world_size
        rows = gather_numbers([int(drawn), len(state)], device, world)
        if not all(row[0] for row in rows):
            return None
        states = gather_bytes(state, device, world, [row[1] for row in rows])
        found: dict[int, bytes] = {}
        at = rank_state.layout
        for rank, given in enumerate(states):
            place = coordinates.Coordinates(rank, world, at.tp, at.pp, at.cp).dp_rank
            if found.setdefault(place, given) != given:
                raise SessionError(
                    f"session.loader: rank {rank} and other ranks of replica {place} must read the same "
                    "data, but are at different positions: let the data set depend on dp_rank, not on rank"
                )
        return StreamPosition(self._global_batch, tuple(found[place] for place in range(at.dp)))

    def leave(self) -> None:
        """Leave the elastic function: what the source gave after its state will be drawn again."""
        super().leave()
        samples, self._samples = self._samples, None
        if not getattr(self._source, "persistent_workers", False):
            end_workers(samples)


def is_maker(source: Any) -> bool:
    """Whether it is a function or class that makes the data set of a replica."""
    return isinstance(source, type) or (callable(source) and not hasattr(source, "__iter__"))


def end_workers(batches: Any) -> None:
    """End the workers of a DataLoader's iterator now, not when its last reference goes."""
    shut = getattr(batches, "_shutdown_workers", None)
    if shut is not None:
        shut()


def _take(items: Iterator[Any], count: int) -> list[Any]:
    found = []
    for _ in range(count):
        try:
            found.append(next(items))
        except StopIteration:
            break
    return found


def encode(state: Any) -> bytes:
    """A state as bytes; equal states give equal bytes. Raises SessionError naming what cannot be kept."""
    tensors: list[tuple[str, list[int], bytes]] = []

    def leaf(value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        tensors.append((str(value.dtype).removeprefix("torch."), list(value.shape), bytes(flat.tolist())))
        return len(tensors) - 1

    try:
        tree = typed.encode(_plain(state), leaf, "state")
        return json.dumps({"tree": tree, "tensors": typed.encode(tensors)}, separators=(",", ":")).encode()
    except typed.TypedDataError as error:
        raise SessionError(f"session.loader: the position of the data set cannot be kept: {error}") from error


def decode(data: bytes) -> Any:
    """The state that was encoded."""
    record = json.loads(data)
    tensors = [
        torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).reshape(shape)
        if content
        else torch.empty(shape, dtype=getattr(torch, dtype))
        for dtype, shape, content in typed.decode(record["tensors"])
    ]
    return typed.decode(record["tree"], tensors.__getitem__)


def _plain(value: Any) -> Any:
    """The value with numpy scalars as numbers and numpy arrays as tensors."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if numpy is not None and isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if type(value) is dict:
        return {_plain(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value


def refuse(name: str, thing: Any) -> None:
    """Raise SessionError if an object to be tracked holds one rank's position in its data."""
    kinds = (DataLoader, torch.utils.data.IterableDataset, torch.utils.data.Sampler)
    if isinstance(thing, kinds):
        raise SessionError(
            f"track({name}=...): a {type(thing).__name__} holds the position of one rank in its data, and a "
            "replacement would get that of rank 0: give it (or its data set) to session.loader(dataset, "
            "global_batch), which keeps a position for each replica, or track it with per_rank=True"
        )
