"""Dumps as torch writes them, made by hand: what each rank called, and what of it has completed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.analysis.flight_records.diagnosis import diagnose
from controlplane.analysis.flight_records.fields import dump_of
from controlplane.analysis.flight_records.records import DumpFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.flight_records.diagnosis import FlightDiagnosis

NOW_NS = 1_750_000_000_000_000_000


@dataclass(slots=True)
class MadeDump:
    """The dump of one rank. `groups`: by name the description and the ranks."""

    rank: int
    groups: dict[str, tuple[str, list[int]]]
    entries: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    status: dict[str, dict[str, int]] = field(default_factory=dict)

    def call(self, name: str, group: str, *, done: bool = True, line: int = 10, **changed: Any) -> MadeDump:
        """Record a call: `all_reduce`, or `send 0->1`."""
        transfer = name.startswith(("send", "recv"))
        self.counts[group][transfer] += 1
        sequence, p2p = self.counts[group]
        at = len(self.entries)
        self.entries.append(
            {
                "record_id": at,
                "pg_id": list(self.groups).index(group),
                "process_group": (group, self.groups[group][0]),
                "collective_seq_id": sequence,
                "p2p_seq_id": p2p,
                "op_id": sequence + p2p,
                "profiling_name": f"nccl:{name}",
                "time_created_ns": NOW_NS + 1_000_000 * at,
                "input_sizes": [[4, 8]],
                "input_dtypes": ["Float"],
                "output_sizes": [[4, 8]],
                "output_dtypes": ["Float"],
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": transfer,
                "frames": [
                    {"name": "all_reduce", "filename": "site-packages/torch/distributed/x.py", "line": 3},
                    {"name": "step", "filename": "train.py", "line": line},
                ],
                **changed,
            }
        )
        return self

    def document(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "version": "2.9",
            "pg_config": {
                name: {"name": name, "desc": description, "ranks": str(ranks)}
                for name, (description, ranks) in self.groups.items()
            },
            "pg_status": self.status,
            "entries": self.entries,
        }


def world(ranks: int, **more: list[int]) -> list[MadeDump]:
    """A dump for each rank, with the default group, and those of `more` that it belongs to."""
    return [
        MadeDump(
            rank,
            {
                "0": ("default_pg", list(range(ranks))),
                **{name: (name, members) for name, members in more.items() if rank in members},
            },
        )
        for rank in range(ranks)
    ]


def judge(documents: Iterable[tuple[int, dict[str, Any]]]) -> FlightDiagnosis:
    """What the detector says of (rank, what its file holds)."""
    return diagnose(DumpFolder(tuple(dump_of(rank, f"_dump_{rank}", each) for rank, each in documents)))


def judged(dumps: Iterable[MadeDump]) -> FlightDiagnosis:
    """What the detector says of these dumps."""
    return judge((dump.rank, dump.document()) for dump in dumps)


def named(found: FlightDiagnosis) -> dict[int, str]:
    """The culprits, and of what kind."""
    return {each.rank: each.kind for each in found.culprits}


def unsure(found: FlightDiagnosis) -> list[int]:
    """The ranks that are undetermined."""
    return [each.rank for each in found.undetermined]
