"""What a certificate says of itself beyond its names: its serial number, and when it ends.

The standard library reads that of a connection's own certificate only, and grpc tells neither: so the few
fields are found in its bytes (RFC 5280, DER)."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_INTEGER, _UTC_TIME, _TIME, _SEQUENCE, _VERSION = 0x02, 0x17, 0x18, 0x30, 0xA0
_TIMES = {
    _UTC_TIME: re.compile(rb"(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z"),
    _TIME: re.compile(rb"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z"),
}
_FIRST_OF_LAST = 50
"""Years of two digits from here on are of the last century (RFC 5280)."""
_LENGTH_BYTES_MAX = 4


class Unreadable(ValueError):
    """Bytes that are no certificate."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`serial` as a number, `ends_s` as Unix time."""

    serial: int
    ends_s: float


def facts(pem: bytes) -> Facts:
    """Of the first certificate in these bytes. Raises Unreadable."""
    found = _PEM.search(pem)
    try:
        data = base64.b64decode(found[1] if found else b"", validate=False)
    except binascii.Error as error:
        raise Unreadable("no certificate in PEM") from error
    _, whole, _ = _item(data, 0, _SEQUENCE)
    _, body, _ = _item(whole, 0, _SEQUENCE)
    tag, _, after = _item(body, 0)
    _, serial, at = _item(body, after if tag == _VERSION else 0, _INTEGER)
    for _ in range(2):  # the algorithm, the issuer
        _, _, at = _item(body, at, _SEQUENCE)
    _, validity, _ = _item(body, at, _SEQUENCE)
    _, _, at = _item(validity, 0)
    tag, ends, _ = _item(validity, at)
    return Facts(int.from_bytes(serial, "big"), _moment(tag, ends))


def _item(data: bytes, at: int, wanted: int | None = None) -> tuple[int, bytes, int]:
    """Tag, content and end of the item at this place. Raises Unreadable."""
    if at + 2 > len(data):
        raise Unreadable("it ends too soon")
    tag, size, begin = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        if not 0 < count <= _LENGTH_BYTES_MAX:
            raise Unreadable("a length that is none")
        size, begin = int.from_bytes(data[begin : begin + count], "big"), begin + count
    if begin + size > len(data) or wanted not in (None, tag):
        raise Unreadable("it ends too soon" if begin + size > len(data) else f"tag {tag}, not {wanted}")
    return tag, data[begin : begin + size], begin + size


def _moment(tag: int, text: bytes) -> float:
    found = _TIMES[tag].fullmatch(text) if tag in _TIMES else None
    try:
        year, month, day, hour, minute, second = map(int, found.groups() if found else ())
        century = (1900 if year >= _FIRST_OF_LAST else 2000) if tag == _UTC_TIME else 0
        return datetime(century + year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError as error:
        raise Unreadable(f"its end is no moment: {text!r:.40}") from error
