"""Write what made-up jobs leave as torch would: flight recorder dumps, one for each rank.

Some jobs keep only the newest operations (a ring), some dump only open ones. This knows nothing of the
detectors."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.diagnosis.programs import run
from benchmarks.diagnosis.stoppages import PLANTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.diagnosis.programs import MadeUpJob, RunningRank

GroupUse = tuple[str, tuple[int, ...]]
"""What a group is for, and its ranks."""


@dataclass(frozen=True, slots=True)
class DumpCase:
    """The dumps of a job by rank, as torch writes them, and the truth. `either`: ranks that may be named as
    undetermined."""

    plant: str
    seed: int
    dumps: dict[int, dict[str, Any]]
    culprits: frozenset[int]
    either: frozenset[int]
    lost: dict[int, str]

    def write(self, folder: Path) -> Path:
        """Write one file for each rank."""
        for rank, dump in self.dumps.items():
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
        return folder


def dumps(plant: str, seed: int) -> DumpCase:
    """The case of this seed. The same seed always gives the same case.

    In a third of the cases the ring has room for few operations only; in another third only open ones are
    dumped."""
    random = Random(f"{plant} {seed}")
    while True:
        job = PLANTS[plant](random)
        ranks = run(job, random)
        if not job.culprits or not all(all(each.ended) for each in ranks) or job.blind:
            break  # else what was planted did no harm: everything has completed
    ring = random.choice((0, 0, random.randint(12, 30)))
    active_only = not ring and random.random() < 0.5
    names = _names(job, random)
    found = {}
    for rank, each in enumerate(ranks):
        why = job.lost.get(rank, "")
        if why != "absent":
            skew_ns = random.randint(-2_000_000, 2_000_000)
            dump = _DumpWriter(rank, each, names, job.blind.get(rank, -1), skew_ns).dump()
            found[rank] = _kept(dump, ring, active_only, why)
    return DumpCase(plant, seed, found, frozenset(job.culprits), frozenset(job.either), job.lost)


def _names(job: MadeUpJob, random: Random) -> dict[GroupUse, str]:
    """A name for each group: numbers in any order."""
    groups = sorted({(call.use, call.group) for calls in job.programs for call in calls})
    numbers = random.sample(range(200), len(groups))
    return {group: str(number) for group, number in zip(groups, numbers, strict=True)}


@dataclass(frozen=True, slots=True)
class _DumpWriter:
    """What a rank's dump is made from. `blind`: from which call on it records no completion; -1: never."""

    rank: int
    ran: RunningRank
    names: dict[GroupUse, str]
    blind: int
    skew_ns: int

    def dump(self) -> dict[str, Any]:
        """The dump, with all operations."""
        local = {use: at for at, use in enumerate(dict.fromkeys((c.use, c.group) for c in self.ran.program))}
        entries = list(self.entries(local))
        return {
            "version": "2.9",
            "pg_config": {
                self.names[use]: {"name": self.names[use], "desc": use[0], "ranks": str(list(use[1]))}
                for use in local
            },
            "nccl_version": "2.27.3",
            "pg_status": {str(at): _status(entries, at) for at in local.values()},
            "entries": entries,
        }

    def entries(self, local: dict[GroupUse, int]) -> Iterator[dict[str, Any]]:
        """The operations, in order. `local`: the process's own ids of its groups."""
        for at in range(self.ran.called):
            call, (sequence, p2p) = self.ran.program[at], self.ran.numbers[at]
            use = call.use, call.group
            done = self.ran.ended[at] and not 0 <= self.blind <= at
            name = call.operation
            if call.transfer:
                arrow = "->" if name == "send" else "<-"
                name = f"{name} {call.group.index(self.rank)}{arrow}{call.group.index(call.peer)}"
            created = self.ran.times[at] + self.skew_ns
            yield {
                "frames": [
                    {"name": call.operation, "filename": "site-packages/torch/distributed/x.py", "line": 1},
                    {"name": "step", "filename": "train.py", "line": call.line},
                ],
                "record_id": at,
                "pg_id": local[use],
                "process_group": (self.names[use], call.use),
                "collective_seq_id": sequence,
                "p2p_seq_id": p2p,
                "op_id": sequence + p2p,
                "profiling_name": f"nccl:{name}",
                "time_created_ns": created,
                "input_sizes": [[call.size, 4]],
                "input_dtypes": [call.dtype],
                "output_sizes": [[call.size, 4]],
                "output_dtypes": [call.dtype],
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": created + 50_000 if done else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": call.transfer,
            }


def _status(entries: list[dict[str, Any]], pg_id: int) -> dict[str, int]:
    mine = [entry for entry in entries if entry["pg_id"] == pg_id]
    numbers = [entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"] for entry in mine]
    ended = [number for number, entry in zip(numbers, mine, strict=True) if entry["retired"]]
    return {
        "last_enqueued_collective": numbers[-1] if numbers else -1,
        "last_started_collective": -1,
        "last_completed_collective": ended[-1] if ended else -1,
    }


def _kept(dump: dict[str, Any], ring: int, active_only: bool, why: str) -> dict[str, Any]:
    """What is left of a dump: the newest operations, the open ones, nothing, or those of yesterday."""
    entries = dump["entries"][-ring:] if ring else dump["entries"]
    if active_only:
        entries = [entry for entry in entries if entry["state"] != "completed"]
    if why == "empty":
        return {**dump, "entries": [], "pg_status": {}}
    if why == "stale":
        day_ns = 86_400_000_000_000
        entries = [{**entry, "time_created_ns": entry["time_created_ns"] - day_ns} for entry in entries]
        for entry in entries:
            if entry["time_discovered_completed_ns"]:
                entry["time_discovered_completed_ns"] -= day_ns
    return {**dump, "entries": entries}
