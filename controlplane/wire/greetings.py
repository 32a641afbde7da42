"""Define what begins a stream between an agent and a coordinator: the hello, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records import events


@dataclass(frozen=True, slots=True)
class Welcome:
    """The coordinator accepted the hello."""

    cluster: str
    beat_interval_s: float
    hears: frozenset[str] = frozenset()  # the new message bodies that it understands (versions.NEW_WORDS)
    step_times_every_s: float = 0.0  # how often it wants StepTimes; 0: never
    snapshots_by_beats: bool = False  # beats tell it of offered snapshots; it wants no SnapshotReady of them
    beat_key: bytes = b""  # marks heartbeats of this stream that go through a relay; b"": none may


@dataclass(frozen=True, slots=True)
class Refused:
    """The coordinator refused the hello. `retry`: the agent may try again as it is. `leader` is the leader's
    host:port; "" when unknown. `again_after_s`: it has too many hellos at once, and wants this one after so
    long; 0: that is not why."""

    reason: str
    retry: bool
    leader: str = ""
    again_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Greeting:
    """A hello: the NodeJoined event in it, and what else it says."""

    protocol_version: int
    cluster: str
    term_seen: int  # the highest leader term that the agent has heard
    holdfast_version: str
    joined: events.NodeJoined
    takes: frozenset[str] = frozenset()  # the new orders that it understands (versions.NEW_ORDERS)
    unread: str = ""  # why some members or copies are left out of `joined`; "": none are
