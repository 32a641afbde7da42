"""Rows as JSON and YAML, and wide tables: what `get -o` prints. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from controlplane.cli.tables import NOTHING, Table, as_json, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.wire import control_pb2 as pb

_SHOWN = {
    "jobs": {"job", "phase", "step", "world_size", "generation", "incidents", "last_checkpoint", "reason"},
    "nodes": {"node", "state", "standing", "score", "address", "slots", "members", "last_heard_s", "reason"},
    "ranks": {"job", "rank", "role", "phase", "step", "node", "pid", "member", "generation"},
    "checkpoints": {"job", "id", "step", "kind", "bytes_total", "bytes_written", "bad", "published"},
}
"""Fields that the narrow table shows already."""


def wide(table: Table, status: pb.StatusReply) -> str:
    """The table with a column for every further field."""
    narrow, rows = table.rows(status), as_json(table, status)
    more = [name for name in (rows[0] if rows else {}) if name not in _SHOWN[table.field]]
    extra = [[_cell(row[name]) for name in more] for row in rows]
    headings = [*table.headings(), *(name.upper().replace("_", " ") for name in more)]
    return plain(headings, [[*left, *right] for left, right in zip(narrow, extra, strict=True)])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return (
            f"{len(value)}" if value and isinstance(value[0], dict) else ",".join(map(str, value)) or NOTHING
        )
    return str(value) if value != "" else NOTHING


def as_yaml(value: Any) -> str:
    """Plain data as YAML: strings in JSON's quotes where they are not plain words."""
    return "\n".join(_yaml(value, "")) + "\n"


def _yaml(value: Any, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, inner in value.items() for line in _entry(f"{_scalar(key)}:", inner, indent)]
    if isinstance(value, list) and value:
        return [line for inner in value for line in _item(inner, indent)]
    return [indent + _scalar(value)]


def _entry(key: str, inner: Any, indent: str) -> list[str]:
    if isinstance(inner, dict | list) and inner:
        return [indent + key, *_yaml(inner, indent + "  ")]
    return [f"{indent}{key} {_scalar(inner)}"]


def _item(inner: Any, indent: str) -> list[str]:
    lines = _yaml(inner, indent + "  ")
    return [f"{indent}- {lines[0].lstrip()}", *lines[1:]]


def _scalar(value: Any) -> str:
    words = isinstance(value, str) and value.replace("-", "").replace("_", "").isalpha()
    reserved = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
    if words and value[0].isalpha() and value.lower() not in reserved:
        return str(value)
    return json.dumps(value)


def _json_text(table: Table, status: pb.StatusReply) -> str:
    return json.dumps(as_json(table, status), indent=2)


def _yaml_text(table: Table, status: pb.StatusReply) -> str:
    return as_yaml(as_json(table, status)).rstrip("\n")


def _narrow(table: Table, status: pb.StatusReply) -> str:
    return plain(table.headings(), table.rows(status))


OUTPUTS: dict[str, Callable[[Table, pb.StatusReply], str]] = {
    "table": _narrow,
    "wide": wide,
    "json": _json_text,
    "yaml": _yaml_text,
}
