"""Frame the messages of both Unix sockets of a node: a 4-byte big-endian length, then one JSON object.

Standard library only: the launcher and the ranks import it."""

from __future__ import annotations

import json
import re
import struct
from typing import Any

FRAME_BYTES_MAX = 1 << 20
FORM_BYTES_MAX = 16 << 20
"""What an agent tells its ranks may be larger: a generation names all its seats."""

_LENGTH = struct.Struct(">I")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")

Message = dict[str, Any]


class FrameError(ValueError):
    """The peer sent something that is no frame. The connection is of no further use."""


def encode(message: Message, *, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """One message as bytes. Raises FrameError when it is larger than `bytes_max`."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > bytes_max:
        raise FrameError(f"a message of {len(body)} bytes is over the limit of {bytes_max}")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Bytes in, messages out. Feed it whatever arrived; it keeps the rest for later.

    `spelled`: halves of surrogate pairs (Python has such for names that are no UTF-8) come as six characters:
    for messages that travel on, for no protobuf holds them."""

    def __init__(self, *, spelled: bool = False, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer, self._spelled, self._bytes_max = bytearray(), spelled, bytes_max

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are complete now. Raises FrameError on an oversized frame or when it is no JSON
        object."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self._bytes_max:
                raise FrameError(f"a frame of {length} bytes is over the limit of {self._bytes_max}")
            if len(self._buffer) < _LENGTH.size + length:
                break
            body = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
            messages.append(_parse(body, self._spelled))
            del self._buffer[: _LENGTH.size + length]
        return messages


def _parse(body: bytes, spelled: bool) -> Message:
    try:
        message = json.loads(body.decode())
        if spelled and _SURROGATE.search(body):
            text = json.dumps(message, ensure_ascii=False)
            message = json.loads(_HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("a frame is no JSON object")
    return message
