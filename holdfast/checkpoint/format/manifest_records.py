"""Define the records of a manifest: which chunks make up a checkpoint, and which tensors they hold.

manifest.py writes and parses the file; sense.py checks that the records make sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.format import chunks
from holdfast.ipc import layout

if TYPE_CHECKING:
    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.ipc.layout import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive bytes of a tensor: `nbytes` of chunk number `chunk`, from its byte `at` on."""

    chunk: int
    at: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ManifestShard:
    """What the slots of one shard held.

    - `shard`: its id.
    - `ranks`: the ranks whose snapshots were read.
    - `data_bytes`: of the slot's data area."""

    shard: str
    ranks: tuple[int, ...]
    data_bytes: int
    tensors: tuple[Tensor, ...]
    pieces: tuple[tuple[Piece, ...], ...]  # of each tensor, in order
    state: Any  # its plain data, as typed JSON (typed.py)

    @property
    def header(self) -> bytes:
        """The slot's header."""
        return layout.encode(self.tensors, self.state, self.shard)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint.

    - `id`: "<step>-<generation>".
    - `kind`: "full" or "incremental".
    - `base`: the id of the full checkpoint in whose folder the chunks are.
    - `versions`: (rank, step) of every rank whose state it holds; all of one step."""

    job: str
    id: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    holdfast: str  # version of Holdfast that wrote it
    chunks: tuple[Chunk, ...]
    shards: tuple[ManifestShard, ...]

    @property
    def bytes_total(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for shard in self.shards for tensor in shard.tensors)

    @property
    def bytes_stored(self) -> int:
        """Bytes of all its chunks on storage, including chunks shared with other checkpoints."""
        return sum(chunk.stored for chunk in self.chunks)

    def file(self, chunk: Chunk) -> str:
        """Where a chunk of this checkpoint is on storage."""
        return chunks.file(self.job, self.base, chunk)
