"""Turn the answer of a coordinator into rows, for tables and for JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.reporting.lines import brief
from controlplane.reporting.quantities import duration, size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.wire import control_pb2 as pb

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """How one kind of thing is shown: its field in a status reply, its names, and its columns."""

    field: str
    names: tuple[str, ...]  # the fields by which people name one of them
    columns: tuple[tuple[str, Callable[[Any], str]], ...]

    def headings(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.columns]

    def rows(self, status: pb.StatusReply) -> list[list[str]]:
        """One list of texts per thing."""
        return [[show(row) for _, show in self.columns] for row in getattr(status, self.field)]


def as_json(table: Table, status: pb.StatusReply) -> list[dict[str, Any]]:
    """One object per thing, with the field names of the wire; numbers are numbers."""
    return [message(row) for row in getattr(status, table.field)]


def message(row: Any) -> dict[str, Any]:
    """A message of the wire as plain data."""
    values: dict[str, Any] = {}
    for spec in row.DESCRIPTOR.fields:
        value = getattr(row, spec.name)
        if spec.has_presence and not row.HasField(spec.name):
            values[spec.name] = None
            continue
        repeated = not isinstance(value, str | int | float | bytes | bool) and hasattr(value, "__len__")
        values[spec.name] = list(map(_item, value)) if repeated else value
    return values


def _item(value: Any) -> Any:
    return message(value) if hasattr(value, "DESCRIPTOR") else value


def _number(value: int) -> str:
    return str(value) if value >= 0 else NOTHING


def _text(value: str) -> str:
    return value or NOTHING


def _good(row: Any) -> str:
    """The state of a checkpoint that is not bad: suspect, published or committed."""
    if row.suspect:
        return brief(f"suspect: {row.suspect}")
    return "published" if row.published else "committed"


def why(row: Any) -> str:
    """A job's reason for the table: what is wrong with it, else why it is in its phase."""
    return brief(row.troubles[0] if row.troubles else row.reason) or NOTHING


def age(row: Any) -> str:
    """How long ago a job was submitted."""
    return duration(row.age_s) if row.age_s > 0 else NOTHING


def step_time(row: Any) -> str:
    """How long a job's newest steps took."""
    return duration(row.step_s) if row.step_s > 0 else NOTHING


def eta(row: Any) -> str:
    """In how long a job's training ends; or, in a word or two, why that is not known."""
    return duration(row.eta_s) if row.HasField("eta_s") else row.eta_word or NOTHING


def loss(row: Any) -> str:
    """The loss of a job's newest measured step."""
    return f"{row.loss:.5g}" if row.HasField("loss") else NOTHING


def _connected(row: Any) -> str:
    return duration(row.connected_s) if row.connected_s > 0 else NOTHING


JOBS = Table(
    "jobs",
    ("job",),
    (
        ("JOB", lambda row: row.job),
        ("PHASE", lambda row: row.phase),
        ("HEALTH", lambda row: _text(row.health)),
        ("STEP", lambda row: _number(row.step)),
        ("RANKS", lambda row: str(row.world_size)),
        ("GENERATION", lambda row: str(row.generation)),
        ("INCIDENTS", lambda row: str(row.incidents)),
        ("CHECKPOINT", lambda row: _text(row.last_checkpoint)),
        ("AGE", age),
        ("REASON", why),
    ),
)
NODES = Table(
    "nodes",
    ("node",),
    (
        ("NODE", lambda row: row.node),
        ("STATE", lambda row: row.state),
        ("ELIGIBILITY", lambda row: row.standing or "ok"),
        ("SCORE", lambda row: f"{row.score:.1f}"),
        ("ADDRESS", lambda row: _text(row.address)),
        ("SLOTS", lambda row: str(row.slots)),
        ("PROCESSES", lambda row: str(row.members)),
        ("HEARD", lambda row: f"{duration(row.last_heard_s)} ago"),
        ("CONNECTED", _connected),
        ("REASON", lambda row: _text(brief(row.reason))),
    ),
)
RANKS = Table(
    "ranks",
    ("rank", "member"),
    (
        ("JOB", lambda row: row.job),
        ("RANK", lambda row: _number(row.rank)),
        ("ROLE", lambda row: row.role),
        ("PHASE", lambda row: row.phase),
        ("STEP", lambda row: _number(row.step)),
        ("NODE", lambda row: row.node),
        ("PID", lambda row: str(row.pid) if row.pid else NOTHING),
        ("MEMBER", lambda row: row.member),
        ("GENERATION", lambda row: str(row.generation)),
    ),
)
CHECKPOINTS = Table(
    "checkpoints",
    ("id",),
    (
        ("JOB", lambda row: row.job),
        ("ID", lambda row: row.id),
        ("STEP", lambda row: _number(row.step)),
        ("KIND", lambda row: row.kind),
        ("SIZE", lambda row: size(row.bytes_total)),
        ("WRITTEN", lambda row: size(row.bytes_written)),
        ("STATE", lambda row: brief(row.bad) or _good(row)),
    ),
)
TABLES = {"jobs": JOBS, "nodes": NODES, "ranks": RANKS, "checkpoints": CHECKPOINTS}


def plain(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text: aligned columns, one line for each row, so that it can be searched in a pipe."""
    everything = [list(headings), *([" ".join(cell.splitlines()) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(headings))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in everything
    ]
    return "\n".join(line.rstrip() for line in lines)
