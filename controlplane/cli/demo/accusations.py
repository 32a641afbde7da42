"""Compare what the diagnosis found with what was planted, as one JSON object. Pure.

A finding accuses the ranks that its subject names: one rank, or all ranks of a node or of a replica of the
model. A finding about the whole job, or about crowded CPUs, accuses nobody. A rank that is accused and has no
fault is a false accusation, whatever else is right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.cli.demo.verdict import incidents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controlplane.cli.demo.faults import PlannedFault

Row = dict[str, Any]
ACCUSE_NOBODY = ("crowded_cpu",)
"""Kinds of findings that name a node for what runs there beside the job."""
SEEN_LATE_S = 1.0
"""The demo looks for the step of a fault that the script plays, and may see it so much later."""


@dataclass(slots=True)
class PlantedFault:
    """A fault, and when it began (s since the epoch; None: the run ended before)."""

    planned: PlannedFault
    planted_at_s: float | None = None


@dataclass(slots=True)
class SeenFindings:
    """Every finding that the coordinator ever showed, in its newest state."""

    rows: dict[tuple[str, float], Row] = field(default_factory=dict)
    documents: int = 0  # answers of the coordinator
    judged: int = 0  # answers after which something had been judged
    links_unknown: str = ""  # why suspected links were not judged, or none of them was slow, as last answered
    links_code: str = ""  # the same in a word
    failed_detectors: list[str] = field(default_factory=list)

    def take(self, document: Row) -> list[Row]:
        """Take an answer of the coordinator. Returns the findings that are new."""
        self.documents += 1
        self.judged += bool(document["anatomy"]["judged"])
        if document["links"]["unknown"]:
            self.links_unknown, self.links_code = document["links"]["unknown"], document["links"]["code"]
        self.failed_detectors += [
            each for each in document["failed_detectors"] if each not in self.failed_detectors
        ]
        new = []
        for row in (*document["findings"], *document["resolved"]):
            key = row["id"], row["opened_s"]
            if key not in self.rows:
                new.append(row)
            self.rows[key] = row
        return new


def hangs(journal: Iterable[Row]) -> list[Row]:
    """Each hang that the journal reports, as a finding: the coordinator does not list it among them."""
    found: dict[tuple[int, int], Row] = {}
    for line in journal:
        incident = line["body"].get("incident") if line["type"] == "IncidentChanged" else None
        key = (line["term"], incident["id"]) if incident is not None else (-1, -1)
        if incident is None or incident["verdict"]["cause"] != "hung" or key in found:
            continue
        ranks = incident["verdict"]["ranks"]
        found[key] = {
            "kind": "hung",
            "subject": {"rank": ranks[0] if len(ranks) == 1 else None, "ranks": ranks},
            "severity": "critical",
            "opened_s": line["wall_s"],
            "resolved_s": None,
            "first_step": incident["verdict"]["step"],
            "confidence": 1.0,
            "reason": "; ".join(incident["verdict"]["evidence"]),
        }
    return list(found.values())


def accused(subject: Mapping[str, Any], nodes: Mapping[int, str], dp_ranks: Mapping[int, int]) -> set[int]:
    """The ranks that a subject names. `nodes`, `dp_ranks`: the node and the replica of each rank."""
    if "ranks" in subject:
        return set(subject["ranks"])
    if subject.get("rank") is not None:
        return {subject["rank"]}
    if subject.get("node"):
        return {rank for rank, node in nodes.items() if node == subject["node"]}
    if subject.get("dp_rank") is not None:
        return {rank for rank, dp_rank in dp_ranks.items() if dp_rank == subject["dp_rank"]}
    return set()


def as_json(
    planted: Sequence[PlantedFault],
    journal: Sequence[Row],
    seen: SeenFindings,
    nodes: Mapping[int, str],
    replicas: Mapping[int, int],
) -> Row:
    """The result as the last line of `holdfast demo --doctor --json`. `nodes`, `replicas`: the node and the
    replica of the model of each rank."""
    findings = [*seen.rows.values(), *hangs(journal)]
    guilty = {rank for each in planted for rank in _guilty(each.planned, nodes)}
    healthy = [
        {"rank": rank, "kind": row["kind"], "severity": row["severity"]}
        for row in findings
        if row["kind"] not in ACCUSE_NOBODY
        for rank in sorted(accused(row["subject"], nodes, replicas) - guilty)
    ]
    return {
        "planted": [_planted(each) for each in planted],
        "findings": [_finding(row, planted, nodes, replicas) for row in findings],
        "accused_healthy": healthy,
        "incidents": incidents(journal, ()),
        "answers_judged": seen.judged,
        "links_unknown": seen.links_unknown,
        "links_code": seen.links_code,
        "failed_detectors": seen.failed_detectors,
    }


def _guilty(fault: PlannedFault, nodes: Mapping[int, str]) -> set[int]:
    """The ranks that a finding may name: the planted one, or all of its node."""
    if fault.of.of_node:
        return {rank for rank, node in nodes.items() if node == nodes.get(fault.rank)}
    return {fault.rank} if fault.of.has_rank else set()


def _planted(fault: PlantedFault) -> Row:
    planned = fault.planned
    return {
        "kind": planned.kind,
        "rank": planned.rank if planned.of.has_rank else None,
        "at": planned.at,
        "factor": planned.factor or None,
        "seed": planned.seed,
        "planted_at_s": fault.planted_at_s,
    }


def _finding(
    row: Row, planted: Sequence[PlantedFault], nodes: Mapping[int, str], replicas: Mapping[int, int]
) -> Row:
    """A finding, with when the fault that it is about was planted, and the time from then on; None: it is
    about no planted fault. What accuses nobody is about none, nor is what was known of a rank before. A fault
    of the whole job, like its layout, is there from the beginning."""
    ranks = accused(row["subject"], nodes, replicas)
    times = [
        each.planted_at_s
        for each in planted
        if each.planted_at_s is not None
        and _of_fault(each.planned, ranks, row["opened_s"] - each.planted_at_s)
        if row["kind"] not in ACCUSE_NOBODY
    ]
    return {
        "kind": row["kind"],
        "subject": row["subject"],
        "severity": row["severity"],
        "opened_s": row["opened_s"],
        "planted_at_s": min(times, default=None),
        "first_found_s": round(max(0.0, row["opened_s"] - min(times)), 3) if times else None,
        "resolved_s": row["resolved_s"],
        "step": row["first_step"],
        "confidence": row["confidence"],
        "reason": row["reason"],
    }


def _of_fault(fault: PlannedFault, ranks: set[int], after_s: float) -> bool:
    """Whether a finding about these ranks, which opened so long after a fault, may be about it."""
    if fault.of.has_rank:
        return fault.rank in ranks and after_s >= -SEEN_LATE_S
    return fault.kind != "none"
