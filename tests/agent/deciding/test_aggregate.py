"""What an agent decides, told as stories: events in, effects out, no process and no clock."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from agent.deciding import effects as fx
from agent.deciding import events as ev
from agent.deciding.aggregate import AgentCore
from agent.deciding.judging import Reading, Tick
from agent.deciding.member import recalled
from agent.deciding.node_state import AgentFacts
from agent.deciding.outbox import RESEND_S, Outbox
from agent.deciding.progress import HangLimits, PageReading
from controlplane.core.records import effects as orders
from controlplane.core.records import events
from controlplane.core.records.evidence import ReplayPass
from controlplane.core.records.model import (
    NO_STEP,
    Cause,
    Generation,
    JobSpec,
    MemberPhase,
    Placement,
    Resume,
    Role,
    Standing,
    Tier,
)
from holdfast.ipc.messages import launcher as msg
from holdfast.ipc.messages.fields import BadMessage
from holdfast.ipc.messages.rank import Hello, from_rank

if TYPE_CHECKING:
    from agent.deciding.member import LocalMember

FACTS = AgentFacts("n0", 7, 5.0, 10.0, 30.0, HangLimits(5.0, 3.0, 3.0), ("c0",))
SPEC = JobSpec(job="j", argv=("train.py",), cwd="/", nnodes_min=1, nnodes_max=1)
LAUNCH = orders.Launch("n0", "j.1", SPEC, Role.RANK, rank=0, local_rank=0)


class Stage:
    """An agent's core, and what it may look at."""

    def __init__(self) -> None:
        self.core = AgentCore(0.0, FACTS, self)
        self.now = 0.0
        self.there = {"j.1"}
        self.slots: list[tuple[int, int]] = []
        self.page = NO_STEP

    def step(self, member: LocalMember) -> int:
        return self.page

    def held(self, member: LocalMember) -> list[tuple[int, int]]:
        return self.slots

    def wants(self, member: str) -> bool:
        return False

    def wrote(self, member: str) -> bool:
        return True

    def connected(self, member: str) -> bool:
        return member in self.there

    def tell(self, event: ev.Event, after: float = 0.1) -> list[fx.Effect]:
        self.now += after
        return self.core.step(self.now, event)

    def order(self, order: Any) -> list[fx.Effect]:
        return self.tell(ev.Ordered(order, "j/1"))

    def said(self, op: str, **fields: Any) -> list[fx.Effect]:
        return self.tell(ev.RankReported("j.1", from_rank({"op": op, **fields})))

    def greeted(self, phase: str = "starting", generation: int = 0) -> list[fx.Effect]:
        hello = {"op": "hello", "phase": phase, "generation": generation, "step": 4, "held_step": -1}
        return self.tell(ev.Greeted("j.1", Hello.decode(hello)))

    def passes(self, seconds: int, beats: bool = False) -> list[fx.Effect]:
        done = []
        for _ in range(seconds):
            done += self.said("beat", step=4) if beats else self.tell(Tick(), 1.0)
            done += self.tell(Tick(), 0.9) if beats else []
        return done

    @property
    def member(self) -> LocalMember:
        found = self.core.members.get("j.1")
        assert found is not None
        return found


def generation(number: int, member: str = "j.1", world_size: int = 1) -> Generation:
    seats = tuple(Placement(rank, f"{member[:-1]}{rank + 1}", "n0", rank) for rank in range(world_size))
    return Generation("j", number, 1, seats, "h:1", "h:2", Resume(Tier.FRESH, 0, 0), "a test", 0)


def running(number: int = 1) -> Stage:
    stage = Stage()
    stage.order(LAUNCH)
    stage.tell(ev.LauncherReported(msg.MemberWarm("j.1", 5)))
    stage.tell(ev.LauncherReported(msg.MemberRunning("j.1", 5)))
    stage.greeted()
    stage.order(orders.Form("n0", generation(number)))
    stage.said("forming", generation=number)
    stage.said("running", generation=number, step=4)
    return stage


def kinds(effects: list[fx.Effect]) -> list[type[Any]]:
    return [type(effect) for effect in effects if not isinstance(effect, fx.Note | fx.Count)]


def told(effects: list[fx.Effect], kind: type[Any]) -> list[Any]:
    return [
        effect.event for effect in effects if isinstance(effect, fx.SendEvent) and type(effect.event) is kind
    ]


def frames(effects: list[fx.Effect]) -> list[dict[str, Any]]:
    return [effect.message.encode() for effect in effects if isinstance(effect, fx.Push)]


