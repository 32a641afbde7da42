"""Format rows as a table, narrow or wide, or as JSON or YAML: what `get -o` prints. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.cli.questions.outputs import NAME, TABLE, WIDE, data
from controlplane.cli.questions.tables import NOTHING, Table, as_json, plain
from controlplane.reporting.lines import brief

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.wire import control_pb2 as pb

_SHOWN = {
    "jobs": {
        "job",
        "phase",
        "health",
        "step",
        "world_size",
        "generation",
        "incidents",
        "last_checkpoint",
        "age_s",
        "reason",
    },
    "nodes": {
        "node",
        "state",
        "standing",
        "score",
        "address",
        "slots",
        "members",
        "last_heard_s",
        "connected_s",
        "reason",
    },
    "ranks": {"job", "rank", "role", "phase", "step", "node", "pid", "member", "generation"},
    "checkpoints": {
        "job",
        "id",
        "step",
        "kind",
        "bytes_total",
        "bytes_written",
        "bad",
        "published",
        "suspect",
    },
}
"""Fields that the narrow table shows already, by table."""


def shown(form: str, table: Table, status: pb.StatusReply) -> str:
    """The table in this format of `-o`."""
    show = _PEOPLES.get(form)
    return show(table, status) if show is not None else data(form, as_json(table, status))


def _wide(table: Table, status: pb.StatusReply) -> str:
    """The table with a column for every further field."""
    narrow, rows = table.rows(status), as_json(table, status)
    more = [name for name in (rows[0] if rows else {}) if name not in _SHOWN[table.field]]
    extra = [[_cell(row[name]) for name in more] for row in rows]
    headings = [*table.headings(), *(name.upper().replace("_", " ") for name in more)]
    return plain(headings, [[*left, *right] for left, right in zip(narrow, extra, strict=True)])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return (
            f"{len(value)}"
            if value and isinstance(value[0], dict)
            else brief(",".join(map(str, value))) or NOTHING
        )
    return brief(str(value)) if value not in ("", None) else NOTHING


def _narrow(table: Table, status: pb.StatusReply) -> str:
    return plain(table.headings(), table.rows(status))


def _names(table: Table, status: pb.StatusReply) -> str:
    """A line for each: what it is, and what it is called alone."""
    kind, field = table.field.removesuffix("s"), table.names[-1]
    return "\n".join(f"{kind}/{getattr(row, field)}" for row in getattr(status, table.field))


_PEOPLES: dict[str, Callable[[Table, pb.StatusReply], str]] = {TABLE: _narrow, WIDE: _wide, NAME: _names}
