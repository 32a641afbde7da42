"""What an agent says is held against what sits there: nobody undoes a job by words about others' ranks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core import view
from controlplane.core.cluster import HANDLERS
from controlplane.core.membership.plausible import REFUSED, ROWS
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import (
    Cause,
    Collective,
    Failure,
    JobPhase,
    MemberPhase,
    MemberStatus,
    Role,
    Standing,
)
from controlplane.wire.shape import shapes_of
from tests.core.test_cluster import play, running
from tests.wire.test_codec import FROM_AGENTS, sample

if TYPE_CHECKING:
    from tests.transcripts.language import Play

STORED = "submit nodes=2 nproc=1 storage=file:///c"
NAMES = {
    "member": ("member", "source"),
    "generation": ("generation", "snapshot_generation", "former_generation", "held_generation", "versions"),
    "step": (
        "step",
        "snapshot_step",
        "snapshot_before",
        "former_step",
        "held_step",
        "ended_step",
        "versions",
    ),
}
"""What of a record's fields names one of the three; a node is named by every word."""


def _named(record: type) -> set[str]:
    """Which of them a word names, however deep."""
    found = set()
    for shape in shapes_of(record):
        found |= {what for what, names in NAMES.items() if shape.name in names}
        found |= _named(shape.kind) if shape.is_record else set()
    return found


def _trained(*more: str) -> Play:
    """A job on a and b that has six checkpoints; c has none of its ranks."""
    stage = running(STORED, "abc")
    for step in range(100, 700, 100):
        stage.do(
            f"all running gen=1 step={step}", f"snapshot {step}", "parts", "sealed", "stored", "published"
        )
        stage.do("stored")
    stage.do(*more)
    return stage


def _as_it_is(stage: Play) -> Any:
    """All that people are shown, and what would be done next."""
    cluster, job = stage.cluster, stage.cluster.state.jobs["j"]
    shown = (
        view.jobs(cluster, stage.now),
        view.ranks(cluster, stage.now),
        view.checkpoints(cluster, stage.now),
    )
    book = (
        job.numbers.faults,
        job.restore.known_step,
        job.restore.newest_step,
        job.snapshots.voided,
        job.elastic,
        sorted(job.members),
    )
    return shown, book, {name: dataclasses.replace(each) for name, each in job.checkpoints.savings.items()}


def _said(stage: Play, event: Any) -> list[Any]:
    effects = stage.cluster.step(stage.now, event)
    stage.cluster.check()
    return effects


def test_every_word_of_an_agent_has_its_row() -> None:
    assert set(ROWS) == {*FROM_AGENTS, ev.NodeJoined}
    assert set(ROWS) <= set(HANDLERS)


@pytest.mark.parametrize("word", ROWS)
def test_a_row_says_how_each_thing_that_its_word_names_is_checked(word: type) -> None:
    row, named = ROWS[word], _named(word)
    for what in NAMES:
        assert (getattr(row, what) is not None) or what not in named, (
            f"{word.__name__} names a {what}: say in core/membership/plausible.py how it is checked"
        )
    for by in (row.node, row.member, row.generation, row.step):
        assert by is None or by.how


def test_a_node_without_a_rank_of_the_job_undoes_nothing() -> None:
    stage = _trained("all running gen=1 step=601")
    assert len([r for r in stage.cluster.state.jobs["j"].checkpoints.records.values() if r.published]) == 6
    before = _as_it_is(stage)
    effects = _said(stage, ev.UserFault("c", 1, "j", "nobody", 1, 1, "user", "so there"))
    assert _as_it_is(stage) == before
    (told,) = effects
    assert isinstance(told, fx.Note) and (told.kind, told.subject) == (REFUSED, "c")
    assert "nobody of job j is unknown here" in told.reason
    assert stage.cluster.counts[REFUSED] == 1