def test_an_order_that_has_its_effect_already_does_nothing() -> None:
    stage = Stage()
    assert kinds(stage.order(LAUNCH)) == [fx.Spawn, fx.Keep, fx.SendEvent, fx.Run, fx.Keep]
    assert kinds(stage.order(LAUNCH)) == []
    stage = running()
    assert kinds(stage.order(orders.Form("n0", generation(1)))) == []
    broken = orders.Interrupt("n0", "j", 1, "a peer died")
    assert [frame["op"] for frame in frames(stage.order(broken))] == ["interrupt"]
    assert kinds(stage.order(broken)) == []


def test_a_warm_member_runs_once_it_is_ordered_to() -> None:
    stage = Stage()
    assert fx.Run not in kinds(stage.order(dataclasses.replace(LAUNCH, warm_only=True)))
    assert fx.Run in kinds(stage.order(LAUNCH))


def test_a_launch_that_cannot_be_is_told_and_leaves_nothing_behind() -> None:
    stage = Stage()
    stage.order(LAUNCH)
    (failed,) = told(stage.tell(ev.LaunchFailed("j.1", "no space", spawned=False)), events.OrderFailed)
    assert (failed.failure.cause, failed.failure.message) == (Cause.LAUNCH_FAILED, "no space")
    assert len(stage.core.members) == 0
    (failed,) = told(stage.order(dataclasses.replace(LAUNCH, member="../x")), events.OrderFailed)
    assert "'../x' is not allowed" in failed.failure.message


def test_a_launch_that_may_heal_is_tried_again_with_growing_pauses_and_told() -> None:
    stage = Stage()
    stage.order(LAUNCH)
    pauses = []
    for _ in range(7):
        effects = stage.tell(ev.LaunchFailed("j.1", "no space", spawned=False, heals=True))
        assert not told(effects, events.OrderFailed)
        assert [report.status.no_room for report in told(effects, events.MemberReport)] == ["no space"]
        pauses.append(stage.core.next_deadline() - stage.now)
        stage.now = stage.core.next_deadline()
        assert kinds(stage.tell(Tick()))[:2] == [fx.Spawn, fx.Run], "both, once more"
    assert pauses == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0])
    assert stage.member.status.no_room == ""


def test_an_order_about_a_dead_member_is_answered_with_its_end() -> None:
    stage = running()
    stage.slots = [(1, 3)]
    end = msg.MemberExited("j.1", 5, None, 9, 0)
    (report,) = told(stage.tell(ev.LauncherReported(end, 10**9)), events.MemberReport)
    assert report.status.phase is MemberPhase.EXITED and report.status.snapshot_step == 3
    assert (report.status.failure.signal, report.status.failure.age_s) == (9, 1.0)
    for order in (LAUNCH, orders.Form("n0", generation(2)), orders.Kill("n0", "j", "j.1", "old")):
        (replay,) = told(stage.order(order), events.MemberReport)
        assert replay.status == report.status


def test_a_rank_that_comes_back_hears_the_level_it_missed() -> None:
    stage = running()
    stage.there.clear()
    stage.order(orders.Interrupt("n0", "j", 1, "a peer died"))
    assert [frame["op"] for frame in frames(stage.greeted("running", 1))] == ["interrupt"]
    effects = stage.order(orders.Form("n0", generation(2)))
    effects = stage.greeted("ready", 1)
    assert [effect.generation.number for effect in effects if isinstance(effect, fx.Form)] == [2]
    assert not frames(stage.greeted("forming", 2)), "it forms already"


def test_the_next_agent_adopts_what_the_launcher_has_and_ends_what_it_has_not() -> None:
    before = running(3)
    after = Stage()
    status = before.member.status
    gone = dataclasses.replace(status, member="j.2")
    after.core.recall([recalled(status, SPEC), recalled(gone, SPEC)])
    hello = msg.LauncherHello(1, "l", (msg.ProcessEntry("j.1", 5, "running"),))
    reports = told(after.tell(ev.LauncherReported(hello)), events.MemberReport)
    assert [(each.status.member, each.status.phase) for each in reports] == [
        ("j.1", MemberPhase.RUNNING),
        ("j.2", MemberPhase.EXITED),
    ]
    assert "how it ended is unknown" in reports[1].status.failure.message
    assert (after.member.formed, after.member.ordered_to_run) == (3, True)
    assert [type(effect) for effect in after.passes(6)].count(fx.TakeStacks) == 1, "it is watched from now on"


def test_a_shard_is_unknown_once_the_layout_is_another() -> None:
    stage = running()
    stage.said("tracked", bytes=10, shard="left")
    stage.order(orders.Form("n0", generation(2, world_size=2)))
    stage.said("forming", generation=2)
    assert stage.member.status.shard == ""


