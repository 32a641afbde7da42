"""Define a checkpoint in flight, the stages it goes through, and the requests of scripts for one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from controlplane.core.records.model import CheckpointRecord

if TYPE_CHECKING:
    from controlplane.core.records.model import CheckpointPart, CheckpointRecord


class Stage(StrEnum):
    """Where a checkpoint in flight stands."""

    PERSIST = "persist"  # the writers make their shares of the chunks durable
    FINALIZE = "seal"  # one agent reads all parts back and makes the manifest's content durable: finalizing
    MIRROR = "mirror"  # it is copied to the second storage, before the commit
    STORE = "store"  # its record is being written to etcd: the commit
    PUBLISH = "publish"  # an agent makes the manifest visible under its name
    CONFIRM = "confirm"  # `published` is being written to etcd
    COPY = "copy"  # committed; it is copied to the second storage


@dataclass(frozen=True, slots=True)
class Writer:
    """The member that makes one share of a shard durable."""

    shard: str
    share: int
    shares: int
    rank: int
    member: str
    node: str
    tried: tuple[str, ...] = ()  # members that had this share before and are gone


@dataclass(frozen=True, slots=True)
class Holder:
    """A rank that held the state when its checkpoint began: another writer for its shard, when one is
    lost."""

    shard: str
    rank: int
    member: str
    node: str


@dataclass(frozen=True, slots=True)
class Saving:
    """A checkpoint in flight. `node` finalizes, mirrors and publishes it; times in s."""

    id: str
    step: int
    generation: int
    node: str
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]  # version vector: (rank, step)
    writers: tuple[Writer, ...] = ()
    holders: tuple[Holder, ...] = ()
    parts: tuple[CheckpointPart, ...] = ()  # reported durable so far
    stage: Stage = Stage.PERSIST
    record: CheckpointRecord | None = None  # None until it is finalized
    nodes_before: tuple[str, ...] = ()  # nodes that were `node` before: their answers may still come
    provisional: bool = False  # finalized, and etcd has not confirmed its record in time
    begun_at: float = 0.0
    # When its parts were durable, then when it was finalized, then when it was mirrored.
    stage_began_at: float = 0.0


@dataclass(slots=True)
class CheckpointRequest:
    """One member's request for a checkpoint of `step`. `outcome` is "" until it is known."""

    node: str
    member: str
    request: str
    step: int
    generation: int
    at: float  # when (s) it came
    outcome: str = ""
    reason: str = ""

    @property
    def checkpoint(self) -> str:
        """The id of the checkpoint that it asks for."""
        return f"{self.step}-{self.generation}"

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the answer in the delivery log."""
        return ("answer", self.node, self.member, self.request)


@dataclass(frozen=True, slots=True)
class Collecting:
    """A deletion of old checkpoints under way. `node` is "" until etcd holds the mark on each of them."""

    remove: tuple[str, ...]
    node: str = ""