MEMBER, OTHER = "j.1000000", "j.1000001"  # on a and b
WRONG = [
    ev.UserFault("c", 1, "j", MEMBER, 1, 601, "nan", "of another's rank"),
    ev.UserFault("a", 1, "j", OTHER, 1, 601, "nan", "of the other node's rank"),
    ev.UserFault("a", 1, "j", MEMBER, 1, -1, "nan", "before the generation began"),
    ev.UserFault("a", 1, "j", MEMBER, 2, 601, "nan", "in a generation to come"),
    ev.SnapshotReady("c", 1, MEMBER, "j", 1, 700),
    ev.SnapshotReady("a", 1, MEMBER, "j", 9, 700),
    ev.SnapshotReady("a", 1, MEMBER, "j", 1, -1),
    ev.MemberStarted("b", 1, MEMBER, "j", 1, 1, 0.0, 0.0, 0.0),
    ev.MemberStarted("a", 1, MEMBER, "j", 1, -1, 0.0, 0.0, 0.0),
    ev.CheckpointAsked("c", 1, "j", MEMBER, 1, 650, "r1"),
    ev.CheckpointAsked("a", 1, "j", MEMBER, 1 << 62, 650, "r1"),
    ev.MemberReport("a", 1, 99, MemberStatus(MEMBER, "j", MemberPhase.RUNNING, generation=1 << 62)),
    ev.MemberReport("a", 1, 99, MemberStatus(MEMBER, "j", MemberPhase.READY, held_generation=7)),
    ev.MemberReport(
        "a", 1, 99, MemberStatus(MEMBER, "j", MemberPhase.READY, snapshot_step=9, snapshot_generation=2)
    ),
    ev.MemberReport("c", 1, 99, MemberStatus(f"j.{1 << 60}", "j", MemberPhase.EXITED)),
    ev.MemberReport("c", 1, 99, MemberStatus("j.1000002", "j", MemberPhase.EXITED)),
]


@pytest.mark.parametrize("word", WRONG, ids=lambda word: type(word).__name__)
def test_what_does_not_fit_changes_nothing_and_is_told(word: Any) -> None:
    stage = _trained("all running gen=1 step=601")
    before = _as_it_is(stage)
    effects = _said(stage, word)
    assert _as_it_is(stage) == before
    assert [(each.kind, each.subject) for each in effects if isinstance(each, fx.Note)] == [
        (REFUSED, word.node)
    ]
    assert len(effects) == 1


@pytest.mark.parametrize("word", [word for word in ROWS if word is not ev.NodeJoined])
def test_no_word_of_a_node_without_a_rank_says_anything_of_the_job(word: type) -> None:
    """Every word there is, with the names and numbers of the job as it stands."""
    stage = _trained("all running gen=1 step=701", "snapshot 700")  # a checkpoint is in flight
    before = _as_it_is(stage)
    truth: dict[str, Any] = {
        "node": "c", "incarnation": 1, "job": "j", "member": MEMBER, "generation": 1, "step": 700,
        "checkpoint": "700-1", "reason": "", "seq": 50, "corrupt": True, "rank": 0, "removed": ("100-1",),
        "id": "700-1", "members": (), "copies": (), "ranks": (), "found": (),
    }  # fmt: skip
    _said(stage, _filled(word, truth))
    assert _as_it_is(stage) == before


def _filled(record: type, truth: dict[str, Any]) -> Any:
    made = sample(record)
    known = {shape.name: truth[shape.name] for shape in shapes_of(record) if shape.name in truth}
    inner = {s.name: _filled(s.kind, truth) for s in shapes_of(record) if s.is_record and not s.many}
    return dataclasses.replace(made, **known, **{n: v for n, v in inner.items() if n not in known})


def test_errands_are_answered_by_who_was_asked() -> None:
    """A checkpoint on its way: nobody else fails it, and nobody else says that it is there."""
    stage = _trained("all running gen=1 step=701", "snapshot 700", "parts")
    job = stage.cluster.state.jobs["j"]
    saving = job.checkpoints.savings["700-1"]
    assert saving.node == "a"
    for word in (
        ev.Persisted("c", 1, dataclasses.replace(sample(ev.Persisted).record, job="j", id="700-1")),
        ev.PersistFailed("c", 1, "j", "700-1", "so there"),
        ev.Published("c", 1, "j", "700-1"),
    ):
        _said(stage, word)
        assert job.checkpoints.savings == {"700-1": saving}
    stage.do("sealed", "stored")
    _said(stage, ev.Published("c", 1, "j", "700-1", "so there"))
    assert "700-1" in job.checkpoints.savings and not job.checkpoints.records["700-1"].bad
    stage.do("published", "stored")
    assert job.checkpoints.records["700-1"].published


