"""What people are told of a job is true when they read it: reasons, counts, who came, when it began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from tests.core.elasticity.test_pausing import at_rest, resumed
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from controlplane.core.rows import JobRow
    from tests.transcripts.language import Play


def row(stage: Play) -> JobRow:
    (found,) = view.jobs(stage.cluster, stage.now)
    return found


def kill_and_recover(stage: Play, dead: str = "j.1000000", new: str = "j.1000002") -> None:
    """A rank dies, another process comes for it, and all train on."""
    stage.do(f"report {dead} exited gen=1 step=9 cause=signaled signal=9")
    stage.do("stored", f"report {new} starting", f"report {new} ready held=-1")
    stage.do("report j.1000001 ready held=9 gen=1", "stored", "all forming gen=2")
    stage.do("all running gen=2 step=9", "started", "stored")


def test_a_job_that_trains_gives_no_reason_of_an_incident_that_is_over() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    kill_and_recover(stage)
    assert row(stage).phase == "running"
    assert row(stage).reason == "every rank trains; incident 1 (killed) is over"
    stage.do("live 60")
    assert row(stage).reason == "every rank trains; incident 1 (killed) is over"


def test_the_next_leader_does_not_take_up_a_reason_that_was_over() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    kill_and_recover(stage)
    stage.do("crash", "elect", "hello a", "live 5")
    assert row(stage).phase == "running"
    assert "no spare is ready" not in row(stage).reason
    assert row(stage).reason.endswith("every rank trains; incident 1 (killed) is over")


def test_who_came_is_known_once_a_process_has_come() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    kill_and_recover(stage)
    (incident,) = view.incidents(stage.cluster, stage.now)
    assert incident.outcome == "recovered"
    assert incident.plan.add == ("j.1000002",)


def test_a_pause_is_no_incident() -> None:
    stage = at_rest()
    assert row(stage).incidents == 0
    resumed(stage)
    assert row(stage).incidents == 0
    assert stage.cluster.state.begun == []
    stage.do("stored", "crash", "elect", "hello a", "hello b")
    assert row(stage).incidents == 0
    assert stage.cluster.state.begun == []


def test_a_failure_that_overtakes_a_pause_is_one() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    stage.feed(ev.PauseRequested("j", True, "lunch"))
    stage.do("report j.1000000 exited gen=1 step=9 cause=signaled signal=9")
    assert row(stage).incidents == 1


def test_a_job_that_people_end_is_stopped_and_its_incident_too() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    stage.do("report j.1000000 exited gen=1 step=9 cause=signaled signal=9", "stop enough", "stored")
    assert (row(stage).phase, row(stage).reason) == ("stopped", "enough")
    (incident,) = view.incidents(stage.cluster, stage.now)
    assert incident.outcome == "stopped"
    assert isinstance(stage.last[fx.Judged], fx.Judged) and stage.last[fx.Judged].verdict.whose == "cluster"


def test_whose_doing_a_failure_is() -> None:
    stage = running("submit nodes=1 nproc=2 restarts=0", "a")
    stage.do("report j.1000000 raised gen=1 step=4 cause=raised exception=ValueError")
    assert stage.last[fx.Judged].verdict.whose == "script"
