"""Fuzz without a network: each function makes bytes from a seed and passes them to the code that reads them.
A target returns whether its input was accepted; any exception that it raises is a bug of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from agent.peers import wire
from agent.peers.blocks import PeerError, check
from controlplane.access.callers import Unauthenticated, from_certificate
from controlplane.cli.errors import UsageError
from controlplane.cli.flags.parser import Parser
from controlplane.cli.flags.settings import add_settings, read_settings
from controlplane.core.cluster import Cluster
from controlplane.core.records.effects import STORES
from controlplane.core.records.events import JobSubmitted, NodeJoined, Stored
from controlplane.core.records.model import CheckpointRecord, JobSpec
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.server.admin import check_spec
from controlplane.settings import (
    AgentSettings,
    CoordinatorSettings,
    SettingsError,
    check_agent,
    check_coordinator,
    check_name,
)
from controlplane.wire import codec, health_pb2, peer_pb2, relayed
from controlplane.wire import control_pb2 as pb
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.format import envelope, manifest, manifest_records
from holdfast.ipc.frames import Decoder, FrameError, encode
from tests.security.fuzz import inputs
from tests.security.fuzz.messages import WORDS, damage, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

REFUSED = (codec.WireError, SettingsError)


def link(rng: Random) -> bool:
    """An agent's message, decoded to the event that the core would get."""
    data = damage(fill(pb.AgentMessage(), rng).SerializeToString(), rng)
    try:
        message = codec.parse_agent(data)
        if message.WhichOneof("body") == "hello":
            check_name("node", codec.greeting_from(message).joined.node)
        else:
            codec.event_from("n1", 1, message)
    except REFUSED:
        return False
    return True


def orders(rng: Random) -> bool:
    """A coordinator's message, decoded to the order that an agent would carry out."""
    data = damage(fill(pb.CoordinatorMessage(), rng).SerializeToString(), rng)
    try:
        codec.order_from(pb.CoordinatorMessage.FromString(data), "n1")
    except (DecodeError, *REFUSED):
        return False
    return True


def relayed_beats(rng: Random) -> bool:
    """A batch of heartbeats that an agent passes on, with right and wrong marks, up to the core's events."""
    key = rng.choice((b"k", b"x")) * relayed.KEY_BYTES
    beats = [relayed.seal("n1", 1, fill(pb.StepBeat(), rng), key) for _ in range(rng.randrange(4))]
    beats = [damage(each, rng) if rng.random() < 0.5 else each for each in beats]
    data = damage(relayed.batch(rng.randrange(-2, 9), beats).SerializeToString(), rng)
    try:
        message = codec.parse_agent(data).beats_relayed
        relayed.check(message)
        opened = [relayed.opened(each) for each in message.beats]
        return bool([relayed.step_beat(each) for each in opened if relayed.is_genuine(each, b"k" * 32)])
    except REFUSED:
        return False


def admin(rng: Random) -> bool:
    """Every request of Admin, with all checks that come before the core."""
    kind = rng.choice(_REQUESTS)
    try:
        message = kind.FromString(damage(fill(kind(), rng).SerializeToString(), rng))
        _JUDGED.get(kind, lambda _message: None)(message)
    except (DecodeError, *REFUSED):
        return False
    return True


def _adopted(message: Any) -> None:
    check_name("job", message.job)
    for record in message.records:
        codec.row_from(CheckpointRecord, record)


_METHODS = pb.DESCRIPTOR.services_by_name["Admin"].methods
_REQUESTS = [getattr(pb, method.input_type.name) for method in _METHODS]
_JUDGED: dict[Any, Callable[[Any], None]] = {
    pb.SubmitRequest: lambda message: check_spec(codec.spec_from(message.spec)),
    pb.AdoptRequest: _adopted,
}


def peer(rng: Random) -> bool:
    """The messages PutMessage and GetMessage of another agent, as this agent reads them."""
    kind = rng.choice((peer_pb2.PutMessage, peer_pb2.GetMessage))
    data = damage(fill(kind(), rng).SerializeToString(), rng)
    message: Any
    try:
        message = wire.parser(kind)(data)
        if isinstance(message, memoryview) or message.WhichOneof("body") != "snapshot":
            return True
        check(wire.held_from(message.snapshot))
    except (DecodeError, PeerError):
        return False
    return True


def health(rng: Random) -> bool:
    """A probe's request to the health service."""
    try:
        health_pb2.HealthRequest.FromString(
            damage(fill(health_pb2.HealthRequest(), rng).SerializeToString(), rng)
        )
    except DecodeError:
        return False
    return True