def test_whoever_was_asked_before_may_still_answer() -> None:
    stage = _trained("all running gen=1 step=701", "snapshot 700", "parts", "sealed", "stored", "break a")
    stage.do("wait 6")
    job = stage.cluster.state.jobs["j"]
    assert job.checkpoints.savings["700-1"].node != "a"
    stage.do("hello a")
    stage.feed(ev.Published("a", 1, "j", "700-1"))
    stage.do("stored")
    assert job.checkpoints.records["700-1"].published


def test_an_invented_member_says_nothing_of_the_job() -> None:
    """A job that knows nothing of Holdfast: one invented spare would make it wait for a barrier."""
    stage = play("elect", "hello a", "hello b", "submit nodes=1 nproc=1", "stored", "all starting")
    job = stage.cluster.state.jobs["j"]
    known, newest = job.restore.known_step, job.restore.newest_step
    spare = MemberStatus("j.7", "j", MemberPhase.READY, elastic=True, role=Role.SPARE, step=10**9)
    _said(stage, ev.MemberReport("b", 1, 5, dataclasses.replace(spare, held_step=10**9)))
    assert (job.elastic, job.barrier, job.restore.known_step, job.restore.newest_step) == (
        False,
        False,
        known,
        newest,
    )


def test_stacks_tell_of_the_ranks_that_live_there_only() -> None:
    """Who says that another's rank hangs would have it killed."""
    stage = running("submit nodes=2 nproc=1", "abc")
    stage.do("stalled 0", f"wait {stage.cluster.settings.stall_settle_s}")
    job = stage.cluster.state.jobs["j"]
    assert job.recovery.hang is not None and job.recovery.hang.round == 1
    stood = Standing(OTHER, 1, 0, "forward", 99.0, True, (Collective("g", 1),))
    words = [
        ev.StacksCollected("c", 1, "j", 1, 1, ()),
        ev.StacksCollected("a", 1, "j", 1, 1, (stood,)),
        ev.StacksCollected("a", 1, "j", 1, 1, (dataclasses.replace(stood, member=MEMBER),)),
        ev.StacksCollected("a", 1, "j", 5, 1, (dataclasses.replace(stood, member=MEMBER, rank=0),)),
    ]
    for count, word in enumerate(words, 1):
        _said(stage, word)
        assert job.recovery.hang.answers == {} and stage.cluster.counts[REFUSED] == count


def test_a_member_of_another_life_of_the_job_is_ended_by_its_own_node() -> None:
    """etcd was lost and the job submitted anew, while ranks of the life before still train."""
    stage = play("elect", "hello a", "submit nodes=1 nproc=1", "stored")
    old = MemberStatus("j.5000000", "j", MemberPhase.RUNNING, True, generation=17, rank=0, step=300)
    effects = _said(stage, ev.MemberReport("a", 1, 9, old))
    (kill,) = [each for each in effects if isinstance(each, fx.Kill)]
    assert (kill.node, kill.member) == ("a", "j.5000000")
    assert "j.5000000" not in stage.cluster.state.jobs["j"].members


def test_words_that_are_late_are_stale_and_no_more() -> None:
    stage = _trained()
    died = MemberStatus(MEMBER, "j", MemberPhase.EXITED, failure=Failure(Cause.SIGNALED, "killed"))
    _said(stage, ev.MemberReport("a", 1, 999, died))
    assert stage.cluster.state.jobs["j"].phase is JobPhase.STOPPING
    _said(stage, ev.UserFault("a", 1, "j", MEMBER, 1, 650, "nan", "it was so"))
    _said(stage, ev.SnapshotReady("a", 1, MEMBER, "j", 1, 600))
    assert REFUSED not in stage.cluster.counts


def test_an_incarnation_of_the_future_is_refused_and_bars_nobody() -> None:
    stage = play("elect")
    stage.cluster.state.wall_s = 1.8e9
    now_ns = int(1.8e9 * 1e9)
    (refused,) = _said(stage, ev.NodeJoined("a", (1 << 63) - 1, "l", "a", 8, 1))
    assert isinstance(refused, fx.Refuse) and "ahead of this coordinator's clock" in refused.reason
    effects = _said(stage, ev.NodeJoined("a", now_ns, "l", "a", 8, 1))
    assert any(isinstance(each, fx.Admit) for each in effects)
