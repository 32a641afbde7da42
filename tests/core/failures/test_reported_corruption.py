"""What follows from replicas that differ when that is only reported: states are marked, and come last."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from controlplane.core import view
from controlplane.core.checkpoint import retention
from controlplane.core.failures import suspect_states
from controlplane.core.records import effects as fx
from controlplane.core.records.checkpoint_events import Published
from controlplane.core.records.copies import Copy
from controlplane.core.records.model import CheckpointRecord, Fault, JobPhase, Tier
from controlplane.core.restore import restore_point
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from controlplane.core.records.model import Resume
    from controlplane.core.state.job import Job
    from tests.transcripts.language import Play

STORED = "submit nodes=3 nproc=1 check=10 storage=file:///s"
DIFFERS = "ranks=0,1,2 odd=1"


def trained() -> Play:
    return running(STORED, "abc")


def job(stage: Play) -> Job:
    return stage.cluster.state.jobs["j"]


def committed(stage: Play, step: int) -> list[str]:
    """A checkpoint of this step is begun by its snapshot, and committed."""
    told = stage.do(
        f"all running gen={generation(stage)} step={step} snap={step} snapgen={generation(stage)}"
    )
    for line in (f"snapshot {step}", "parts", "persisted", "stored", "published", "stored", "stored"):
        told += stage.do(line)
    return told


def generation(stage: Play) -> int:
    found = job(stage).generation
    assert found is not None
    return found.number


def suspected(stage: Play) -> dict[str, str]:
    """What people are shown."""
    return {row.id: row.suspect for row in view.checkpoints(stage.cluster, stage.now)}


def windows(stage: Play) -> tuple[Fault, ...]:
    assert stage.etcd.states["j"].suspect_states == job(stage).numbers.suspect_states, (
        "the next leader knows the same"
    )
    return job(stage).numbers.suspect_states


def test_the_window_lasts_until_replicas_agree_again() -> None:
    stage = trained()
    stage.do(f"replicas 40 30 {DIFFERS}", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True),)
    stage.do(f"replicas 50 30 {DIFFERS}", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True),)
    stage.do("replicas 60 60", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True, last_step=59),)
    assert (job(stage).phase, job(stage).numbers.faults) == (JobPhase.RUNNING, ())
    concerned = [step for step in range(100) if suspect_states.suspected(job(stage), step, 1)]
    assert concerned == list(range(31, 60))


def test_a_second_window_begins_where_they_agreed() -> None:
    stage = trained()
    stage.do(f"replicas 40 30 {DIFFERS}", "replicas 60 60", f"replicas 80 70 {DIFFERS}", "stored", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True, last_step=59), Fault(71, 1, corrupt=True))


def test_a_later_report_proves_an_agreement_whose_report_was_lost() -> None:
    stage = trained()
    stage.do(f"replicas 40 30 {DIFFERS}", f"replicas 80 60 {DIFFERS}", "stored", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True, last_step=59), Fault(61, 1, corrupt=True))


def test_a_report_that_comes_after_the_agreement_that_followed_it_is_no_open_window() -> None:
    stage = trained()
    stage.do("replicas 60 60", f"replicas 50 30 {DIFFERS}", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True, last_step=59),)
    stage.do(f"replicas 40 30 {DIFFERS}", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True, last_step=59),)


def test_a_report_of_a_generation_that_just_ended_still_marks_its_states() -> None:
    stage = trained()
    stage.do("all running gen=1 step=45 snap=40 snapgen=1")
    stage.do("report j.1000001 exited cause=signaled signal=9")
    assert job(stage).phase is not JobPhase.RUNNING
    stage.do(f"replicas 40 30 {DIFFERS} on=j.1000000", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True),)


def test_buffers_mark_nothing() -> None:
    stage = trained()
    stage.do(f"replicas 40 30 {DIFFERS} buffers=yes")
    assert windows(stage) == ()


def test_an_agreement_without_the_object_that_differed_ends_no_window() -> None:
    stage = trained()
    stage.do(f"replicas 40 30 {DIFFERS}", "replicas 60 60 uncovered=model", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True),)
    stage.do("replicas 70 70 uncovered=optimizer", "stored")
    assert windows(stage) == (Fault(31, 1, corrupt=True, last_step=69),)


def test_a_checkpoint_in_the_window_is_marked_in_etcd_before_it_is_shown_or_marked_on_the_storage() -> None:
    stage = trained()
    committed(stage, 100)
    committed(stage, 200)
    lines = stage.do(f"replicas 220 150 {DIFFERS}")
    assert any(line.startswith("Store") and "200-1" in line and "suspect=" in line for line in lines), lines
    assert not any(line.startswith(("Publish", "CheckpointChanged")) for line in lines), lines
    assert suspected(stage) == {"100-1": "", "200-1": ""}, "etcd does not hold it yet"
    lines = stage.do("stored", "stored")
    words = suspected(stage)["200-1"]
    assert "150" in words and suspected(stage)["100-1"] == ""
    assert not job(stage).checkpoints.records["200-1"].bad
    assert stage.etcd.checkpoints["j", "200-1"].suspect == words
    (order,) = [line for line in lines if line.startswith("Publish")]
    assert order == "Publish c 200-1 as suspect"
    assert stage.last[fx.Publish].record.bad == words, "agents of the version before write this mark"
    stage.feed(Published("c", stage.hosts["c"].incarnation, "j", "200-1", understood=True))
    assert "200-1" in job(stage).checkpoints.marked


def test_checkpoints_go_on_in_the_window_and_are_marked_until_it_is_over() -> None:
    stage = trained()
    stage.do(f"replicas 40 30 {DIFFERS}", "stored")
    told = [line for line in committed(stage, 100) if line.startswith("CheckpointChanged")]
    assert [line.split()[2] for line in told] == ["started:", "committed:", "suspect:"], told
    assert suspected(stage)["100-1"] and job(stage).checkpoints.records["100-1"].published
    assert "100-1" not in job(stage).checkpoints.marked, (
        "the answer about the manifest is none about the mark"
    )
    stage.do("replicas 200 200", "stored")
    committed(stage, 200)
    assert suspected(stage)["200-1"] == "" and suspected(stage)["100-1"]


def test_the_window_that_opens_while_a_checkpoint_is_on_its_way_marks_it() -> None:
    stage = trained()
    stage.do("all running gen=1 step=100 snap=100 snapgen=1")
    for line in ("snapshot 100", "parts", "persisted", "stored"):
        stage.do(line)
    stage.do(f"replicas 110 90 {DIFFERS}", "stored")
    stage.do("published", "stored", "stored")
    assert suspected(stage)["100-1"]
    assert stage.etcd.checkpoints["j", "100-1"].suspect and stage.etcd.checkpoints["j", "100-1"].published


def test_the_next_leader_knows_the_window_and_marks_what_its_predecessor_did_not() -> None:
    stage = trained()
    committed(stage, 100)
    stage.do(f"replicas 120 90 {DIFFERS}")
    (state,) = [each for each in stage.asked if isinstance(each, fx.StoreJob)]
    stage.etcd.put(state)  # and the write of the record was lost
    stage.do("crash", "elect", "hello a", "hello b", "hello c", "stored", "stored")
    assert windows(stage) == (Fault(91, 1, corrupt=True),)
    assert suspected(stage)["100-1"] and stage.etcd.checkpoints["j", "100-1"].suspect


def gone(stage: Play) -> Resume:
    """Every machine is lost, and the job is launched on others."""
    for node in "abc":
        stage.do(f"lose {node}")
    stage.do("wait 60")
    for node in "def":
        stage.do(f"hello {node}")
    stage.do("stored", "stored", "all starting", "all ready held=-1", "brought", "stored")
    found = job(stage).generation
    assert found is not None and found.number > 1
    return found.resume


def test_from_the_storage_an_older_checkpoint_is_preferred_and_that_is_said() -> None:
    stage = trained()
    committed(stage, 100)
    committed(stage, 200)
    stage.do(f"replicas 220 150 {DIFFERS}", "stored", "stored")
    resume = gone(stage)
    assert (resume.tier, resume.checkpoint) == (Tier.CHECKPOINT, "100-1")
    assert "200-1 is newer, and suspect" in resume.reason
    assert not suspect_states.suspected(job(stage), 200, 2), "computed again, from what was alike"


def test_if_nothing_else_is_left_a_suspect_checkpoint_is_used_and_that_is_said() -> None:
    stage = trained()
    committed(stage, 100)
    stage.do(f"replicas 120 90 {DIFFERS}", "stored", "stored")
    resume = gone(stage)
    assert (resume.tier, resume.checkpoint) == (Tier.CHECKPOINT, "100-1")
    assert "it is suspect" in resume.reason and "nothing else is left" in resume.reason
    assert suspect_states.suspected(job(stage), 110, 2), "it descends from that state"
    stage.do("all forming gen=2", "all running gen=2 step=100", "started", "replicas 120 120", "stored")
    assert windows(stage)[-1] == Fault(100, 2, corrupt=True, last_step=119)


def test_from_memory_the_job_goes_on_as_it_was_and_that_is_said() -> None:
    stage = trained()
    stage.do("all running gen=1 step=125 snap=120 snapgen=1", f"replicas 120 90 {DIFFERS}", "stored")
    stage.do("report j.1000001 exited cause=signaled signal=9", "stored")
    stage.do("report j.1000003 starting", "report j.1000003 ready held=-1")
    stage.do("report j.1000000 ready held=125 gen=1", "report j.1000002 ready held=125 gen=1", "stored")
    found = job(stage).generation
    assert found is not None and (found.resume.tier, found.resume.step) == (Tier.DONOR, 125)
    assert "it is suspect" in found.resume.reason
    assert windows(stage) == (Fault(91, 1, corrupt=True), Fault(125, 2, corrupt=True))


@pytest.mark.parametrize("moment", ["while it is stored", "while it forms", "while it trains"])
def test_a_report_that_comes_after_the_next_generation_was_chosen_marks_what_that_computes(
    moment: str,
) -> None:
    """It was on its way from a node that nobody heard for a while."""
    stage = trained()
    stage.do("all running gen=1 step=125 snap=120 snapgen=1")
    stage.do("report j.1000001 exited cause=signaled signal=9", "stored")
    stage.do("report j.1000003 starting", "report j.1000003 ready held=-1")
    stage.do("report j.1000000 ready held=125 gen=1", "report j.1000002 ready held=125 gen=1")
    stage.do(*["stored"] * (moment != "while it is stored"))
    stage.do(*["all forming gen=2", "all running gen=2 step=125", "started"] * (moment == "while it trains"))
    stage.do(f"replicas 120 90 {DIFFERS} gen=1 on=j.1000000", "stored", "stored")
    assert generation(stage) == 2
    assert windows(stage) == (Fault(91, 1, corrupt=True), Fault(125, 2, corrupt=True))
    assert suspect_states.suspected(job(stage), 130, 2)


def test_a_late_report_of_states_from_which_nothing_descends_marks_nothing_else() -> None:
    stage = trained()
    stage.do("all running gen=1 step=125 snap=120 snapgen=1")
    stage.do("report j.1000001 exited cause=signaled signal=9", "stored")
    stage.do("report j.1000003 starting", "report j.1000003 ready held=-1")
    stage.do("report j.1000000 ready held=125 gen=1", "report j.1000002 ready held=125 gen=1", "stored")
    stage.do("all forming gen=2", "all running gen=2 step=160", "started", "replicas 150 150")
    stage.do(f"replicas 140 130 {DIFFERS} gen=1 on=j.1000000", "stored")
    assert windows(stage) == (Fault(131, 1, corrupt=True),)
    stage.do(f"replicas 120 90 {DIFFERS} gen=1 on=j.1000000", "stored")
    assert windows(stage)[-1] == Fault(125, 2, corrupt=True, last_step=149), "they have agreed since"


def test_of_two_checkpoints_of_one_step_the_one_that_is_not_suspect_is_read() -> None:
    copies = [
        Copy(Tier.CHECKPOINT, 40, 0, checkpoint="40-1", origin=1, suspect=True),
        Copy(Tier.CHECKPOINT, 40, 0, checkpoint="40-2", origin=2),
    ]
    chosen = restore_point.choose(copies, 40)
    assert chosen is not None and chosen.resume.checkpoint == "40-2" and "suspect" not in chosen.resume.reason


def test_the_beginning_is_not_preferred_to_a_suspect_checkpoint() -> None:
    copies = [
        Copy(Tier.CHECKPOINT, 40, 0, checkpoint="40-1", origin=1, suspect=True),
        Copy(Tier.FRESH, 0, 0),
    ]
    chosen = restore_point.choose(copies, 40)
    assert chosen is not None and chosen.resume.checkpoint == "40-1"


def test_retention_keeps_the_newest_that_is_not_suspect() -> None:
    records = [
        CheckpointRecord("j", f"{step}-1", step, 1, "full", f"{step}-1", "d", 1, 1, (), True, suspect=why)
        for step, why in ((10, ""), (20, ""), (30, "differ"), (40, "differ"), (50, "differ"))
    ]
    assert retention.removable(records, keep_last=2, keep_every=0) == ("10-1", "30-1")


def test_any_order_of_reports_marks_every_step_that_may_be_corrupt() -> None:
    """Against a record of what was compared: a step between two that agreed is marked if a comparison
    between them found a difference."""
    rng = random.Random(11)
    for _ in range(25):
        stage, step, agreed, told = trained(), 0, 0, []
        differs = False
        truth = set[int]()
        for _ in range(rng.randrange(1, 9)):
            step += 10
            differs = rng.random() < (0.7 if differs else 0.4)
            if differs:
                told.append(f"replicas {step} {agreed} {DIFFERS}")
            else:
                if told and told[-1].endswith(DIFFERS):
                    truth |= set(range(agreed + 1, step))
                    told.append(f"replicas {step} {step}")
                agreed = step
        if differs:
            truth |= set(range(agreed + 1, step + 30))
        for line in told:
            stage.do(line)
        found = {each for each in range(step + 30) if suspect_states.suspected(job(stage), each, 1)}
        assert found == truth, told
        rng.shuffle(told)
        other = trained()
        for line in told:
            other.do(line)
        found = {each for each in range(step + 30) if suspect_states.suspected(job(other), each, 1)}
        assert truth <= found, told