def test_a_silent_rank_is_killed_and_named_silent() -> None:
    stage = running()
    assert not [e for e in stage.passes(20, beats=True) if isinstance(e, fx.TakeStacks)]
    (asked,) = [effect for effect in stage.passes(7) if isinstance(effect, fx.TakeStacks)]
    nothing = Standing("j.1", 0, 4, "", 0.0, False)
    effects = stage.tell(ev.StacksReported("j.1", asked.age_s, asked.last_message_at, nothing))
    assert [e.command for e in effects if isinstance(e, fx.Command)] == [msg.SignalCommand("j.1", 9)]
    (report,) = told(stage.passes(3), events.MemberReport)
    assert report.status.phase is MemberPhase.EXITED, "SIGKILL had no effect: it is dead all the same"
    assert report.status.failure.cause is Cause.SILENT


def test_a_rank_that_still_writes_its_stacks_is_asked_about_first() -> None:
    stage = running()
    (asked,) = [effect for effect in stage.passes(7) if isinstance(effect, fx.TakeStacks)]
    stuck = Standing("j.1", 0, 4, "forward", 6.0, False, frames=("spin (x.py:1)",))
    (report,) = told(
        stage.tell(ev.StacksReported("j.1", 6.0, asked.last_message_at, stuck)), events.MemberReport
    )
    assert report.status.stalled_s == 6.0
    (report,) = told(stage.said("beat", step=5), events.MemberReport)
    assert report.status.stalled_s == 0.0, "it speaks again"
    assert not [e for e in stage.passes(4, beats=True) if isinstance(e, fx.Command)]


def test_who_makes_no_progress_is_told_and_who_does_again_too() -> None:
    stage = running()

    def look(since: float) -> list[Any]:
        sight = PageReading("j.1", "j", "step", since, (("step", 0.3),))
        return told(stage.tell(ev.Looked({"j.1": sight}), 0.5), events.MemberReport)

    assert not look(0.0)
    seen = [report.status.stalled_s for _ in range(8) for report in look(1.0)]
    assert len(seen) == 1 and seen[0] >= 3.0
    (report,) = look(stage.now)
    assert report.status.stalled_s == 0.0


def test_a_rank_that_speaks_again_and_does_not_get_on_is_told_again() -> None:
    stage = running()

    def look() -> list[Any]:
        sight = PageReading("j.1", "j", "step", 1.0, (("step", 0.3),))
        return told(stage.tell(ev.Looked({"j.1": sight}), 0.5), events.MemberReport)

    assert [report.status.stalled_s > 0 for _ in range(8) for report in look()] == [True]
    (asked,) = [effect for effect in stage.passes(7) if isinstance(effect, fx.TakeStacks)]
    stuck = Standing("j.1", 0, 4, "forward", 6.0, False, frames=("spin (x.py:1)",))
    stage.tell(ev.StacksReported("j.1", 6.0, asked.last_message_at, stuck))
    assert not look(), "its silence is told already"
    (report,) = told(stage.said("beat", step=4), events.MemberReport)
    assert report.status.stalled_s == 0.0
    (report,) = look()
    assert report.status.stalled_s > 0


def test_ranks_that_hear_no_coordinator_for_long_are_parked_once() -> None:
    stage = running(4)
    stage.tell(ev.Linked(True))
    assert not [f for _ in range(29) for f in frames(stage.tell(ev.Linked(False), 1.0))]
    parked = [f for _ in range(9) for f in frames(stage.tell(ev.Linked(False), 1.0))]
    assert [(frame["op"], frame["generation"]) for frame in parked] == [("interrupt", 4)]
    stage = running(4)
    for _ in range(99):
        stage.tell(ev.NotLeading("c0"))
        assert not frames(stage.tell(ev.Linked(False), 1.0)), "it is down: nothing was given away"


def test_the_end_of_a_job_leaves_nothing() -> None:
    stage = running()
    over = orders.Complete("n0", "j", True, "every rank finished")
    assert [frame["op"] for frame in frames(stage.order(over))] == ["complete"]
    kills = [e for e in stage.passes(6, beats=True) if isinstance(e, fx.Command)]
    assert len(kills) == 1, "it had not finished, and did not end by itself"
    end = msg.MemberExited("j.1", 5, None, 9, 0)
    assert kinds(stage.tell(ev.LauncherReported(end)))[-1] is fx.Dismiss
    assert len(stage.core.members) == 0


def test_what_a_dead_member_left_goes_when_a_newer_step_is_released() -> None:
    stage = running()
    stage.slots = [(1, 3)]
    stage.tell(ev.LauncherLost())
    assert kinds(stage.order(orders.Release("n0", "j", 3))) == []
    assert kinds(stage.order(orders.Release("n0", "j", 4))) == [fx.Dismiss]


def test_garbage_of_a_rank_changes_nothing() -> None:
    stage = running()
    before = stage.member.status
    for frame in ({"op": "ready"}, {"op": "tracked", "bytes": 1, "shard": "a b"}, {"op": "nonsense"}):
        with pytest.raises(BadMessage):
            stage.tell(ev.RankReported("j.1", from_rank(frame)))
    assert stage.member.status == before
    assert stage.tell(Tick()) == []


