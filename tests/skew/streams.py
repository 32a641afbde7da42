"""Keep the messages that agents and coordinators of the version before exchanged, for clones where git cannot
give that version."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

from tests.skew.between import DOWN, UP

RECORDED = Path(__file__).with_name("streams.json.gz")
Said = list[tuple[str, bytes]]
"""(UP or DOWN, the message)"""


def write(commit: str, streams: dict[str, Said]) -> None:
    """Keep the streams of these nodes, as those of this commit."""
    told = {
        node: [[way, base64.b64encode(data).decode()] for way, data in said] for node, said in streams.items()
    }
    text = json.dumps({"commit": commit, "streams": told}, separators=(",", ":"))
    RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))


def commit() -> str:
    """The commit of the version that was recorded."""
    return str(_document()["commit"])


def read() -> dict[str, Said]:
    """Each node's stream."""
    streams = _document()["streams"]
    assert isinstance(streams, dict)
    return {node: [(way, base64.b64decode(data)) for way, data in said] for node, said in streams.items()}


def _document() -> dict[str, object]:
    document = json.loads(gzip.decompress(RECORDED.read_bytes()))
    assert isinstance(document, dict)
    return document


def of(said: Said, way: str) -> list[bytes]:
    """One side of a stream."""
    assert way in (UP, DOWN)
    return [data for direction, data in said if direction == way]
