"""Frame the messages on both Unix sockets of a node: a 4-byte big-endian length, then one JSON object.

Standard library only: the launcher and the ranks import it."""

from __future__ import annotations

import json
import re
import struct
from typing import Any

FRAME_BYTES_MAX = 1 << 20
"""The largest frame."""
FORM_BYTES_MAX = 16 << 20
"""The largest frame from an agent to its ranks: a generation names all its seats."""

_LENGTH = struct.Struct(">I")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")

Message = dict[str, Any]


class FrameError(ValueError):
    """The peer sent something that is not a frame. The connection cannot be used any more."""


def encode(message: Message, *, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """One message as bytes. Raises FrameError if it is larger than `bytes_max`."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > bytes_max:
        raise FrameError(f"a message of {len(body)} bytes is over the limit of {bytes_max}")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    r"""Turns bytes into messages. Feed it whatever arrives; it keeps an incomplete rest for later.

    `spelled`: lone surrogates (Python uses them in names that are not UTF-8) become six characters, `\ud800`.
    For messages that are passed on, because protobuf cannot hold surrogates."""

    def __init__(self, *, spelled: bool = False, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer, self._spelled, self._bytes_max = bytearray(), spelled, bytes_max

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are complete now. Raises FrameError if one is too large or not a JSON object."""
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
        raise FrameError(f"a frame is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("a frame is not a JSON object")
    return message
