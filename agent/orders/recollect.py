"""Find the bytes of a chunk in this node's memory, to repair one that has rotted on storage.

Its members' snapshots and the copies that it keeps for others may still hold the tensors that the chunk was
cut from. Bytes are returned only when they hash to the chunk's name, so a wrong guess cannot do harm."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from holdfast.checkpoint.format import chunks
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.host.paths import Paths
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.ipc.arena import SlotView


class _Span(NamedTuple):
    """A range of a chunk, and the range of the tensor that it was cut from."""

    at: int  # offset in the chunk
    tensor: str
    start: int  # offset in the tensor
    nbytes: int


class MemoryChunks:
    """Looks for the chunks of one checkpoint in memory. Close it: it keeps arenas open."""

    def __init__(self, paths: Paths, manifest: Manifest) -> None:
        self._paths = paths
        self._step = manifest.step
        self._sizes = {chunk.blake3: chunk.nbytes for chunk in manifest.chunks}
        self._spans = _spans(manifest)
        self._arenas: list[Arena] | None = None

    def __call__(self, digest: str) -> bytes | None:
        """The raw bytes of a chunk; None when they are not in memory."""
        nbytes = self._sizes.get(digest, 0)
        for shard, spans in self._spans.get(digest, {}).items():
            for slot in self._slots(shard):
                content = _assembled(slot, spans, nbytes)
                if content is not None and chunks.name(content) == digest:
                    return content
        return None

    def close(self) -> None:
        """Close the arenas."""
        for arena in self._arenas or ():
            arena.close()
        self._arenas = None

    def _slots(self, shard: str) -> Iterator[SlotView]:
        """READY slots that hold this shard, those of the checkpoint's step first."""
        slots = [slot for arena in self._opened() for slot in arena.slots if slot.state == SlotState.READY]
        for slot in sorted(slots, key=lambda slot: slot.step != self._step):
            with contextlib.suppress(layout.SlotLayoutError):
                if layout.shard(slot.header) == shard:
                    yield slot

    def _opened(self) -> list[Arena]:
        if self._arenas is None:
            self._arenas = []
            folders = (self._paths.memory, self._paths.copies)
            for path in sorted(path for folder in folders for path in folder.glob("*.arena")):
                with contextlib.suppress(ArenaError):
                    self._arenas.append(Arena.open(path))
        return self._arenas


def _spans(manifest: Manifest) -> dict[str, dict[str, list[_Span]]]:
    """For each chunk, by shard: the ranges of tensors that it was cut from."""
    found: dict[str, dict[str, list[_Span]]] = {}
    for shard in manifest.shards:
        for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True):
            start = 0
            for piece in pieces:
                spans = found.setdefault(manifest.chunks[piece.chunk].blake3, {}).setdefault(shard.shard, [])
                spans.append(_Span(piece.at, tensor.name, start, piece.nbytes))
                start += piece.nbytes
    return found


def _assembled(slot: SlotView, spans: list[_Span], nbytes: int) -> bytes | None:
    """The chunk's bytes as this slot has them; None unless it has all of them."""
    try:
        with slot.arena.pinned(slot):
            tensors, _ = layout.decode(slot.header, slot.data_bytes)
            places = {tensor.name: tensor for tensor in tensors}
            parts, end = [], 0
            for span in sorted(spans):
                tensor = places.get(span.tensor)
                fits = tensor is not None and span.start + span.nbytes <= tensor.nbytes
                if span.at == end and tensor is not None and fits:
                    first = tensor.offset + span.start
                    parts.append(bytes(slot.memory[first : first + span.nbytes]))
                    end += span.nbytes
    except (ArenaError, layout.SlotLayoutError):  # overwritten meanwhile, or not a snapshot
        return None
    return b"".join(parts) if end == nbytes else None
