"""Checkpoints through the core at their edges: confused writers, retention, asking, adoption."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from controlplane.core.checkpoint.retention import removable
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import CheckpointPart
from tests.core.make import record
from tests.core.test_cluster import play, running

if TYPE_CHECKING:
    from controlplane.core.records.model import CheckpointRecord
    from tests.transcripts.language import Play


def saving(submit: str = "submit nodes=2 nproc=1 storage=file:///c") -> Play:
    """A job whose first checkpoint waits for the parts of both nodes."""
    stage = running(submit)
    stage.do("all running gen=1 step=99 bytes=40000000")
    stage.do("snapshot 100")
    return stage


def part_of(order: fx.Persist, **changes: object) -> ev.PartPersisted:
    part = CheckpointPart(
        "j", order.checkpoint, order.shard, order.share, order.shares, order.rank, order.member, order.step,
        order.generation, "d", 1, 1,
    )  # fmt: skip
    return ev.PartPersisted(order.node, 1, dataclasses.replace(part, **changes))  # type: ignore[arg-type]


def told(effects: list[fx.Effect]) -> list[tuple[str, str, str]]:
    changed = [effect for effect in effects if isinstance(effect, fx.CheckpointChanged)]
    return [(each.checkpoint, each.outcome, each.reason) for each in changed]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": 90}, "names step 90"),
        ({"generation": 7}, "generation 7 is none that this leader knows"),
        ({"shares": 3}, "share 0 of 3 of shard all was not ordered"),
        ({"rank": 1}, "which does not hold this shard"),
    ],
)
def test_a_part_that_does_not_fit_ends_the_checkpoint_and_names_why(
    changes: dict[str, object], words: str
) -> None:
    stage = saving()
    effects = stage.cluster.step(stage.now, part_of(stage.writing[0], **changes))
    assert [(name, outcome) for name, outcome, _ in told(effects)] == [("100-1", "failed")]
    assert words in told(effects)[0][2]
    assert stage.cluster.counts["refused_checkpoint"] == 1


def test_a_second_part_of_a_share_and_parts_of_what_is_over_change_nothing() -> None:
    stage = saving()
    first = part_of(stage.writing[0])
    assert told(stage.cluster.step(0.0, first)) == []
    again = stage.cluster.step(0.0, part_of(stage.writing[0], digest="another"))
    assert told(again) == []
    assert stage.cluster.counts["stale_part"] == 1
    stage.do("parts")
    stage.do("sealed", "stored", "published", "stored")
    assert told(stage.cluster.step(0.0, first)) == []
    assert stage.cluster.counts["stale_part"] == 3


def test_a_seal_that_comes_before_the_parts_is_refused() -> None:
    stage = saving()
    early = ev.Persisted("a", 1, record(100, base="100-1", published=False))
    effects = stage.cluster.step(0.0, early)
    assert told(effects) == [("100-1", "failed", "checkpoint 100-1 is not to be sealed now (persist)")]


def test_an_agent_that_was_not_asked_cannot_fail_a_checkpoint() -> None:
    stage = saving()
    stage.do("parts on=b")
    late = ev.PersistFailed("b", 1, "j", "100-1", "no space left")
    assert told(stage.cluster.step(0.0, late)) == []
    lines = stage.do('failed "no space left" on=a')
    assert lines == ["CheckpointChanged 100-1 failed: no space left"]


def test_any_node_may_seal_when_the_first_is_lost() -> None:
    stage = saving()
    stage.do("parts")
    stage.do("break a")
    stage.do("wait 20")
    stage.do("beat b")
    assert [line for line in stage.do("wait 11") if line.startswith("Seal b 100-1")]
    stage.do("sealed", "stored")
    assert [line for line in stage.do("published") + stage.do("stored") if "100-1 committed" in line]


def test_a_checkpoint_that_is_committed_later_is_taken_up_by_the_next_leader() -> None:
    stage = saving()
    for command in ("parts", "sealed", "stored", "crash", "elect", "hello a"):
        lines = stage.do(command)
    assert "Publish a 100-1" in lines
    assert [line for line in stage.do("published") + stage.do("stored") if "100-1 committed" in line]


@pytest.mark.parametrize("committed", [True, False])
def test_a_checkpoint_that_is_about_to_be_committed_is_waited_for_a_while(committed: bool) -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c", "a")
    stage.do("snapshot 100", "persisted", "stored")
    stage.do("report j.1000000 exited gen=1 step=120 cause=signaled signal=9")
    stage.do("report j.1000001 starting")
    lines = stage.do("report j.1000001 ready held=-1")
    assert "JobChanged loading: checkpoint 100-1 is newer: waits for its commit" in lines
    if committed:
        assert [line for line in stage.do("published") + stage.do("stored") if line.startswith("Load a")]
    else:
        lines = stage.do("wait 16")
        assert [line for line in lines if "no copy of any state is left: the job begins again" in line]


# ---------------------------------------------------------------- retention


def ids(*names: str) -> list[CheckpointRecord]:
    return [record(*map(int, name.split("-")), base=name) for name in names]


@pytest.mark.parametrize(
    ("keep_last", "keep_every", "gone"),
    [
        (0, 0, ()),
        (0, 200, ()),
        (1, 0, ("100-1", "200-1", "300-1", "400-2")),
        (2, 0, ("100-1", "200-1", "300-1")),
        (9, 0, ()),
        (1, 200, ("100-1", "300-1")),
        (1, 150, ("100-1", "400-2")),
    ],
)
def test_what_retention_removes(keep_last: int, keep_every: int, gone: tuple[str, ...]) -> None:
    records = ids("500-2", "100-1", "200-1", "300-1", "400-2")
    assert removable(records, keep_last, keep_every) == gone


def test_what_retention_never_removes() -> None:
    full, old = record(100), record(200, kind="incremental", base="100-1")
    newest = record(300, kind="incremental", base="100-1")
    assert removable([full, old, newest], 1, 0) == ("200-1",), "the base of the newest stays"
    on_its_way = record(150, published=False)
    rotten_new, rotten_old = (dataclasses.replace(record(step), bad="rot") for step in (400, 50))
    assert removable([on_its_way, rotten_old, rotten_new, newest], 1, 0) == ("50-1",)
    assert removable([record(100), record(300)], 1, 0, bases=["100-1"]) == (), "a save writes to it"
    assert removable([on_its_way, rotten_new], 1, 0) == (), "nothing good is left"


def commit(stage: Play, step: int) -> list[str]:
    return stage.do(f"snapshot {step}", "persisted", "stored", "published", "stored")


def test_no_new_base_is_opened_beside_a_collection() -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c keep_last=1", "a")
    for step in range(100, 1000, 100):
        commit(stage, step)
        stage.do("collected") if fx.Collect in stage.last else None
    lines = commit(stage, 1000)
    assert [line for line in lines if line.startswith("Collect a")]
    beside = commit(stage, 1100)
    assert "CheckpointChanged 1100-1 started: incremental, on base 100-1" in beside
    done = [line.split(" ", 2)[2] for line in stage.do("collected") if line.startswith("Store")]
    assert done == ["forget=900-1"], "the full one is first"
    lines = commit(stage, 1200)
    assert "CheckpointChanged 1200-1 started: full, on base 1200-1" in lines
    assert [line for line in lines if line.startswith("Collect a")]


def test_what_is_found_rotten_is_collected_only_once_etcd_says_so() -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c keep_last=1 scrub_s=5", "a")
    commit(stage, 100)
    commit(stage, 200)
    assert "Scrub a 200-1" in stage.do("live 12")
    stage.do("snapshot 300", "persisted", "stored", "published", "scrubbed chunk_3_rots")
    told, again, collect = stage.do("stored")[-3:]
    assert "checkpoint=200-1 published=True bad='chunk_3_rots'" in told
    assert again.split(" ", 2)[2] == told.split(" ", 2)[2], "its answer follows the one that is on its way"
    assert collect.startswith("Collect a remove=200-1")


def test_what_an_earlier_order_collected_is_not_taken_for_all_of_a_later_one() -> None:
    """An agent that is at it hears of no second order, a new leader's say, and answers the first."""
    stage = running("submit nodes=1 nproc=1 storage=file:///c keep_last=1", "a")
    for step in (100, 200, 300):
        commit(stage, step)
    stage.do("collected the_lease_is_held")
    assert [line for line in commit(stage, 400) if line.startswith("Collect a remove=200-1,300-1 ")]
    stage.feed(ev.Collected("a", 1, "j", ("200-1",)))
    assert list(stage.cluster.state.jobs["j"].checkpoints.records) == ["100-1", "300-1", "400-1"]
    assert [line for line in stage.do("stored") if line.startswith("Collect a remove=300-1 ")]