def test_a_comparison_of_replicas_goes_to_the_leader_as_it_is() -> None:
    stage = running()
    frame = {"op": "replicas", "generation": 1, "step": 8, "agreed_step": 4, "more": 0, "buffers": False}
    frame |= {"ranks": [0, 1, 2], "odd": [1], "tensors": ["model.w"], "digests": ["rank 1: f"]}
    (event,) = told(stage.tell(ev.RankReported("j.1", from_rank(frame))), events.ReplicasReported)
    assert (event.member, event.step, event.agreed_step, event.odd_ranks) == ("j.1", 8, 4, (1,))
    assert (event.ranks, event.tensors, event.digests) == ((0, 1, 2), ("model.w",), ("rank 1: f",))
    assert (event.replay, event.passes) == ("", ())
    again = {"kind": "again", "shift": 0, "common": "c", "ranks": [1], "digests": ["f"]}
    frame |= {"replay": "done", "passes": [again], "gradients": "differ"}
    (event,) = told(stage.tell(ev.RankReported("j.1", from_rank(frame))), events.ReplicasReported)
    assert event.gradients == "differ"
    assert (event.replay, event.passes) == ("done", (ReplayPass("again", 0, "c", (1,), ("f",)),))


def test_a_bad_device_is_told_and_told_again_to_the_next_leader() -> None:
    stage, effects = Stage(), []
    for _ in range(12):
        effects += stage.tell(Reading("gpu0", False, "xid 79"), 1.0)
    (report,) = told(effects, events.DeviceReport)
    assert (report.node, report.incarnation, report.device, report.healthy) == ("n0", 7, "gpu0", False)
    assert stage.core.still() == [report]


def test_one_time_messages_outlive_a_stream_and_older_leaders_are_not_followed() -> None:
    outbox = Outbox()
    once = events.PeersLooked("n0", 7, 1)
    later = dataclasses.replace(once, round=2)
    beat = events.NodeBeat("n0", 7, 0, 1)
    assert outbox.follow(3) and not outbox.follow(2) and outbox.follow(3)
    assert [outbox.record_sent(0.0, beat).seq, outbox.record_sent(0.0, beat).seq] == [1, 2]
    outbox.record_sent(0.0, once)
    outbox.keep(later)
    outbox.keep(beat)
    assert outbox.replay(1.0, [later]) == [once, later], "levels are in the next hello"
    outbox.record_sent(1.0, once)
    assert outbox.replay(1.0 + RESEND_S, [later]) == [later], "it has long arrived"
    for passed_s in (1.0, 2.0 * RESEND_S):
        outbox.record_sent(2.0, once)
        outbox.keep(once)  # it never left
        assert outbox.replay(2.0 + passed_s, []) == [once]


def test_a_node_that_opens_slowly_parks_nobody_before_it_has_called_anybody() -> None:
    stage = running()
    stage.now += 60.0  # memory was mapped, a launcher waited for
    assert not frames(stage.tell(ev.Linked(False)))
    assert not [f for _ in range(29) for f in frames(stage.tell(ev.Linked(False), 1.0))]
    assert [f for _ in range(9) for f in frames(stage.tell(ev.Linked(False), 1.0))]


def test_a_store_that_no_beat_could_carry_is_refused_at_the_hello() -> None:
    stage = Stage()
    stage.order(LAUNCH)
    hello = {"op": "hello", "phase": "starting", "generation": 0, "step": 4, "held_step": -1}
    with pytest.raises(BadMessage, match="store of 1000000 characters"):
        stage.tell(ev.Greeted("j.1", Hello.decode({**hello, "store": "x" * 1_000_000})))
    assert stage.member.status.store == ""
    stage.tell(ev.Greeted("j.1", Hello.decode({**hello, "store": "h:1"})))
    assert stage.member.status.store == "h:1"


@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize("by_beats", [True, False])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_leader_of_many_nodes_hears_of_offered_snapshots_by_heartbeats_and_rank_0(
    rank: int, by_beats: bool, offered: bool
) -> None:
    stage = running()
    stage.core.members.update(stage.member, rank=rank)
    stage.tell(ev.Linked(True, by_beats))
    made = {"generation": 1, "step": 8, "stall_s": 0.1, "offered": offered}
    reported = told(stage.said("snapshot", **made), events.SnapshotReady)
    assert len(reported) == (0 if by_beats and offered and rank else 1)
    (status,) = stage.core.members.statuses()
    assert (status.snapshot_step, status.offers) == (8, offered), "a heartbeat has it in any case"
    assert told(stage.said("snapshot", **made | {"spacing": "every step"}), events.SnapshotReady)
