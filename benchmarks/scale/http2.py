"""Speak the client's side of one gRPC stream on one HTTP/2 connection. Bytes in, bytes out: no I/O.

Only what ten thousand agents of a benchmark need, because they must cost much less than the server that they
measure: a grpc.aio channel takes more CPU per beat than the coordinator does. Frames: RFC 9113, section 6.
Headers: RFC 7541, without Huffman coding and without a dynamic table. gRPC's framing of messages:
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. Headers of answers are not decoded: a stream
that ends is opened again, whatever its status says."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
INITIAL_WINDOW_SIZE = 0x4
STREAM = 1
WINDOW_BYTES = 65_535
"""What a side may send before the other one has granted more: HTTP/2's first value, for stream and
connection."""
FRAME_BYTES_MAX = 16_384
"""The payload of one frame, as every server takes it."""
GRANT_BYTES = 16_384
"""After so many bytes the server is granted more."""
_GRPC = struct.Struct(">BI")


class NoRoom(ConnectionError):
    """The server has granted no room for a message."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame (RFC 9113, 4.1)."""
    return struct.pack(">I", len(payload) << 8 | kind) + struct.pack(">BI", flags, stream) + payload


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > 126:
        raise ValueError(f"a header of {len(data)} bytes needs a longer length than this client writes")
    return bytes([len(data)]) + data


def headers(path: str, authority: str) -> bytes:
    """The header block of a gRPC call (RFC 7541, 6.1 and 6.2.2: static indexes, and literals)."""
    return b"".join(
        (
            b"\x83",  # :method POST
            b"\x86",  # :scheme http
            *(b"\x04", _text(path)),
            *(b"\x01", _text(authority)),
            *(b"\x00", _text("te"), _text("trailers")),
            *(b"\x0f\x10", _text("application/grpc")),  # content-type
        )
    )


@dataclass(slots=True)
class Stream:
    """One call on a connection of its own. `over`: how it has ended; "": it has not."""

    path: str
    authority: str
    over: str = ""
    _room: int = WINDOW_BYTES
    _room_of_all: int = WINDOW_BYTES
    _first_room: int = WINDOW_BYTES
    _owed: int = 0
    _unread: bytearray = field(default_factory=bytearray)
    _message: bytearray = field(default_factory=bytearray)

    def opening(self) -> bytes:
        """The first bytes of the connection."""
        block = headers(self.path, self.authority)
        return PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, STREAM, block)

    def message(self, data: bytes) -> bytes:
        """The bytes that send a message. Raises NoRoom."""
        size = len(data) + _GRPC.size
        if min(self._room, self._room_of_all) < size:
            raise NoRoom(f"no room for {size} bytes: the server does not read")
        self._room -= size
        self._room_of_all -= size
        framed = _GRPC.pack(0, len(data)) + data
        parts = (framed[at : at + FRAME_BYTES_MAX] for at in range(0, size, FRAME_BYTES_MAX))
        return b"".join(frame(DATA, 0, STREAM, part) for part in parts)

    def receive(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The messages that have arrived whole, and what must be sent in reply."""
        self._unread += data
        replies, at = bytearray(), 0
        while len(self._unread) - at >= 9:
            head, flags, stream = struct.unpack_from(">IBI", self._unread, at)
            size = head >> 8
            if len(self._unread) - at - 9 < size:
                break
            payload = bytes(self._unread[at + 9 : at + 9 + size])
            replies += self._take(head & 0xFF, flags, stream, payload)
            at += 9 + size
        del self._unread[:at]
        return self._whole(), bytes(replies)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind == DATA:
            self._message += payload
            return self._grant(len(payload))
        if kind == SETTINGS and not flags & ACK:
            self._settings(payload)
            return frame(SETTINGS, ACK, 0)
        if kind == PING and not flags & ACK:
            return frame(PING, ACK, 0, payload)
        if kind == WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream:
                self._room += more
            else:
                self._room_of_all += more
        elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
            # Behind the headers that end a call comes a reset, because this side has not ended it.
            self.over = self.over or {RST_STREAM: "reset", GOAWAY: "go away"}.get(kind, "ended")
        return b""

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == INITIAL_WINDOW_SIZE:
                self._room += value - self._first_room
                self._first_room = value

    def _grant(self, size: int) -> bytes:
        """Grant the server as many bytes as it has used, in few frames."""
        self._owed += size
        if self._owed < GRANT_BYTES:
            return b""
        more, self._owed = struct.pack(">I", self._owed), 0
        return frame(WINDOW_UPDATE, 0, 0, more) + frame(WINDOW_UPDATE, 0, STREAM, more)

    def _whole(self) -> list[bytes]:
        found, at = [], 0
        while len(self._message) - at >= _GRPC.size:
            compressed, size = _GRPC.unpack_from(self._message, at)
            if compressed:
                raise ValueError("a compressed message has come, which was not asked for")
            if len(self._message) - at - _GRPC.size < size:
                break
            found.append(bytes(self._message[at + _GRPC.size : at + _GRPC.size + size]))
            at += _GRPC.size + size
        del self._message[:at]
        return found