def frames(rng: Random) -> bool:
    """The framing of both Unix sockets, in pieces of any size."""
    message: dict[str, Any] = {
        rng.choice(WORDS): rng.choice((*WORDS, 1, None, True, [1], {"a": {}})) for _ in range(3)
    }
    data = damage(encode({"op": "hello"}) + encode(message), rng)
    decoder, found = Decoder(), 0
    try:
        while data:
            size = rng.choice((1, 3, 7, 1 << 16))
            found += len(decoder.feed(data[:size]))
            data = data[size:]
    except FrameError:
        return False
    return found > 0


def manifests(rng: Random) -> bool:
    """A checkpoint's manifest: one that was changed must not be accepted."""
    whole, _ = _MANIFEST
    data = damage(whole, rng)
    sealed = rng.random() < 0.3
    if sealed:  # the digest is right, the content is not
        document = json.loads(whole)[manifest.KIND]
        document[rng.choice(sorted(document))] = rng.choice((*WORDS, None, -1, [], {}, [[1]]))
        data, _ = envelope.encode(manifest.KIND, document)
    try:
        manifest.decode_manifest(data, "j", "10-1")
    except CheckpointError:
        return False
    assert sealed or data == whole
    return True


_SHARD = manifest_records.ManifestShard("all", (0,), 0, (), (), {})
_MANIFEST = manifest.encode_manifest(
    manifest_records.Manifest("j", "10-1", 10, 1, "full", "10-1", ((0, 10),), "0.1.0", (), (_SHARD,))
)


def settings(rng: Random) -> bool:
    """Flags of a daemon."""
    kind, judge = rng.choice(((AgentSettings, check_agent), (CoordinatorSettings, check_coordinator)))
    words = []
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(sorted(kind.__dataclass_fields__))
        value = rng.choice((*WORDS, "0", "-1", "1e999", "nan", "5", "0.0.0.0:1", "127.0.0.1:99999"))
        words.append(f"--{name.replace('_', '-')}={value}")
    try:
        read_settings(kind, _PARSERS[kind].parse_args(words), judge)  # type: ignore[arg-type]
    except UsageError:
        return False
    return True


def _parser(kind: type) -> Parser:
    parser = Parser(prog="fuzz")
    add_settings(parser, kind)
    return parser


_PARSERS: dict[type, Parser] = {kind: _parser(kind) for kind in (AgentSettings, CoordinatorSettings)}


def certificates(rng: Random) -> bool:
    """Names in a certificate: a caller that is admitted has exactly one role, and a valid name."""
    uri = "holdfast://" + "/".join(
        rng.choice(("c1", "operator", "agent", "n1", "?job=a", "#", *WORDS)) for _ in range(3)
    )
    names = [damage(uri.encode("utf-8", "replace"), rng)] if rng.random() < 0.7 else []
    subject = damage(rng.choice((b"OU=operator,CN=o", b"CN=o,OU=agent+OU=viewer")), rng)
    try:
        caller = from_certificate(
            "c1", {"peer_uri": names, "x509_subject": [subject], "x509_common_name": [b"o"]}, subjects=True
        )
    except Unauthenticated:
        return False
    check_name("caller", caller.name)
    assert caller.role is not None
    return True


class Core:
    """Agents' messages, up to the core itself: it must take or drop each one, and its invariants must
    hold."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._cluster, self._now, self._steps = Cluster(CoreSettings()), 1.0, 0
        spec = JobSpec(
            "j", ("train.py",), "/", nnodes_min=1, nnodes_max=2, nproc_per_node=1, storage="file:///s"
        )
        for event in (
            *(NodeJoined(name, 1, "l", "127.0.0.1", 2, 29500, ()) for name in ("n1", "n2")),
            JobSubmitted(spec),
        ):
            self._step(event)

    def __call__(self, rng: Random) -> bool:
        """One message of n1 or n2."""
        if self._steps > 500:
            self._begin()
        data = damage(fill(pb.AgentMessage(), rng).SerializeToString(), rng)
        try:
            message = codec.parse_agent(data)
            if message.WhichOneof("body") == "hello":
                return False
            event = codec.event_from(rng.choice(("n1", "n2")), 1, message)
        except REFUSED:
            return False
        try:
            self._step(event)
            self._cluster.check()
        except Exception:
            self._begin()
            raise
        return True

    def _step(self, event: Any) -> None:
        self._steps += 1
        self._now += 0.05
        effects = self._cluster.step(self._now, event)
        for effect in effects:
            if isinstance(effect, STORES):
                self._step(Stored(effect.ticket))


TARGETS: dict[str, Callable[[Random], bool]] = {
    "link": link,
    "orders": orders,
    "relayed": relayed_beats,
    "admin": admin,
    "peer": peer,
    "health": health,
    "frames": frames,
    "manifests": manifests,
    "settings": settings,
    "certificates": certificates,
    "core": Core(),
    "launcher": inputs.launcher,
    "environment": inputs.environment,
    "plans": inputs.plans,
    "traces": inputs.traces,
    "http": inputs.Http(),
}
