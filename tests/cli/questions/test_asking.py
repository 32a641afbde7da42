"""What `get NAME`, `events` and `why` take, and which lines they choose."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.errors import CliError, UsageError
from controlplane.cli.main import main, tree
from controlplane.cli.questions import describe
from controlplane.cli.questions.documents import shown
from controlplane.cli.questions.events import AROUND_S, span_of
from controlplane.cli.questions.queries import keep_named
from controlplane.cli.questions.stacks import as_data, as_text
from controlplane.cli.questions.tables import CHECKPOINTS, JOBS, RANKS
from controlplane.cli.questions.why import named, pick
from controlplane.cli.questions.why import row as why_row
from controlplane.reporting import story
from controlplane.wire import control_pb2 as pb

if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from typing import Any


def parsed(*words: str) -> argparse.Namespace:
    found: argparse.Namespace = tree().parse_args([*words])
    return found


@pytest.mark.parametrize(
    "words",
    ["get job a -o json", "get -o json job a", "get job -o json a", "get job a b -o json", "get jobs"],
)
def test_names_may_stand_before_and_behind_flags(words: str) -> None:
    values = parsed(*words.split())
    assert values.names == [word for word in words.split() if word in ("a", "b")]


def test_named_rows_are_kept_and_a_name_that_is_not_there_is_an_error() -> None:
    status = pb.StatusReply(
        jobs=[pb.JobRow(job="llm"), pb.JobRow(job="eval")],
        ranks=[pb.RankRow(job="llm", rank=rank, member=f"llm.{rank + 5}") for rank in range(3)],
    )
    keep_named(status, JOBS, ["eval"])
    assert [row.job for row in status.jobs] == ["eval"]
    keep_named(status, RANKS, ["1", "llm.7"])
    assert [row.rank for row in status.ranks] == [1, 2]
    with pytest.raises(CliError, match="no job named eva; did you mean eval"):
        keep_named(status, JOBS, ["eval", "eva"])
    with pytest.raises(CliError, match="no checkpoint named 3-9"):
        keep_named(status, CHECKPOINTS, ["3-9"])


def test_names_alone_and_nothing_where_there_is_nothing() -> None:
    status = pb.StatusReply(
        jobs=[pb.JobRow(job="llm"), pb.JobRow(job="eval")],
        ranks=[pb.RankRow(job="llm", rank=-1, member="llm.5"), pb.RankRow(job="llm", rank=0, member="llm.6")],
    )
    assert shown("name", JOBS, status) == "job/llm\njob/eval"
    assert shown("name", RANKS, status) == "rank/llm.5\nrank/llm.6", "two spares have the same number"
    assert shown("name", CHECKPOINTS, status) == ""
    assert parsed("get", "jobs", "-o", "name").output == "name"
    with pytest.raises(CliError, match="unknown value 'name'"):
        parsed("status", "-o", "name")


def test_spans_of_time() -> None:
    assert span_of(parsed("events")) == (-math.inf, math.inf)
    at = 1772370300.0
    first, last = span_of(
        parsed("events", "--since", "2026-03-01T13:05:00Z", "--until", "2026-03-01T13:06:00Z")
    )
    assert (first, last) == (at, at + 60)
    assert span_of(parsed("events", "--at", "2026-03-01T14:05:00+01:00")) == (at - AROUND_S, at + AROUND_S)
    for two in (("--since", "1m", "--until", "2m"), ("--at", "1m", "--since", "2m")):
        with pytest.raises(UsageError):
            span_of(parsed("why", *two))


def test_why_takes_an_incident_or_a_job() -> None:
    assert (named("3", ""), named("llm/3", "x"), named("", "llm")) == (("", "3"), ("llm", "3"), ("llm", ""))
    assert named("llm", "") == ("llm", "")
    with pytest.raises(UsageError, match="not an incident"):
        named("llm/three", "")


def test_why_at_a_moment_takes_the_incident_that_is_nearest() -> None:
    found = [
        story.IncidentReport("llm", number, judged_s=at, ended_s=at + 1.0)
        for number, at in ((1, 100.0), (2, 130.0))
    ]
    assert [pick(found, "", "", at).id for at in (99.0, 114.0, 117.0, 131.0, None)] == [1, 1, 2, 2, 2]
    still = story.IncidentReport("llm", 3, judged_s=90.0)
    assert pick([*found, still], "", "", 120.0).id == 3, "it was open then"
    assert pick(found, "", "1", 131.0).id == 1


def test_a_list_of_incidents_says_that_no_step_was_lost_and_where_that_is_not_known() -> None:
    def lost(strategy: str, **incident: Any) -> str:
        verdict = {"cause": "signaled", "step": 4, "scope": "job"}
        plan = {"strategy": strategy}
        return why_row(story.IncidentReport("llm", 1, 100.0, 101.0, verdict, plan, incident))[4]

    told = [lost("spare", outcome="recovered", lost_steps=count) for count in (0, 1, 7)]
    assert told == ["0 steps", "1 step", "7 steps"]
    assert lost("relaunch", outcome="recovered", lost_steps=0) == lost("spare", outcome="open") == "-"


def test_stacks_leave_out_what_the_flight_recorder_does_not_know() -> None:
    groups = [
        pb.Collective(group="0 (ranks 0-1, 2 of them)", sequence=9, ended=8, operation="gloo:all_reduce"),
        pb.Collective(group="1", sequence=3, ended=-1),
    ]
    told = as_text(pb.RankStacks(node="n0", rank=1, report=pb.Standing(step=4, collectives=groups)))
    assert "9 operations begun, 8 ended; last gloo:all_reduce" in told
    assert told.splitlines()[-1] == "  group 1: 3 operations begun"


def test_events_of_a_span_have_date_and_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {
            "sequence": number,
            "wall_s": 1772370300.0 + number,
            "monotonic_s": 0.0,
            "term": 1,
            "kind": "event",
            "type": "JobStopRequested",
            "body": {"job": "llm", "reason": f"number {number}"},
        }
        for number in range(1, 100)
    ]
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    words = ["events", "--journal", str(journal), "--since", "2026-03-01T13:05:03Z"]
    assert main([*words, "--until", "2026-03-01T13:05:04Z"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[2] for line in shown] == [
        "job llm shall stop: number 3", "job llm shall stop: number 4",
    ]  # fmt: skip
    assert shown[0].startswith("2026-03-0") and shown[0].partition("  ")[0][-6] in "+-"


def test_stacks_of_a_rank() -> None:
    report = pb.Standing(
        member="j.1", rank=1, step=12, activity="backward", since_s=3.2, stalled=True,
        stacks="main:\n  step()",
        collectives=[pb.Collective(group="0", sequence=7, ended=6, operation="ALLREDUCE")],
    )  # fmt: skip
    text = as_text(pb.RankStacks(node="n0", rank=1, report=report))
    assert text.splitlines() == [
        "rank 1 on n0: step 12, backward for 3.2 s, past its deadline",
        "  group 0: 7 operations begun, 6 ended; last ALLREDUCE",
        "  main:",
        "    step()",
    ]
    assert as_data(pb.RankStacks(node="n0", rank=1, report=report))["stacks"] == "main:\n  step()"
    missing = pb.RankStacks(node="n0", rank=2, reason="it is starting")
    assert as_text(missing) == "rank 2 on n0: no stacks: it is starting"


def test_a_checkpoint_that_is_suspect_is_shown_so_unless_it_is_bad() -> None:
    rows = [
        pb.CheckpointRecord(job="llm", id="10-1", published=True),
        pb.CheckpointRecord(job="llm", id="20-1", published=True, suspect="replicas of the state differed"),
        pb.CheckpointRecord(job="llm", id="30-1", suspect="replicas of the state differed", bad="chunk 3"),
    ]
    status = pb.StatusReply(checkpoints=rows)
    states = [row[CHECKPOINTS.headings().index("STATE")] for row in CHECKPOINTS.rows(status)]
    assert states == ["published", "suspect: replicas of the state differed", "chunk 3"]
    known = describe.checkpoint("20-1", status, [])
    assert ("Suspect", "replicas of the state differed") in known.facts


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["doctor", "--coordinator", "127.0.0.1:1", "\udcff"],
            "'\\udcff' is no text: nothing here has such a name",
        ),
        (["events", "--job", "\udcff", "--coordinator", "127.0.0.1:1"], "is no text"),
        (["events", "--journal", "/proc/self/mem"], "Input/output error"),
        (["replay", "x" * 5000], "File name too long"),
    ],
)
def test_what_no_name_can_be_is_said_in_a_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
