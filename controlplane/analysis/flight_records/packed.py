"""Read the flight record that a rank has sent: torch's JSON, packed by zlib, in base64. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import TYPE_CHECKING

from controlplane.analysis.flight_records.fields import DumpError, dump_of

if TYPE_CHECKING:
    from controlplane.analysis.flight_records.records import FlightDump

BYTES_MAX = 8 << 20
"""The largest document. 256 operations take about 100 KB; what comes from a rank may say anything."""


def unpack(rank: int, text: str) -> FlightDump:
    """The record of a rank, checked like a dump in a file. Raises DumpError."""
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.b64decode(text, validate=True), BYTES_MAX + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise DumpError(f"it is not packed as a rank packs it: {str(error)[:120]}") from error
    if len(data) > BYTES_MAX:
        raise DumpError(f"it has more than {BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DumpError(f"it is no JSON, it may be cut off: {str(error)[:120]}") from error
    return dump_of(rank, f"the record of rank {rank}", document)
