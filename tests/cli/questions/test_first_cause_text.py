"""The first cause of an incident in words, in the report of the incident, and as a line of the journal."""

from __future__ import annotations

import dataclasses
from typing import Any

from controlplane.core.records.diagnosis import CauseFound
from controlplane.reporting import first_cause, story
from controlplane.reporting.event_text import EventLevel, sentence_of

FOUND = CauseFound(
    "j", 1, "exception", "the script raised an exception", rank=2, node="n1", exception="ValueError",
    text="ValueError: bad", file="/app/train.py", line=5, step=7, reason="rank 2 is the only one",
    confidence=0.95, cascade=("ranks 0, 1: the connection to another rank broke",), clocks="one clock",
    restart=False, advice="it failed so before", advice_confidence=0.95, recommendation="Look.",
)  # fmt: skip


def body(**changes: Any) -> dict[str, Any]:
    return dataclasses.asdict(dataclasses.replace(FOUND, **changes))


def line(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "kind": "event", "wall_s": 5.0, "body": found}


def test_the_text_has_rank_place_cascade_and_the_outlook_as_surely_as_it_is_known() -> None:
    text = first_cause.as_text(body())
    assert "rank 2 on n1: the script raised an exception (ValueError at /app/train.py:5), in step 7" in text
    assert "Cascade: ranks 0, 1: the connection" in text and "Do not restart, this will fail again" in text
    assert "It will probably fail again" in first_cause.as_text(body(advice_confidence=0.6))
    assert "It may help to start it again" in first_cause.as_text(body(restart=True))


def test_who_is_not_known_is_said_to_be_one_of_the_candidates() -> None:
    assert first_cause.who(body(rank=-1, candidates=tuple(range(20)))).endswith("7 and 12 more")
    assert first_cause.who(body(rank=-1)) == "unknown"


def test_the_newest_cause_stands_in_the_report_of_its_incident_and_no_other() -> None:
    verdict = {"job": "j", "scope": "rank", "cause": "raised", "ranks": [2], "nodes": ["n1"],
               "members": ["j.2"], "step": 7, "evidence": []}  # fmt: skip
    plan = {"job": "j", "strategy": "respawn", "reason": "", "drop": [], "add": []}
    judged = line("Judged", {"verdict": verdict, "plan": plan, "incident": 1})
    causes = [line("CauseFound", body(advice="first")), line("CauseFound", body(incident=9))]
    (report,) = story.stories([judged, *causes, line("CauseFound", body())])
    assert report.cause["advice"] == "it failed so before" == story.as_json(report)["cause"]["advice"]
    assert "First cause: rank 2" in story.as_text(report)
    (without,) = story.stories([judged])
    assert story.as_json(without)["cause"] is None and "First cause" not in story.as_text(without)


def test_the_line_of_the_journal_is_a_headline_and_the_findings_of_it_are_details() -> None:
    said = sentence_of(line("CauseFound", body()))
    assert (
        said.level is EventLevel.HEADLINE and "do not restart" in said.text and "/app/train.py:5" in said.text
    )
    finding = {"job": "j", "severity": "critical", "kind": "fails_again", "outcome": "opened",
               "about": "the job", "reason": "r"}  # fmt: skip
    assert sentence_of(line("FindingChanged", finding)).level is EventLevel.DETAIL
