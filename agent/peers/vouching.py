"""Vouch for snapshots: report their digests to the leader before any other node has a copy.

The digest is one blake3 over the blake3 of each chunk, and over the member and step of the snapshot: the node
that keeps the copy cannot find other bytes, or another step, with the same digest. (xxh3, by which chunks are
compared on their way, is fast but can be forged.) It is taken where copies are sent, in the background, once
per snapshot."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import blake3

from agent.peers.blocks import PeerError, places
from controlplane.core.records import events

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from agent.peers.blocks import SnapshotInfo
    from agent.peers.offer import Offer

_FORM = "holdfast snapshot 1"
VOUCHED_MAX = 3
"""Snapshots of one member for which the agent vouches to each new leader: its arena holds two of them."""


class Altered(PeerError):
    """What a node gave is not what the agent of the rank vouched for."""


class SnapshotHasher:
    """The digest of one snapshot, from its chunks in order.

    With a `pool`, each chunk's digest is taken in the pool's threads while the next chunk arrives. Then ask
    for the whole digest in that pool too, behind the chunks."""

    def __init__(self, held: SnapshotInfo, pool: Executor | None = None) -> None:
        self._pool, self._taken = pool, list[Future[bytes]]()
        sizes = held.step, held.generation, held.data_bytes, held.header_bytes
        words = (_FORM, held.job, held.member, held.shard, *map(str, sizes))
        self._whole = blake3.blake3("\n".join(words).encode())

    def add(self, chunk: Any) -> None:
        """Add the next chunk. Its bytes must not change until the digest is asked for."""
        if self._pool is None:
            self._whole.update(_digest(chunk))
        else:
            self._taken.append(self._pool.submit(_digest, chunk))

    @property
    def digest(self) -> str:
        """The digest of all that was added, in hex."""
        taken, self._taken = self._taken, []
        for chunk in taken:
            self._whole.update(chunk.result())
        return self._whole.hexdigest()


def _digest(chunk: Any) -> bytes:
    digest: bytes = blake3.blake3(chunk).digest()
    return digest


def digest_of(held: SnapshotInfo, memory: memoryview) -> str:
    """The digest of the snapshot in a slot's memory. Keep the slot pinned meanwhile."""
    hasher = SnapshotHasher(held)
    for start, nbytes in places(held.data_bytes, held.header_bytes):
        hasher.add(memory[start : start + nbytes])
    return hasher.digest


class Vouches:
    """The vouched digests of the newest snapshots of its members. `send_event` sends each to the leader."""

    def __init__(self, node: str, incarnation: int, send_event: Callable[[events.Event], None]) -> None:
        self._node, self._incarnation, self._send_event = node, incarnation, send_event
        self._digests: dict[str, tuple[tuple[int, ...], str]] = {}  # member -> slot content, digest
        self._vouched: dict[str, dict[tuple[int, int], events.SnapshotVouched]] = {}

    def digest_of(self, offer: Offer) -> str:
        """The digest of an offered snapshot, taken once while the slot's content stays. Blocks: use a
        thread."""
        held, what = offer.held, offer.content
        known = self._digests.get(held.member)
        if known is not None and known[0] == what:
            return known[1]
        digest = digest_of(held, offer.memory)
        self._digests[held.member] = what, digest
        return digest

    def vouch(self, held: SnapshotInfo) -> None:
        """Vouch for a snapshot to the leader, unless that is done.

        This must come before a copy leaves: if this node dies then, the copy may be all that is left, and
        nobody else can vouch for it."""
        vouched, key = self._vouched.setdefault(held.member, {}), (held.generation, held.step)
        if key in vouched and vouched[key].digest == held.vouched:
            return
        event = events.SnapshotVouched(
            self._node,
            self._incarnation,
            held.member,
            held.job,
            held.generation,
            held.step,
            held.vouched,
        )
        vouched[key] = event
        while len(vouched) > VOUCHED_MAX:
            del vouched[min(vouched)]
        self._send_event(event)

    def all(self, known: Callable[[str], bool]) -> list[events.SnapshotVouched]:
        """What each new leader must learn: the digests for members that are still known here."""
        self._drop([member for member in self._vouched if not known(member)])
        return [event for vouched in self._vouched.values() for event in vouched.values()]

    def forget(self, job: str) -> None:
        """Forget a job that is over."""
        self._drop(
            [name for name, vouched in self._vouched.items() if any(e.job == job for e in vouched.values())]
        )

    def _drop(self, members: list[str]) -> None:
        for member in members:
            del self._vouched[member]
            self._digests.pop(member, None)
