"""What the core asks its shell to do about copies of snapshots at other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records.model import Partner


@dataclass(frozen=True, slots=True)
class Replicate:
    """Keep copying the released snapshots of these members to their partners; replaces earlier orders of
    the job. No partners: stop."""

    node: str
    job: str
    partners: tuple[Partner, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring the copy of `source`'s snapshot that the agent at `address` keeps into the arena of `member`.
    Answered by Fetched."""

    node: str
    member: str
    job: str
    source: str
    step: int
    generation: int
    address: str
    digest: str = ""  # what it must hash to; "": nobody has vouched for it


@dataclass(frozen=True, slots=True)
class Discard:
    """Let go of the copies of these members' snapshots that this node keeps: their ranks are gone, and newer
    state is kept wherever it is to be."""

    node: str
    job: str
    members: tuple[str, ...]
