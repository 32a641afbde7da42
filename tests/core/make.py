"""Make small records for the tests of the core."""

from __future__ import annotations

from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import Cause, CheckpointRecord, Failure, JobSpec, Placement


def spec(**changes: object) -> JobSpec:
    fields = {"job": "j", "argv": ("train.py",), "cwd": "/"} | changes
    return JobSpec(**fields)  # type: ignore[arg-type]


def seats(*per_node: int) -> list[Placement]:
    """Places on the nodes a, b, c, ...: each number says how many the next node has."""
    made: list[Placement] = []
    for index, count in enumerate(per_node):
        for local in range(count):
            made.append(Placement(len(made), f"j.{len(made)}", "abcdef"[index], local))
    return made


def dead(seat: Placement, cause: Cause = Cause.SIGNALED, heard: float = 1.0, age: float = 0.0) -> Evidence:
    return Evidence(heard, Failure(cause, str(cause), step=4, age_s=age), seat.member, seat.node, seat.rank)


def record(step: int, generation: int = 1, **changes: object) -> CheckpointRecord:
    name = f"{step}-{generation}"
    fields = {
        "job": "j", "id": name, "step": step, "generation": generation, "kind": "full", "base": name,
        "manifest_digest": "d", "bytes_total": 2, "bytes_written": 1, "versions": ((0, step), (1, step)),
        "published": True,
    } | changes  # fmt: skip
    return CheckpointRecord(**fields)  # type: ignore[arg-type]
