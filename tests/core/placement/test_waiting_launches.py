"""A process that its node cannot start now, and says why, is waited for without a deadline, and told."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

FULL = "[Errno 28] No space left on device"


def waits(stage: Play, member: str, why: str = FULL) -> list[fx.Effect]:
    """The node of a launched member says what is in the way."""
    node = stage.where[member]
    host = stage.hosts[node]
    told = host.members[member] = dataclasses.replace(host.members[member], no_room=why)
    host.seq += 1
    return list(stage.cluster.step(stage.now, ev.MemberReport(node, host.incarnation, host.seq, told)))


def beat(stage: Play) -> None:
    """Each node beats, and lists what it waits to start as well."""
    for node, host in stage.hosts.items():
        host.seq += 1
        members = tuple(host.members.values())
        stage.cluster.step(stage.now, ev.NodeBeat(node, host.incarnation, host.seq, 29500, members, ()))


def notes(effects: list[fx.Effect]) -> list[str]:
    return [each.reason for each in effects if isinstance(each, fx.Note) and each.kind == "launch_waits"]


def test_a_place_that_heals_is_waited_for_without_a_deadline() -> None:
    stage = running()
    stage.do("report j.1000001 exited cause=signaled signal=9", "report j.1000000 ready held=7 gen=1")
    assert notes(waits(stage, "j.1000002")) == [f"rank 1 cannot be started on b now: {FULL}"]
    assert notes(waits(stage, "j.1000002")) == [], "once"
    for _ in range(60):
        lines = stage.do("wait 10")
        assert not [line for line in lines if line.startswith(("Judged", "Kill"))]
        beat(stage)
    waits(stage, "j.1000002", "")
    lines = stage.do("report j.1000002 starting", "report j.1000002 ready held=-1")
    assert any("rank 0 lives and is clean" in line for line in lines)


def test_it_is_ill_health_of_the_job_until_it_starts() -> None:
    stage = running()
    stage.do("report j.1000001 exited cause=signaled signal=9", "report j.1000000 ready held=7 gen=1")
    waits(stage, "j.1000002")
    stage.do("wait 2")
    (found,) = (each for each in stage.cluster.state.findings.values() if each.kind == "rank_unstarted")
    assert (found.job, found.reason) == (
        "j",
        f"rank 1 cannot be started on b now, and the others wait for it: {FULL}",
    )
    waits(stage, "j.1000002", "")
    stage.do("report j.1000002 starting", "report j.1000002 ready held=-1", "wait 2")
    assert not [each for each in stage.cluster.state.findings.values() if each.kind == "rank_unstarted"]


def test_a_job_that_never_trained_ends_with_the_reason() -> None:
    stage = play("elect", "hello a", "submit nodes=1 nproc=1", "stored")
    effects = waits(stage, "j.1000000")
    (ended,) = [each.state for each in effects if isinstance(each, fx.StoreJob)]
    assert ended.phase is JobPhase.FAILED and FULL in ended.reason


def test_a_launcher_that_does_not_act_is_told_at_half_of_its_time() -> None:
    """It is stopped, say: nothing else would say for two minutes what the job waits for."""
    stage = running()
    stage.do("report j.1000001 exited cause=signaled signal=9", "report j.1000000 ready held=7 gen=1")

    def told() -> list[str]:
        found = [each for each in stage.cluster.state.findings.values() if each.kind == "rank_unstarted"]
        return [each.reason for each in found]

    limit_s = stage.cluster.state.settings.launch_timeout_s
    stage.do("report j.1000002 launched")
    for _ in range(int(limit_s / 20) - 1):
        stage.do("wait 10")
        beat(stage)
    assert told() == []
    stage.do("wait 12")
    (reason,) = told()
    assert reason == (
        "rank 1 cannot be started on b now, and the others wait for it: its launcher has not done it for "
        f"{limit_s / 2:.0f} s (is that process stopped, or the host too busy?) and is given up after "
        f"{limit_s:.0f} s"
    )
    stage.do("report j.1000002 starting", "report j.1000002 ready held=-1", "wait 2")
    assert told() == []
