"""Define the orders about replicas of snapshots in other nodes' memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records.model import Partner


@dataclass(frozen=True, slots=True)
class Replicate:
    """Keep copying the released snapshots of these members to their replica holders.

    It replaces earlier orders of the job. `partners` empty: stop copying."""

    node: str
    job: str
    partners: tuple[Partner, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Copy the replica of `source`'s snapshot from the agent at `address` into the arena of `member`.
    Answered by Fetched."""

    node: str
    member: str
    job: str
    source: str  # the member whose snapshot it is
    step: int
    generation: int
    address: str
    digest: str = ""  # what the bytes must hash to; "": nobody has vouched for them


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the replicas of these members' snapshots on this node: their ranks are gone, and newer state
    has all the replicas that it should have."""

    node: str
    job: str
    members: tuple[str, ...]
