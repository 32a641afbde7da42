"""`holdfast top` names ranks that make no progress, and nobody whose beat is merely a second old."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from controlplane.cli.questions.describe import described, job
from controlplane.cli.questions.documents import shown as shown_table
from controlplane.cli.questions.screens import fit
from controlplane.cli.questions.tables import JOBS, NODES, message
from controlplane.cli.questions.top import screen
from controlplane.core import view
from controlplane.reporting.dates import arrival
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.core.test_cluster import running

if TYPE_CHECKING:
    import pytest

    from tests.transcripts.language import Play


def shown(stage: Play) -> str:
    rows = {
        "jobs": view.jobs(stage.cluster, stage.now),
        "nodes": view.nodes(stage.cluster, stage.now),
        "ranks": view.ranks(stage.cluster, stage.now),
        "health": view.health(stage.cluster, stage.now),
    }
    return screen(codec.status_message("c", 1, "here", rows), {})


def test_a_rank_whose_beat_is_older_is_not_accused() -> None:
    stage = running()
    stage.do("report j.1000000 running gen=1 step=25", "report j.1000001 running gen=1 step=20")
    assert "without progress" not in shown(stage) and "behind" not in shown(stage)


def test_a_rank_past_its_deadline_is_named_with_how_long() -> None:
    stage = running()
    stage.do("report j.1000000 running gen=1 step=25")
    stage.do("report j.1000001 running gen=1 step=24 stalled=130")
    text = shown(stage)
    named = text.partition("ranks past their deadline without progress:\n")[2].splitlines()
    assert named[0].split() == ["JOB", "RANK", "NODE", "PHASE", "STEP", "FOR"]
    assert named[1].split() == ["j", "1", "b", "running", "24", "2", "min", "10", "s"]
    assert not named[2:] or not named[2].startswith("j")


def test_step_times_and_ages_are_shown_where_they_are_known() -> None:
    known, unknown = pb.JobRow(job="a", age_s=7500.0, step_s=0.32), pb.JobRow(job="b")
    status = pb.StatusReply(jobs=[known, unknown])
    headings, a, b = screen(status, {}).partition("\n\n")[2].splitlines()
    at = headings.index("STEP TIME")
    assert a[at:].startswith("320 ms") and b[at:].startswith("-")
    headings, a, b = shown_table("table", JOBS, status).splitlines()
    at = headings.index("AGE")
    assert a[at:].startswith("2 h 5 min") and b[at:].startswith("-")
    (headings, *_) = shown_table("wide", JOBS, status).splitlines()
    assert headings.count("AGE") == 1, "a wide table repeats no column"


def test_losses_are_shown_where_they_are_known() -> None:
    known, unknown = pb.JobRow(job="a", loss=2.345678), pb.JobRow(job="b")
    headings, a, b = screen(pb.StatusReply(jobs=[known, unknown]), {}).partition("\n\n")[2].splitlines()
    at = headings.index("LOSS")
    assert a[at:].startswith("2.3457 ") and b[at:].startswith("- ")
    assert (message(known)["loss"], message(unknown)["loss"]) == (2.345678, None)
    assert "Loss:" in described(job("a", pb.StatusReply(jobs=[known]), []), [], 0)
    wide = shown_table("wide", JOBS, pb.StatusReply(jobs=[known, unknown])).splitlines()
    assert wide[2][wide[0].index("LOSS") :].startswith("-")


def test_nodes_say_how_long_they_are_connected() -> None:
    nodes = [pb.NodeRow(node="a", state="up", connected_s=192.0), pb.NodeRow(node="b", state="lost")]
    headings, a, b = shown_table("table", NODES, pb.StatusReply(nodes=nodes)).splitlines()
    at = headings.index("CONNECTED")
    assert a[at:].startswith("3 min 12 s") and b[at:].startswith("- ")
    stage = running()
    stage.do("live 12")
    (row, *_) = view.nodes(stage.cluster, stage.now)
    assert 12 <= row.connected_s < 60
    stage.do("break a")
    assert view.nodes(stage.cluster, stage.now)[0].connected_s == 0


def test_a_reason_of_many_lines_breaks_no_table() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    stage.cluster.state.jobs["j"].reason = "it raised\n" + "  File x\n" * 400
    text = shown(stage)
    assert max(map(len, text.splitlines())) < 300
    assert "it raised ..." in text and "File x" not in text


def test_the_end_of_a_job_is_shown_or_why_it_is_not_known() -> None:
    known = pb.JobRow(job="a", eta_s=7500.0, end_step=1000, eta_of="job")
    paused = pb.JobRow(job="b", eta_word="paused", eta_reason="it is paused")
    older = pb.JobRow(job="c")
    status = pb.StatusReply(jobs=[known, paused, older])
    headings, a, b, c = screen(status, {}).partition("\n\n")[2].splitlines()
    at = headings.index("ETA")
    assert a[at:].startswith("2 h 5 min ") and b[at:].startswith("paused ") and c[at:].startswith("- ")
    assert (message(known)["eta_s"], message(paused)["eta_s"]) == (7500.0, None)
    told = [described(job(name, status, []), [], 0) for name in "abc"]
    assert "Ends:" in told[0] and "in 2 h 5 min, 20" in told[0]
    assert "(at step 1000, by the script's total_steps)" in told[0]
    assert "unknown: it is paused" in told[1] and "Ends:" not in told[2]


def test_the_date_is_that_of_the_readers_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    row = pb.JobRow(eta_s=3600.0, end_step=9, eta_of="loop")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        said = arrival(row, 1_800_000_000.0)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert said == "in 1 h 0 min, 2027-01-15 14:30 IST (at step 9, where the loop that runs ends)"
    assert arrival(pb.JobRow(eta_word="ended", eta_reason="it has ended"), 0.0) == ""
    assert arrival(pb.JobRow(eta_s=1e300), 0.0).startswith("in "), "no calendar has that date"


def test_the_end_is_within_eighty_columns() -> None:
    row = pb.JobRow(job="a-job-of-usual-length", phase="running", health="degraded", step=1_234_567)
    row.eta_s = 7500.0
    line = fit(screen(pb.StatusReply(jobs=[row]), {row.job: 12.5}), 80, 24).splitlines()[5]
    assert "1234567  2 h 5 min" in line and len(line) <= 80
