"""An incident whose leader died before it was over has an end all the same, told by the next leader."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.reporting import story
from controlplane.reporting.lines import job_of


def line(kind: str, wall_s: float, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "wall_s": wall_s, "term": 1, "sequence": 1, "body": body}


def struck() -> list[dict[str, Any]]:
    """What the leader that died has told: the incident is open."""
    verdict = {
        "job": "j", "scope": "rank", "cause": "signaled", "ranks": [1], "members": ["j.1"], "nodes": ["b"],
        "evidence": ["rank 1 (j.1 on b): killed by signal 9"], "step": 4,
    }  # fmt: skip
    plan = {"job": "j", "strategy": "spare", "drop": ["j.1"], "add": ["j.2"], "reason": "a spare takes it"}
    incident = {"id": 7, "job": "j", "verdict": verdict, "plan": plan, "outcome": "open", "phases_s": []}
    return [
        line("Judged", 1.0, {"incident": 7, "verdict": verdict, "plan": plan}),
        line("IncidentChanged", 2.0, {"incident": incident}),
    ]


@pytest.mark.parametrize(
    ("kind", "outcome"), [("incident_over", "recovered"), ("incident_overtaken", "superseded")]
)
def test_the_next_leader_ends_it(kind: str, outcome: str) -> None:
    reason = "incident 7, whose leader ended before it was over: every rank has trained on in generation 8"
    note = line("Note", 9.0, {"kind": kind, "subject": "j", "reason": reason})
    (told,) = story.stories([*struck(), note])
    assert (told.outcome, told.ended_s) == (outcome, 9.0)
    assert reason in story.as_text(told)
    assert "rank 1" in story.as_text(told), "what the former leader knew stays"


def test_what_an_open_incident_waits_for_is_part_of_its_story() -> None:
    """A note about the job, which names it as its subject; and no total is told of what goes on."""
    why = "rank 1 cannot be started on b now: no room in /dev/shm"
    note = line("Note", 2.5, {"kind": "launch_waits", "subject": "j", "reason": why})
    phases = {**struck()[1]["body"]["incident"], "phases_s": [["detect", 0.003]]}
    (told,) = story.stories([*struck(), line("IncidentChanged", 2.1, {"incident": phases}), note])
    text = story.as_text(told)
    assert why in text
    assert "What it cost: it goes on; 3 ms for what is over" in text


def test_a_note_belongs_to_the_job_that_is_its_subject() -> None:
    assert job_of({"kind": "snapshots_overdue", "subject": "j", "reason": "none for 31 s"}) == "j"
    assert job_of({"kind": "node_lost", "severity": "warning", "subject": "n", "job": ""}) == ""


def test_a_journal_that_never_heard_of_it_is_told_all_the_same() -> None:
    note = line("Note", 9.0, {"kind": "incident_over", "subject": "j", "reason": "incident 7, ..."})
    assert story.stories([note]) == []
    (told,) = story.stories(struck())
    assert told.outcome == "open"
