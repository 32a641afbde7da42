"""A job whose state is not kept is degraded, says why, and is told of: checkpoints and snapshots in a row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from tests.core.checkpoint.test_saving import commit
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from controlplane.core.rows import JobRow
    from tests.transcripts.language import Play

FULL = "no space left on /data"
STORED = "submit nodes=1 nproc=2 storage=file:///c"


def row(stage: Play) -> JobRow:
    """The job as people see it, once the cluster's health has been looked at."""
    stage.do("live 2")
    (found,) = view.jobs(stage.cluster, stage.now)
    return found


def fail(stage: Play, *steps: int) -> list[str]:
    """A checkpoint of each step fails on its way to the storage."""
    return [
        line for step in steps for line in stage.do(f"snapshot {step}", f'failed "{FULL}" on=a', "live 10")
    ]


def alerts(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("Alert ")]


def test_checkpoints_that_fail_in_a_row_degrade_the_job_until_one_is_committed() -> None:
    stage = running(STORED, "a")
    assert (row(stage).health, row(stage).troubles) == ("healthy", ())
    commit(stage, 100)
    stage.do("live 3600")
    fail(stage, 200)
    since = "23:13:"
    (one,) = row(stage).troubles
    assert one.startswith(f"the newest checkpoint failed since {since}") and one.endswith(
        f" UTC: {FULL}; the newest durable one is step 100"
    )
    fail(stage, *range(300, 1800, 100))
    (many,) = row(stage).troubles
    assert row(stage).health == "degraded"
    assert many.startswith(f"16 checkpoints in a row failed since {since}"), many
    assert many.endswith(f" UTC: {FULL}; the newest durable one is step 100")
    assert view.health(stage.cluster, stage.now).reasons == (f"j: {many}",)
    commit(stage, 1800)
    assert (row(stage).health, row(stage).troubles) == ("healthy", ())


def test_administrators_are_told_after_the_third_and_when_it_is_over() -> None:
    stage = running(STORED, "a")
    assert alerts(fail(stage, 100, 200)) == []
    (told,) = alerts(fail(stage, 300, 400, 500))
    assert told.startswith("Alert checkpoints_failing j warning: 3 checkpoints in a row failed since ")
    assert told.endswith(f"UTC: {FULL}; there is no durable one")
    assert isinstance(stage.last[fx.Alert], fx.Alert) and stage.last[fx.Alert].job == "j"
    assert [line.split(":")[0] for line in alerts(commit(stage, 600) + stage.do("live 2"))] == [
        "Alert checkpoints_failing j resolved"
    ]


def test_a_checkpoint_that_a_lost_rank_ended_is_no_fault_of_the_storage() -> None:
    stage = running(STORED, "a")
    stage.do("snapshot 100", "report j.1000000 exited gen=1 step=120 cause=signaled signal=9")
    stage.do('failed "snapshot 100 of j.1000000 is no longer in its arena" on=a')
    assert (row(stage).health, row(stage).troubles) == ("healthy", ())


def test_a_rank_without_memory_for_its_snapshots_degrades_the_job_with_storage_or_without() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    stage.do("snapshot 10", "all running gen=1 step=12")
    host = stage.hosts["a"]
    status = host.members["j.1000001"]
    stage.feed(
        ev.MemberReport("a", 1, 10**6, dataclasses.replace(status, no_room="no arena: /dev/shm is full"))
    )
    (trouble,) = row(stage).troubles
    assert trouble.startswith("no snapshot since 22:13:20 UTC: rank 1 on a: no arena: /dev/shm is full")
    assert trouble.endswith("the newest one is step 10")
    stage.feed(ev.MemberReport("a", 1, 10**6 + 1, status))
    assert row(stage).health == "healthy"


@pytest.mark.parametrize(("step", "late"), [(100, False), (101, True)])
def test_a_checkpoint_that_never_ends_is_late_once_a_step_was_made_since(step: int, late: bool) -> None:
    stage = running(STORED, "a")
    commit(stage, 100)
    stage.do("snapshot 200", f"all running gen=1 step={step}", "live 3700")
    assert (row(stage).health == "degraded") == late
    if late:
        (trouble,) = row(stage).troubles
        assert trouble.startswith("no checkpoint was committed for 6")
        assert trouble.endswith("min: 200-1 is in flight (persist); the newest durable one is step 100")


def test_a_job_that_was_paused_for_long_is_not_late() -> None:
    stage = running(STORED, "a")
    commit(stage, 100)
    stage.feed(ev.PauseRequested("j", True, "lunch"))
    stage.do("all ready held=110", "live 7200", "stored")
    assert row(stage).phase == "paused" and row(stage).health == "healthy"


def test_the_second_storage_that_does_not_follow_is_said() -> None:
    stage = running(f"{STORED} mirror=file:///d commit_when=first", "a")
    for step in (100, 200, 300):
        commit(stage, step)
        stage.do("mirrored its quota is used up")
    (trouble,) = row(stage).troubles
    assert trouble.startswith("3 copies in a row failed since 22:13:")
    assert trouble.endswith("UTC: the second storage does not hold it: its quota is used up")
    commit(stage, 400)
    stage.do("mirrored")
    assert row(stage).health == "healthy"


def test_a_job_at_its_end_has_no_health() -> None:
    stage = running(STORED, "a")
    fail(stage, 100, 200, 300)
    stage.do("stop enough", "stored")
    assert (row(stage).health, row(stage).troubles) == ("", ())


def test_how_long_the_newest_checkpoint_took_is_remembered_beside_the_mean() -> None:
    stage = running(STORED, "a")
    costs = stage.cluster.state.jobs["j"].checkpoints.costs
    assert (costs.uploads, costs.newest_upload_s) == (0, 0.0)
    stage.do("snapshot 100", "live 10")
    commit(stage, 100)
    first_s = costs.newest_upload_s
    assert costs.uploads == 1 and costs.upload_s == first_s == 10.0
    stage.do("snapshot 200", "live 30")
    commit(stage, 200)
    assert costs.uploads == 2 and costs.newest_upload_s >= 30.0 > costs.upload_s > first_s
