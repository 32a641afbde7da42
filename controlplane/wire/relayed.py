"""Define heartbeats that reach the leader through another agent, a relay, which cannot make one itself.

In a large cluster most of what a leader spends is reading one small message from each node. So a short
heartbeat (`StepBeat`) may go to another agent, which passes on those of many nodes in one message. A relay is
trusted with nothing: each heartbeat carries a mark, keyed with a secret of the sender's own stream to the
leader, and each number counts once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from controlplane.core.records.events import StepBeat
from controlplane.wire import bounds
from controlplane.wire import control_pb2 as pb
from controlplane.wire.mapping import Mapping
from controlplane.wire.shape import WireError

KEY_BYTES = 32
MARK_BYTES = 16
BEATS_MAX = 1024
"""Heartbeats in one batch."""
BEAT_BYTES_MAX = 64 << 10
"""One heartbeat, with its mark: a node of 2,000 ranks has room."""
BATCH_BYTES_MAX = 2 << 20
"""All heartbeats of one batch: half of what a message may hold."""

SHORT_BEAT = Mapping(StepBeat, pb.StepBeat, 2)
"""How a short heartbeat is read and written, whichever way it takes."""


@dataclass(frozen=True, slots=True)
class RelayBeats:
    """Order: send short heartbeats through the agent `relay`, at this address; "": directly."""

    node: str
    relay: str
    address: str


@dataclass(frozen=True, slots=True)
class BeatsTaken:
    """Order: the relay may tell the senders of this batch that the leader has it."""

    node: str
    number: int


def new_key() -> bytes:
    """Return a secret for one stream."""
    return secrets.token_bytes(KEY_BYTES)


def seal(node: str, incarnation: int, beat: pb.StepBeat, key: bytes) -> bytes:
    """Return a heartbeat as its sender gives it to a relay."""
    data = beat.SerializeToString()
    sealed = pb.RelayedBeat(node=node, incarnation=incarnation, beat=data, mark=_mark(data, key))
    return sealed.SerializeToString()


def opened(data: bytes) -> pb.RelayedBeat:
    """Return a sealed heartbeat, whose mark is still to be looked at. Raises WireError."""
    try:
        return pb.RelayedBeat.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes that are not a RelayedBeat") from error


def is_genuine(sealed: pb.RelayedBeat, key: bytes) -> bool:
    """Return whether the holder of this key has sent this heartbeat."""
    return bool(key) and hmac.compare_digest(sealed.mark, _mark(sealed.beat, key))


def step_beat(sealed: pb.RelayedBeat) -> StepBeat:
    """Return the heartbeat in a sealed one. Raises WireError."""
    try:
        message = pb.StepBeat.FromString(sealed.beat)
    except DecodeError as error:
        raise WireError(f"{len(sealed.beat)} bytes that are not a StepBeat") from error
    beat: StepBeat = SHORT_BEAT.read(message, sealed.node, sealed.incarnation)
    bounds.check(beat)
    return beat


def batch(number: int, beats: list[bytes]) -> pb.AgentMessage:
    """Return the message by which a relay passes on these sealed heartbeats."""
    return pb.AgentMessage(beats_relayed=pb.BeatsRelayed(number=number, beats=beats))


def check(message: pb.BeatsRelayed) -> None:
    """Raise WireError for a batch that no relay of this version sends."""
    if message.number < 0:
        raise WireError(f"BeatsRelayed.number: {message.number} is below 0")
    if len(message.beats) > BEATS_MAX or max(map(len, message.beats), default=0) > BEAT_BYTES_MAX:
        raise WireError(f"BeatsRelayed: over {BEATS_MAX} heartbeats, or one over {BEAT_BYTES_MAX} bytes")


def _mark(data: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=MARK_BYTES).digest()
