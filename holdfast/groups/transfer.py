"""Transfer state from one rank to those that need it, through the group.

The ranks agree once on what is needed; then the state travels in a few large messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast.errors import RestoreError
from holdfast.groups.groups import gather_bytes
from holdfast.ipc import layout
from holdfast.state.tracked import dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.state.tracked import TrackedState

BUCKET_BYTES = 32 << 20
"""The largest size of a message that joins several tensors."""
_HEADER_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Route:
    """Which rank gives and which ranks take.

    `everyone`: by broadcast, in which all ranks take part; else to one rank after the other. `rank` is this
    one."""

    source: int
    takers: tuple[int, ...]
    rank: int
    device: torch.device
    everyone: bool = False

    @property
    def concerns_me(self) -> bool:
        """Whether this rank takes part in the transfer."""
        return self.everyone or self.rank == self.source or self.rank in self.takers

    def pass_on(self, tensor: torch.Tensor) -> None:
        """Move one tensor from the source to the takers, in place."""
        if self.everyone:
            dist.broadcast(tensor, self.source)
        elif self.rank == self.source:
            for pending in [dist.isend(tensor, taker) for taker in self.takers]:
                _wait(pending)
        else:
            dist.recv(tensor, self.source)


def _wait(pending: dist.Work | None) -> None:
    if pending is not None:
        pending.wait()


def exchange(own: Any, device: torch.device) -> list[Any]:
    """Every rank's JSON data, by rank. All ranks call it together."""
    rows = gather_bytes(json.dumps(own).encode(), device, dist.get_world_size())
    return [json.loads(row) for row in rows]


def tell(own: Any, source: int, rank: int, device: torch.device) -> Any:
    """The JSON data of rank `source`, given to all. All ranks, of which `rank` is this one, call it."""
    data = torch.frombuffer(bytearray(json.dumps(own).encode()), dtype=torch.uint8).to(device)
    size = torch.tensor([data.numel()], device=device)
    dist.broadcast(size, source)
    if rank != source:
        data = torch.zeros(int(size), dtype=torch.uint8, device=device)
    dist.broadcast(data, source)
    return json.loads(data.cpu().numpy().tobytes())


def give(route: Route, tensors: Sequence[torch.Tensor], header: bytes) -> None:
    """The source's part of a transfer: header, then tensors."""
    route.pass_on(torch.frombuffer(bytearray(header), dtype=torch.uint8).to(route.device))
    sizes = [(str(tensor.dtype), tensor.nbytes) for tensor in tensors]
    for bucket in buckets(sizes):
        parts = [tensors[index].reshape(-1).to(route.device) for index in bucket]
        route.pass_on(torch.cat(parts) if len(parts) > 1 else parts[0].contiguous())


def take_header(route: Route, header_bytes: int) -> bytes:
    """Receive the header, as a taker or as a rank that only stands by in a broadcast. Raises RestoreError."""
    if not 0 < header_bytes <= _HEADER_MAX:
        raise RestoreError(f"rank {route.source} announced an impossible header of {header_bytes} bytes")
    header = bytearray(header_bytes)
    host = torch.frombuffer(header, dtype=torch.uint8)
    raw = host.to(route.device)
    route.pass_on(raw)
    host.copy_(raw)
    return bytes(header)


def read(header: bytes, giver: str, data_bytes: int = 1 << 62) -> tuple[tuple[layout.Tensor, ...], Any]:
    """Decode a header that came from elsewhere (`giver`, for the message). Raises RestoreError."""
    try:
        return layout.decode(header, data_bytes)
    except layout.SlotLayoutError as error:
        raise RestoreError(f"{giver} gave a malformed header: {error}") from error


def take(route: Route, header_bytes: int, tracked: TrackedState) -> None:
    """Receive the state, and restore it if this rank is a taker. Raises RestoreError."""
    entries, plain = read(take_header(route, header_bytes), f"rank {route.source}")
    values: list[torch.Tensor] = [torch.empty(0)] * len(entries)
    keep = route.rank in route.takers
    for bucket in buckets([(entry.dtype, entry.nbytes) for entry in entries]):
        dtype = dtype_of(entries[bucket[0]].dtype)
        counts = [entries[index].nbytes // dtype.itemsize for index in bucket]
        buffer = torch.empty(sum(counts), dtype=dtype, device=route.device)
        route.pass_on(buffer)
        if keep:
            for index, part in zip(bucket, torch.split(buffer, counts), strict=True):
                values[index] = part.view(entries[index].shape)
    if keep:
        for index, entry in enumerate(entries):
            if not entry.nbytes:
                values[index] = torch.empty(entry.shape, dtype=dtype_of(entry.dtype))
        tracked.adopt(entries, plain, values)


def pass_range(route: Route, memory: memoryview | None, start: int, end: int) -> None:
    """Move a range of raw bytes out of or into `memory`; None: this rank only stands by in a broadcast."""
    for begin in range(start, end, BUCKET_BYTES):
        count = min(BUCKET_BYTES, end - begin)
        host = (
            torch.frombuffer(memory, dtype=torch.uint8, count=count, offset=begin)
            if memory is not None
            else torch.empty(count, dtype=torch.uint8)
        )
        moved = host.to(route.device)
        route.pass_on(moved)
        if memory is not None and route.rank != route.source and moved is not host:
            host.copy_(moved)


def buckets(sizes: Sequence[tuple[str, int]]) -> Iterator[list[int]]:
    """Groups of indices of tensors that travel together: of one dtype, up to BUCKET_BYTES.

    Empty tensors do not travel."""
    waiting: dict[str, tuple[list[int], int]] = {}
    for index, (dtype, nbytes) in enumerate(sizes):
        if not nbytes:
            continue
        held, total = waiting.get(dtype, ([], 0))
        if held and total + nbytes > BUCKET_BYTES:
            yield held
            held, total = [], 0
        held.append(index)
        waiting[dtype] = (held, total + nbytes)
    for held, _ in waiting.values():
        yield held
