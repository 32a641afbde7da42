"""etcd refuses what has been decided about a job: who asks is told so first, and once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.reporting.event_text import EventLevel, sentence_of
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

WHY = "it stands still until etcd has stored generation 2: etcd does not answer"


def broken() -> Play:
    """A job of two ranks, one of which has died; etcd refuses the next generation."""
    stage = running()
    stage.do("report j.1000001 exited cause=signaled signal=9", "report j.1000000 ready held=7 gen=1")
    stage.do("report j.1000002 starting", "report j.1000002 ready held=-1", "refused")
    return stage


def test_a_job_that_stands_still_is_critical_and_says_why_before_anything_else() -> None:
    stage = broken()
    assert stage.cluster.state.jobs["j"].phase == "storing"
    stage.do("wait 2", "refused", "wait 2")
    row = view.job_row(stage.cluster, stage.cluster.state.jobs["j"])
    assert (row.health, row.troubles[0]) == ("critical", WHY)
    stage.do("stored", "wait 2")
    row = view.job_row(stage.cluster, stage.cluster.state.jobs["j"])
    assert (row.health, row.troubles) == ("healthy", ())


def test_a_job_whose_end_etcd_does_not_take_says_so() -> None:
    stage = running()
    stage.do("stop enough", "refused", "wait 2", "refused", "wait 2")
    row = view.job_row(stage.cluster, stage.cluster.state.jobs["j"])
    assert row.troubles[0] == "it stands still until etcd has stored its end: etcd does not answer"


def test_a_job_that_trains_on_does_not_stand_still() -> None:
    stage = running()
    stage.do("drain b", "refused", "wait 2", "refused", "wait 2")
    assert not [each for each in stage.cluster.state.findings.values() if each.kind == "job_undecided"]


def test_what_is_tried_again_every_second_is_a_detail() -> None:
    failed = {"type": "StoreFailed", "body": {"reason": "is full"}}
    note = {"type": "Note", "body": {"kind": "store_failed", "subject": "job/j", "reason": "is full"}}
    assert sentence_of(failed).level is sentence_of(note).level is EventLevel.DETAIL


def test_nothing_waits_where_etcd_has_refused_nothing() -> None:
    stage = play("elect", "hello a", "submit nodes=1 nproc=1")
    stage.do("wait 5")
    assert not [each for each in stage.cluster.state.findings.values() if each.kind == "job_undecided"]
