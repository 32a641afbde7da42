"""Describe a snapshot as it travels between agents: chunks with digests, and the slot that they fill.

The slot's data comes first, then its header. Each is cut into chunks of CHUNK_BYTES (the last one of each is
shorter), and a chunk travels in blocks of BLOCK_BYTES. Equal chunks are recognized by digest, so only what
changed since the last copy is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import xxhash

from controlplane.settings import NAME
from holdfast.ipc import layout
from holdfast.ipc.shm import HEADER_ALIGN_BYTES, align

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.ipc.arena import SlotView

CHUNK_BYTES = 8 << 20
BLOCK_BYTES = 1 << 20
DIGEST_BYTES = 16
HEADER_BYTES_MAX = 1 << 30
_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_JOB = NAME
_VOUCHED = re.compile(r"[0-9a-f]{64}")


class PeerError(RuntimeError):
    """What a peer sent or asked for is impossible, or is not what it was declared to be. The message names
    it."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot of one member, and the digest of each of its chunks, 16 bytes each, in order."""

    job: str
    member: str
    rank: int
    shard: str
    step: int
    generation: int
    data_bytes: int
    header_bytes: int
    digests: bytes = b""
    vouched: str = field(default="", compare=False)
    """The digest that the agent of its rank vouches for (vouching.py); "" for none. Not compared: it may come
    later."""

    @property
    def room(self) -> int:
        """How many bytes of a slot it needs."""
        return layout.room(self.data_bytes, self.header_bytes)

    @property
    def age(self) -> tuple[int, int]:
        """Orders the snapshots of a member: the newer one is greater."""
        return self.generation, self.step

    def digest(self, chunk: int) -> bytes:
        """The digest of a chunk."""
        return self.digests[chunk * DIGEST_BYTES : (chunk + 1) * DIGEST_BYTES]

    def __str__(self) -> str:
        return f"snapshot {self.step} of {self.member} (generation {self.generation})"


Place = tuple[int, int]
"""Where a chunk is in its slot: offset and length in bytes."""


def places(data_bytes: int, header_bytes: int) -> list[Place]:
    """Where each chunk is in its slot."""
    header = align(data_bytes, HEADER_ALIGN_BYTES)
    return _cut(0, data_bytes) + _cut(header, header_bytes)


def _cut(start: int, nbytes: int) -> list[Place]:
    return [(start + at, min(CHUNK_BYTES, nbytes - at)) for at in range(0, nbytes, CHUNK_BYTES)]


def digest(content: Any) -> bytes:
    """A digest that shows whether bytes arrived as they were sent: fast, no protection against forgery."""
    return xxhash.xxh3_128_digest(content)


def digests_of(slot: SlotView) -> bytes:
    """The digests of a slot's chunks, one after the other. Pin the slot while they are taken."""
    memory = slot.arena.area(slot.index)
    return b"".join(digest(memory[at : at + n]) for at, n in places(slot.data_bytes, slot.header_bytes))


def check_member(member: str) -> None:
    """Raise PeerError unless this can name a member. The name becomes part of a file's name."""
    if not _MEMBER.fullmatch(member):
        raise PeerError(f"member name {member!r:.120} is not allowed")


def check(held: SnapshotInfo) -> None:
    """Raise PeerError unless this can be a snapshot: names, sizes and digests must agree."""
    check_member(held.member)
    if not _JOB.fullmatch(held.job):
        raise PeerError(f"job name {held.job!r:.120} is not allowed")
    if held.rank < 0 or held.step < 0 or held.generation < 0:
        raise PeerError(f"{held}: its rank, step or generation is negative")
    try:
        layout.check_shard(held.shard)
    except layout.SlotLayoutError as error:
        raise PeerError(f"{held}: {error}") from error
    if not (0 <= held.data_bytes < 1 << 62 and 0 < held.header_bytes <= HEADER_BYTES_MAX):
        raise PeerError(
            f"{held}: {held.data_bytes} bytes and a header of {held.header_bytes} are not possible"
        )
    if held.vouched and not _VOUCHED.fullmatch(held.vouched):
        raise PeerError(f"{held}: its digest {held.vouched!r:.80} is not a BLAKE3 digest in hex")
    chunks = -(-held.data_bytes // CHUNK_BYTES) + -(-held.header_bytes // CHUNK_BYTES)
    if len(held.digests) != chunks * DIGEST_BYTES:
        raise PeerError(f"{held}: {len(held.digests)} bytes of digests for {chunks} chunks")


def blocks(memory: memoryview, where: Iterable[Place]) -> Iterable[memoryview]:
    """The bytes of these chunks, in order, cut into blocks."""
    for start, nbytes in where:
        for at in range(start, start + nbytes, BLOCK_BYTES):
            yield memory[at : min(at + BLOCK_BYTES, start + nbytes)]