def test_what_could_not_be_collected_is_tried_again_by_itself() -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c keep_last=1", "a")
    for step in (100, 200, 300):
        commit(stage, step)
    assert not [line for line in stage.do("collected another_is_at_it") if line.startswith("Collect ")]
    assert not [line for line in stage.do("live 50") if line.startswith("Collect ")]
    assert [line for line in stage.do("live 15") if line.startswith("Collect a remove=200-1 ")]


def test_a_collection_moves_on_when_its_node_is_lost() -> None:
    stage = running("submit nodes=2 nproc=1 storage=file:///c keep_last=1")
    for step in (100, 200, 300):
        lines = commit(stage, step)
    assert "Collect b remove=200-1 keep=100-1,300-1 busy=100-1" in lines
    stage.do("break b")
    stage.do("wait 20")
    stage.do("beat a")
    assert "Collect a remove=200-1 keep=100-1,300-1 busy=100-1" in stage.do("wait 11")


# ---------------------------------------------------------------- asking


def answers(lines: list[str]) -> list[str]:
    return [line.split(" ", 3)[3] for line in lines if line.startswith("CheckpointTold a")]


def test_without_storage_an_asking_is_answered_at_once() -> None:
    stage = running("submit nodes=1 nproc=1", "a")
    said = answers(stage.do("ask 7"))
    assert said == ["r1 7-1 skipped: the job has no storage: give it one with --storage URL"]


