"""Define the records of a manifest: which chunks a checkpoint is made of, and which tensors lie in them.

The manifest's file is written and parsed in manifest.py; sense.py says which records make sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.format import names
from holdfast.ipc import layout

if TYPE_CHECKING:
    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.ipc.layout import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a tensor, in order: `nbytes` of chunk number `chunk`, from its byte `at` on."""

    chunk: int
    at: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What the slots of one shard held. `ranks`: whose snapshots were read."""

    shard: str
    ranks: tuple[int, ...]
    data_bytes: int
    tensors: tuple[Tensor, ...]
    pieces: tuple[tuple[Piece, ...], ...]  # of each tensor
    state: Any  # typed JSON (typed.py)

    @property
    def header(self) -> bytes:
        """The slot's header."""
        return layout.encode(self.tensors, self.state, self.shard)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. `versions`: (rank, step) of every rank whose state it holds, all of one step."""

    job: str
    id: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    holdfast: str  # version that wrote it
    chunks: tuple[Chunk, ...]
    shards: tuple[Shard, ...]

    @property
    def bytes_total(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for shard in self.shards for tensor in shard.tensors)

    @property
    def bytes_stored(self) -> int:
        """Bytes of all chunks on storage, shared ones included."""
        return sum(chunk.stored for chunk in self.chunks)

    def file(self, chunk: Chunk) -> str:
        """Where a chunk of this checkpoint lies on storage."""
        return names.chunk(self.job, self.base, chunk.blake3, chunk.codec)
