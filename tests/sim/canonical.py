"""Reduce effects to what leaves the coordinator, as the bytes that a schedule's digest is made of.

Orders count as their messages on the wire, stores as their rows in etcd. Names of classes and fields do not
count, nor does prose (any string with a space in it): renaming and rewording leave a digest as it is, another
decision does not."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Any

from controlplane.core.records.effects import STORES
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.journal.older import without_later
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.loop.dispatch import ORDERS
from controlplane.wire import codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

PROSE = "some words"


class Digest:
    """A digest over the effects of one schedule: their order and times count."""

    def __init__(self) -> None:
        self._records = RecordMapping(Keyspace("sim"))
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, now: float, effects: Iterable[Any]) -> None:
        """Add the effects that the core had at `now` (s)."""
        self._hash.update(f"{now:.6f} ".encode() + self.canonical(effects))

    def hex(self) -> str:
        """The digest of all that was added so far."""
        return self._hash.hexdigest()

    def canonical(self, effects: Iterable[Any]) -> bytes:
        """What these effects send and store; empty for those that only inform people."""
        return b"".join(self._one(effect) for effect in effects)

    def _one(self, effect: Any) -> bytes:
        if isinstance(effect, ORDERS):
            message = codec.to_agent(effect, 0)
            _reworded(message)
            return effect.node.encode() + message.SerializeToString(deterministic=True)
        if isinstance(effect, STORES):
            rows = self._records.puts(effect)
            return b"".join(key.encode() + _row(rows[key]) for key in sorted(rows))
        return b""


def _reworded(message: Message) -> None:
    """Replace all prose in a message, at any depth."""
    for field, value in message.ListFields():
        repeated = isinstance(value, str | bytes) is False and hasattr(value, "append")
        if field.message_type is not None:
            for inner in value if repeated else (value,):
                _reworded(inner)
        elif field.cpp_type == field.CPPTYPE_STRING and repeated:
            value[:] = [_plain(item) for item in value]
        elif isinstance(value, str) and " " in value:
            setattr(message, field.name, PROSE)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return PROSE if isinstance(value, str) and " " in value else value


def _row(value: bytes | None) -> bytes:
    if value is None:
        return b" deleted"
    text = zlib.decompress(value) if value.startswith(b"x") else value
    if not text.startswith(b"{"):
        return text  # a checkpoint's id
    return json.dumps(_plain(without_later(json.loads(text))), sort_keys=True).encode()
