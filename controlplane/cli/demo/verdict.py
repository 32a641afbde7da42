"""Compute the result of the demo from journal, ledgers and digests, as one JSON object. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controlplane.cli.demo.ledger import Samples
    from controlplane.cli.demo.strike import KillResult

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything that was observed of both runs."""

    steps: int
    world_size: int
    nodes: int
    digests: Mapping[int, str]  # of the final weights of the run with failures, by rank
    undisturbed: Mapping[int, str]
    samples: Samples
    journal: Sequence[Line]
    strikes: Sequence[KillResult] = field(default=())

    @property
    def identical(self) -> bool:
        """Whether every rank of both runs ended with the same bits."""
        everyone = len(self.digests) == len(self.undisturbed) == self.world_size
        return everyone and dict(self.digests) == dict(self.undisturbed)

    @property
    def good(self) -> bool:
        """Whether the demo succeeded; this is the exit code."""
        return self.identical and self.samples.clean


def together(digests: Mapping[int, str]) -> str:
    """One digest over the digests of all ranks; "" without any."""
    text = "\n".join(f"{rank} {digests[rank]}" for rank in sorted(digests))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest() if digests else ""


def as_json(outcome: DemoOutcome) -> dict[str, Any]:
    """The result as the last line of `holdfast demo --json`."""
    samples = outcome.samples
    return {
        "steps": outcome.steps,
        "world_size": outcome.world_size,
        "nodes": outcome.nodes,
        "identical": outcome.identical,
        "final_digest": together(outcome.digests),
        "undisturbed_digest": together(outcome.undisturbed),
        "samples": {
            "consumed": samples.consumed,
            "repeated": samples.repeated,
            "skipped": samples.skipped,
        },
        "incidents": incidents(outcome.journal, outcome.strikes),
        "checkpoints": checkpoints(outcome.journal),
        "kills": [{"kill": str(blow.kill), "in_step": blow.step} for blow in outcome.strikes],
        "problems": list(samples.problems),
    }


def incidents(journal: Iterable[Line], strikes: Sequence[KillResult]) -> list[dict[str, Any]]:
    """Every incident as it ended, with what was measured from outside for the kill that caused it."""
    newest: dict[tuple[int, int], tuple[float, dict[str, Any]]] = {}
    for line in journal:
        if line["type"] == "IncidentChanged":
            incident = line["body"]["incident"]
            began_s, _ = newest.get((line["term"], incident["id"]), (line["monotonic_s"], None))
            newest[line["term"], incident["id"]] = began_s, incident
    waiting = list(strikes)
    incidents = [
        _incident(incident, _cause(began_s, incident, waiting)) for began_s, incident in newest.values()
    ]
    return incidents + [_ending(blow) for blow in waiting if blow.kill.target == "all"]


def _cause(began_s: float, incident: dict[str, Any], waiting: list[KillResult]) -> KillResult | None:
    """The first kill not yet assigned that came before the incident and hit one of its ranks."""
    ranks = set(incident["verdict"]["ranks"])
    for blow in waiting:
        if blow.at_ns / 1e9 <= began_s and ranks & set(blow.hit):
            waiting.remove(blow)
            return blow
    return None


def _incident(incident: dict[str, Any], blow: KillResult | None) -> dict[str, Any]:
    verdict = incident["verdict"]
    ranks = verdict["ranks"]
    return {
        "id": incident["id"],
        "scope": verdict["scope"],
        "cause": verdict["cause"],
        "rank": ranks[0] if ranks else None,
        "step": verdict["step"],
        "lost_steps": incident["lost_steps"] if blow is None or blow.lost_steps is None else blow.lost_steps,
        "survivor_pids_unchanged": None if blow is None else blow.survivor_pids_unchanged,
        "phases_s": {name: round(span, 6) for name, span in incident["phases_s"]},
        "survivors_resumed_s": None if blow is None else _rounded(blow.survivors_resumed_s),
        "full_world_s": None if blow is None else _rounded(blow.full_world_s),
        "outcome": incident["outcome"],
    }


def _ending(blow: KillResult) -> dict[str, Any]:
    """The entry for a kill of everything: no coordinator was left to record an incident."""
    return {
        "id": None,
        "scope": "job",
        "cause": "all_killed",
        "rank": None,
        "step": blow.step,
        "lost_steps": blow.lost_steps,
        "survivor_pids_unchanged": None,
        "phases_s": {},
        "survivors_resumed_s": None,
        "full_world_s": _rounded(blow.full_world_s),
        "outcome": "recovered" if blow.full_world_s is not None else "open",
    }


def _rounded(span_s: float | None) -> float | None:
    return None if span_s is None else round(span_s, 4)


def checkpoints(journal: Iterable[Line]) -> list[dict[str, Any]]:
    """Every committed checkpoint, in order."""
    found: dict[str, dict[str, Any]] = {}
    for line in journal:
        record = line["body"].get("record") if line["type"] == "CheckpointChanged" else None
        if record is not None and line["body"]["outcome"] == "committed":
            found[record["id"]] = {key: record[key] for key in ("step", "kind", "bytes_written")}
    return list(found.values())
