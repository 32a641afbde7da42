"""Read what other nodes measured: files that `holdfast check node --json` wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import UsageError
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_BYTES_MAX = 1 << 20
"""One node with 16 devices writes about 20 KiB."""
READINGS_MAX = 1000


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """The readings of one node. `file`: where they were read."""

    node: str
    file: Path
    readings: tuple[NodeReading, ...]


def read(paths: Sequence[Path], own: str) -> list[MeasuredNode]:
    """The peers, one for each node. `own`: the node that is checked; it is no peer of itself.

    Raises UsageError that names the file, and the entry where one is wrong."""
    nodes: dict[str, MeasuredNode] = {}
    for path in paths:
        found = _file(path)
        if found.node == own:
            continue
        if found.node in nodes:
            both = f"{nodes[found.node].file} and {path}"
            raise UsageError(f"{both} are both of node {found.node}: give one file of each node")
        nodes[found.node] = found
    return list(nodes.values())


def _file(path: Path) -> MeasuredNode:
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise UsageError(
                f"{path} has {size} bytes, {FILE_BYTES_MAX} at most: it is no answer of check node"
            )
        document = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}; make it by check node --json") from error
    rows = document.get("readings") if isinstance(document, dict) else None
    node = document.get("node") if isinstance(document, dict) else None
    if not isinstance(rows, list) or len(rows) > READINGS_MAX or not isinstance(node, str) or not node:
        raise UsageError(f"{path} has no node and readings: make it by `holdfast check node --json`")
    return MeasuredNode(
        node, path, tuple(_reading(row, f"{path}: reading {at}") for at, row in enumerate(rows))
    )


def _reading(row: Any, where: str) -> NodeReading:
    if not isinstance(row, dict):
        raise UsageError(f"{where} is {row!r:.80}: an object is needed")
    name, value, unit = row.get("name"), row.get("value"), row.get("unit")
    if not isinstance(name, str) or not isinstance(unit, str):
        raise UsageError(f"{where} needs a name and a unit, both text")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise UsageError(f"{where} ({name}): value is {value!r:.80}: a number or null is needed")
    crowded = row.get("crowded", 0.0)
    if isinstance(crowded, bool) or not isinstance(crowded, int | float):
        raise UsageError(f"{where} ({name}): crowded is {crowded!r:.80}: a number is needed")
    return NodeReading(name, value, unit, broken=str(row.get("broken") or ""), crowded=crowded)
