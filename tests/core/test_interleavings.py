"""Interleavings that cost a job its life, or its honesty, before they were looked at."""

from __future__ import annotations

import dataclasses

from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause, Failure, Tier
from controlplane.wire.records import pack
from tests.core.test_cluster import play, running


def test_a_node_lost_while_the_first_generation_is_stored_does_not_hang_the_job() -> None:
    stage = play("elect", "hello a", "hello b", "hello c", "stored", "submit nodes=2 nproc=1")
    stage.do("lose b")
    stage.do("live 35 b")
    lines = stage.do("stored") + stage.do("stored")
    launched = [line.split()[1] for line in lines if line.startswith("Launch") and " under #2" in line]
    assert launched == ["a", "c"], lines


def test_a_snapshot_that_would_not_restore_is_not_chosen_again() -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    stage.do("snapshot 10")
    stage.do("report j.1000000 exited gen=1 step=12 snap=10 snapgen=1 cause=signaled signal=9")
    stage.do("report j.1000001 starting")
    stage.do("report j.1000001 ready held=-1")
    stage.do("stored")
    assert stage.etcd.generations["j"].resume.tier is Tier.MEMORY
    failure = Failure(Cause.STUCK, "state could not be put in place: slot 0 does not match its digest")
    stage.feed(ev.OrderFailed("a", 1, "j", "j.1000001", failure))
    stage.do("report j.1000001 exited cause=signaled signal=9")
    stage.do("report j.1000002 starting")
    lines = stage.do("report j.1000002 ready held=-1")
    jobs = [effect for effect in stage.asked if isinstance(effect, fx.StoreJob)]
    resumes = [effect.generation.resume.tier for effect in jobs if effect.generation]
    assert resumes == [Tier.FRESH], lines


def test_a_rank_of_an_old_generation_that_a_new_leader_finds_is_killed() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    stage.do("report j.1000000 ready held=4 gen=1")
    ghost = stage.hosts["a"].members["j.1000001"]
    stage.do("crash")
    stage.do("elect")
    stage.hosts["a"].members["j.5"] = dataclasses.replace(ghost, member="j.5")
    lines = stage.do("hello a") + stage.do("beat a")
    assert [line for line in lines if line.startswith("Kill a j.5")], lines


def test_a_failed_job_is_taken_up_again_although_a_node_of_its_former_life_is_lost() -> None:
    stage = running("submit nodes=1 nproc=1", "ab")
    stage.do("break a")
    stage.do("stop enough")
    stage.do("stored")
    stage.do("live 35 a")
    lines = stage.do("submit nodes=1 nproc=1") + stage.do("stored")
    assert [line for line in lines if line.startswith("Launch b")], lines


def test_the_ranks_of_a_node_that_returns_late_have_time_to_stop() -> None:
    stage = running()
    stage.do("break b")
    stage.do("live 35 b")
    stage.do("report j.1000000 ready held=4 gen=1")
    stage.do("live 35 b")
    lines = stage.do("hello b") + stage.do("beat b")
    assert [line for line in lines if line.startswith("Interrupt b")], lines
    assert not [line for line in lines if line.startswith("Kill")], lines
    lines = stage.do("live 31")
    assert [line for line in lines if line.startswith("Kill b j.1000001")], lines


def test_a_process_that_raised_and_does_not_end_is_killed() -> None:
    stage = running()
    lines = stage.do("report j.1000001 raised gen=1 step=4 cause=raised exception=ValueError")
    assert not [line for line in lines if line.startswith("Kill")], lines
    lines = stage.do("live 31")
    assert [line for line in lines if line.startswith("Kill b j.1000001")], lines


def test_steps_that_only_beats_told_of_count_as_lost() -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    stage.do("snapshot 10")
    stage.do("report j.1000000 running gen=1 step=10 snap=10 snapgen=1")
    stage.do("report j.1000000 running gen=1 step=17")
    stage.do("report j.1000000 exited gen=1 step=17 snap=10 snapgen=1 cause=signaled signal=9")
    stage.do("report j.1000001 starting")
    stage.do("report j.1000001 ready held=-1")
    stage.do("stored")
    assert [i.lost_steps for i in view.incidents(stage.cluster, 0.0)] == [7]


def test_a_name_conflict_may_be_tried_again() -> None:
    stage = play("elect", "hello a")
    effects = stage.cluster.step(1.0, ev.NodeJoined("a", 2, "other", "a", 8, 1))
    assert [effect.retry for effect in effects if isinstance(effect, fx.Refuse)] == [True]


def test_a_node_whose_clock_went_back_is_taken_once_its_former_life_is_lost() -> None:
    stage = play("elect", "hello a incarnation=9", "break a")
    early = stage.cluster.step(1.0, ev.NodeJoined("a", 2, "a-2", "a", 8, 1))
    assert [effect.retry for effect in early if isinstance(effect, fx.Refuse)] == [True]
    stage.do("wait 31")
    late = stage.cluster.step(32.0, ev.NodeJoined("a", 2, "a-2", "a", 8, 1))
    assert fx.Admit("a", 2, 1) in late


def test_a_traceback_of_any_length_fits_into_etcd() -> None:
    stage = running("submit nodes=1 nproc=1 restarts=0", "a")
    text = "\N{SNOWMAN}" * 64_000 + "ValueError: at last"
    stage.do(f'report j.1000000 raised gen=1 step=4 cause=raised exception=ValueError traceback="{text}"')
    states = [effect.state for effect in stage.asked if isinstance(effect, fx.StoreJob)]
    ends = [state for state in states if state.phase == "failed"]
    assert ends[-1].reason.endswith("ValueError: at last")
    assert len(pack(ends[-1])) < 128 * 1024
