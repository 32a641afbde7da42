"""Incidents as spans: their parts, and a real kill whose trace a collector receives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from controlplane.core.records import effects
from controlplane.core.records.model import (
    Cause,
    Generation,
    Incident,
    JobPhase,
    JobState,
    Plan,
    Resume,
    Scope,
    Strategy,
    Tier,
    Verdict,
)
from controlplane.daemon.telemetry.incident_spans import LEFT_OPEN, PARTS, Spans, Trace
from controlplane.daemon.telemetry.otlp import Exporter
from tests import tidy
from tests.e2e.cli_running import running, until
from tests.e2e.test_incident_lines import SCRIPT
from tests.monitoring.collector import attributes, collecting

if TYPE_CHECKING:
    import pytest

VERDICT = Verdict("job", Scope.RANK, Cause.SIGNALED, ("n1",), ("job.2",), (2,), 20, ("rank 2: SIGKILL",))
PLAN = Plan("job", Strategy.SPARE, ("job.2",), ("job.4",), "one stands ready\nTraceback")
OPEN = Incident(3, "job", VERDICT, PLAN, 1, phases_s=(("detect", 0.5), ("decide", 0.25)))
GENERATION = Generation("job", 2, 1, (), "h:1", "h:2", Resume(Tier.DONOR, 20), "spare")
FENCED = (*OPEN.phases_s, ("fence", 2.0))
ENDED = (*FENCED, ("reform", 1.0), ("restore", 2.0), ("first_step", 3.0))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def heard(*told: tuple[float, effects.Effect]) -> tuple[Spans, list[Trace]]:
    """What is exported upon these effects, each at its time."""
    clock, traces = Clock(), list[Trace]()
    spans = Spans(traces.append, clock)
    for at_s, effect in told:
        clock.now = at_s
        spans.effect(effect)
    return spans, traces


FORMING = JobState("job", JobPhase.FORMING, "")
STEPS: tuple[tuple[float, effects.Effect], ...] = (
    (100.0, effects.Judged(VERDICT, PLAN, 3)),
    (100.0, effects.IncidentChanged(OPEN)),
    (101.5, effects.StoreJob("job", FORMING, generation=GENERATION)),
    (102.0, effects.IncidentChanged(replace(OPEN, phases_s=FENCED, generation_after=2))),
    (109.0, effects.IncidentChanged(replace(OPEN, phases_s=ENDED, generation_after=2, outcome="recovered"))),
)


def test_parts_follow_each_other_from_the_injury_to_the_first_step() -> None:
    _, (trace,) = heard(*STEPS)
    assert trace.name == "job/3" and (trace.begin_s, trace.end_s) == (99.25, 109.0)
    assert [part.name for part in trace.parts] == list(PARTS)
    ends = [part.end_s for part in trace.parts]
    assert ends == [99.75, 100.0, 101.5, 102.0, 103.0, 104.0, 106.0, 109.0]
    assert [part.begin_s for part in trace.parts] == [99.25, *ends[:-1]]
    assert trace.notes == ((100.0, "spare: one stands ready"),)


def test_clocks_that_disagree_make_no_part_negative() -> None:
    slow = (*FENCED, ("reform", 50.0), ("restore", 2.0), ("first_step", 3.0))
    end = effects.IncidentChanged(replace(OPEN, phases_s=slow, outcome="recovered"))
    _, (trace,) = heard(*STEPS[:-1], (109.0, end))
    assert all(part.begin_s <= part.end_s <= trace.end_s for part in trace.parts)


def test_judged_again_begins_the_writing_anew() -> None:
    again = effects.Judged(VERDICT, replace(PLAN, strategy=Strategy.SHRINK, reason="none is left"), 3)
    failed = effects.IncidentChanged(replace(OPEN, outcome="failed"))
    _, (trace,) = heard(*STEPS[:-1], (103.0, again), (104.0, failed))
    assert [part.name for part in trace.parts] == ["detection", "decision"]
    assert [note for _, note in trace.notes] == ["spare: one stands ready", "shrink: none is left"]


def test_what_is_open_when_the_leader_term_ends_is_marked_as_such() -> None:
    spans, traces = heard(*STEPS[:-1])
    spans.end()
    spans.end()
    assert [(each.outcome, each.parts[-1].name) for each in traces] == [(LEFT_OPEN, "persist")]


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_asked_for() -> None:
    program = "import sys, controlplane.daemon.coordinator; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tidy.ROOT, check=True, capture_output=True, text=True
    )
    assert "controlplane.daemon.leadership.leader_term" in run.stdout and "opentelemetry" not in run.stdout


async def test_a_collector_that_is_away_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    exporter = Exporter("http://127.0.0.1:9", "c")
    _, (trace,) = heard(*STEPS)
    exporter.send(trace)
    await exporter.close()
    assert any("export" in record.getMessage().lower() for record in caplog.records)


def test_the_trace_of_a_killed_rank_reaches_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("HOLDFAST_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20planted-token")
        with running("--nproc-per-node", "2", script=SCRIPT) as run:
            first = run.folder / "pid-1-1"
            until(lambda: first.exists() and first.read_text(), lambda: run.output[-3000:])
            os.kill(int(first.read_text()), signal.SIGKILL)
            until((run.folder / "pid-1-2").exists, lambda: run.output[-3000:])
            until(collector.spans, lambda: (run.layout.logs() / "coordinator.log").read_text()[-3000:])
            (run.folder / "done").touch()
            assert run.end() == 0, run.output[-3000:]
        name = f"{run.job}/1"
    spans = collector.spans()
    (root,) = [span for span in spans if not span.parent_span_id]
    parts = sorted(
        (span for span in spans if span.parent_span_id), key=lambda span: span.start_time_unix_nano
    )
    assert root.name == f"incident {name}" and root.status.code == 1
    assert [span.name for span in parts] == list(PARTS)
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert {span.parent_span_id for span in parts} == {root.span_id}
    assert all(attributes(span)["is_goodput_span"] is False for span in spans)
    assert {attributes(span)["holdfast.incident"] for span in spans} == {name}
    told = attributes(root)
    assert told["holdfast.cause"] == "signaled" and told["holdfast.ranks"] == [1]
    assert root.start_time_unix_nano == parts[0].start_time_unix_nano
    assert root.end_time_unix_nano == parts[-1].end_time_unix_nano
    resource = {
        pair.key: pair.value.string_value
        for pair in collector.requests[0].resource_spans[0].resource.attributes
    }
    assert resource["service.name"] == "holdfast" and resource["holdfast.cluster"]
    assert collector.headers[0]["authorization"] == "Bearer planted-token"
