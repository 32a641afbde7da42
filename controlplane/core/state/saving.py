"""Define a checkpoint in flight, and the stages that it goes through."""

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
    SEAL = "seal"  # one agent reads all parts back and makes the manifest's content durable
    MIRROR = "mirror"  # the second storage is made to hold it too, before the commit
    STORE = "store"  # its record is on its way into etcd: the commit
    PUBLISH = "publish"  # an agent makes the manifest visible
    CONFIRM = "confirm"  # `published` is on its way into etcd
    COPY = "copy"  # committed; the second storage is made to hold it too


@dataclass(frozen=True, slots=True)
class Writer:
    """Who makes one share of a shard durable."""

    shard: str
    share: int
    shares: int
    rank: int
    member: str
    node: str
    tried: tuple[str, ...] = ()  # members that were asked for this share before and are gone


@dataclass(frozen=True, slots=True)
class Holder:
    """A rank that held the state when its checkpoint began."""

    shard: str
    rank: int
    member: str
    node: str


@dataclass(frozen=True, slots=True)
class Saving:
    """A checkpoint of a job that is in flight. `node` seals, mirrors and publishes; times in s."""

    id: str
    step: int
    generation: int
    node: str
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    writers: tuple[Writer, ...] = ()
    holders: tuple[Holder, ...] = ()
    parts: tuple[CheckpointPart, ...] = ()
    stage: Stage = Stage.PERSIST
    record: CheckpointRecord | None = None
    nodes_before: tuple[str, ...] = ()  # that were to do so: their answers may still come
    provisional: bool = False  # sealed, and etcd has not answered in time
    begun_at: float = 0.0
    sealed_at: float = 0.0  # its parts were all there, then: its record is on its way into etcd


@dataclass(slots=True)
class Ask:
    """One member's asking. `outcome` "" until it is known."""

    node: str
    member: str
    request: str
    step: int
    generation: int
    at: float  # s
    outcome: str = ""
    reason: str = ""

    @property
    def checkpoint(self) -> str:
        """The id of the checkpoint that it asks for."""
        return f"{self.step}-{self.generation}"

    @property
    def key(self) -> tuple[str, ...]:
        """Of the order that tells the answer."""
        return ("told", self.node, self.member, self.request)


@dataclass(frozen=True, slots=True)
class Collecting:
    """A collection under way. `node` "" while etcd is told which ones go."""

    remove: tuple[str, ...]
    node: str = ""