def test_an_asking_of_an_unknown_job_is_answered() -> None:
    stage = play("elect", "hello a")
    effects = stage.cluster.step(0.0, ev.CheckpointAsked("a", 1, "x", "x.1", 1, 7, "r1"))
    assert [(e.outcome, e.reason) for e in effects if isinstance(e, fx.CheckpointTold)] == [
        ("skipped", "job x is unknown to this coordinator")
    ]


def test_a_job_that_is_stopped_answers_all_askings() -> None:
    stage = running("submit nodes=1 nproc=2 storage=file:///c", "a")
    stage.do("ask 7 request=r7")
    stage.do("snapshot 7")
    stage.do("ask 9 request=r9")
    stage.do("stop enough")
    said = answers(stage.do("stored"))
    assert said == [
        "r7 7-1 failed: the job has ended",
        "r7 7-1 failed: the job has ended",
        "r9 9-1 skipped: the job has ended",
        "r9 9-1 skipped: the job has ended",
    ]


def test_an_answer_is_said_again_on_a_new_stream_and_asked_of_a_new_leader() -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c", "a")
    stage.do("ask 7")
    commit(stage, 7)
    assert answers(stage.do("break a") + stage.do("hello a")) == ["r1 7-1 committed: step 7, full"]
    stage.do("crash", "elect", "hello a")
    assert answers(stage.do("ask 7")) == ["r1 7-1 committed: step 7, full"]


def test_an_asking_that_nothing_comes_of_is_answered_after_a_while() -> None:
    stage = running("submit nodes=1 nproc=2 storage=file:///c", "a")
    stage.do("ask 7")
    lines = []
    for _ in range(7):
        stage.do("beat a")
        lines += stage.do("wait 10")
    assert answers(lines) == ["r1 7-1 skipped: not every rank held step 7 within 60 s"] * 2


# ---------------------------------------------------------------- adoption


def test_what_is_adopted_survives_the_leader_and_its_numbers_are_not_given_again() -> None:
    stage = play("elect", "hello a", "stored", "found 200-7", "stored", "crash", "elect", "hello a", "stored")
    stage.do("submit nodes=1 nproc=1 storage=file:///c")
    assert [line for line in stage.do("stored") if "generation=#8[" in line]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "../../etc"}, "its id does not say step 200"),
        ({"generation": 0, "id": "200-0"}, "its id does not say"),
        ({"manifest_digest": ""}, "no digest"),
        ({"bad": "rot"}, "marked bad: rot"),
        ({"job": "k"}, "of job 'k', not of 'j'"),
    ],
)
def test_what_is_never_adopted(changes: dict[str, object], words: str) -> None:
    stage = play("elect")
    given = dataclasses.replace(record(200), **changes)  # type: ignore[arg-type]
    effects = stage.cluster.step(0.0, ev.CheckpointsFound("j", (given,)))
    assert [(outcome, words in reason) for _, outcome, reason in told(effects)] == [("refused", True)]
    assert stage.cluster.state.unclaimed == {}


def test_what_etcd_marked_bad_is_not_adopted_and_what_it_holds_is_no_news() -> None:
    stage = running("submit nodes=1 nproc=1 storage=file:///c scrub_s=10", "a")
    commit(stage, 100)
    assert stage.do("found 100-1 digest=digest-100-1") == []
    stage.do("beat a")
    stage.do("wait 10")
    stage.do('scrubbed "chunk 3 does not match"')
    assert "etcd has it marked bad" in stage.do("found 100-1")[0]
