"""What may be committed: bases, writers, parts, seals; pure code over records."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.core.checkpoint import commit
from controlplane.core.checkpoint import finalizing as sealing_of_parts
from controlplane.core.checkpoint.commit import FLOWS
from controlplane.core.lifecycle import ending
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import CheckpointPart, MemberPhase, MemberStatus, Role
from controlplane.core.records.timing import CoreSettings
from controlplane.core.state.cluster_state import ClusterState
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member
from controlplane.core.state.saving import Holder, Saving, Stage, Writer
from tests.core.make import record, seats, spec
from tests.core.test_cluster import running


def test_a_full_one_opens_the_base_and_a_rotten_base_is_left() -> None:
    full, later = record(100), record(200, kind="incremental", base="100-1")
    assert commit.base_for([], 100, 1000) == ("full", "")
    assert commit.base_for([full, later], 300, 1000) == ("incremental", "100-1")
    assert commit.base_for([full, later], 1100, 1000) == ("full", "")
    assert commit.base_for([full, commit.as_bad(later, "rot")], 300, 1000) == ("full", "")
    assert commit.base_for([record(100, published=False)], 200, 1000) == ("full", "")
    assert commit.base_for((each for each in [full, later]), 300, 1000) == ("incremental", "100-1")


def part(share: int = 0, **changes: object) -> CheckpointPart:
    usual = {
        "job": "j", "checkpoint": "100-1", "shard": "all", "share": share, "shares": 2, "rank": share,
        "member": f"j.{share}", "step": 100, "generation": 1, "digest": f"d{share}", "bytes_total": 1,
        "bytes_written": 1,
    }  # fmt: skip
    return CheckpointPart(**(usual | changes))  # type: ignore[arg-type]


def saving(**changes: object) -> Saving:
    """Two nodes write half of the state each."""
    usual = {
        "id": "100-1", "step": 100, "generation": 1, "node": "a", "kind": "full", "base": "100-1",
        "versions": ((0, 100), (1, 100)),
        "writers": (Writer("all", 0, 2, 0, "j.0", "a"), Writer("all", 1, 2, 1, "j.1", "b")),
        "holders": (Holder("all", 0, "j.0", "a"), Holder("all", 1, "j.1", "b")),
    }  # fmt: skip
    return Saving(**(usual | changes))  # type: ignore[arg-type]


def sealing(**changes: object) -> Saving:
    return saving(**({"stage": Stage.FINALIZE, "parts": (part(0), part(1))} | changes))


def test_parts_that_were_ordered_are_taken_until_none_lacks() -> None:
    assert commit.refuse_part(part(0), saving(), [1]) == ""
    half = saving(parts=(part(1),))
    assert [writer.share for writer in commit.lacking(half)] == [0]
    assert commit.taken(part(1, digest="another"), half)
    assert not commit.taken(part(0), half)
    assert commit.lacking(sealing()) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checkpoint": "90-1"}, "checkpoint 90-1 is not in flight"),
        ({"generation": 2}, "generation 2 is none"),
        ({"step": 90}, "names step 90 of generation 1"),
        ({"shard": "left"}, "share 0 of 2 of shard left was not ordered"),
        ({"share": 2}, "share 2 of 2 of shard all was not ordered"),
        ({"shares": 3}, "share 0 of 3 of shard all was not ordered"),
        ({"rank": 1}, "comes from j.0 as rank 1, which does not hold this shard"),
        ({"member": "j.9"}, "comes from j.9 as rank 0"),
    ],
)
def test_which_parts_are_refused(changes: dict[str, object], words: str) -> None:
    assert words in commit.refuse_part(dataclasses.replace(part(0), **changes), saving(), [1])  # type: ignore[arg-type]


def test_what_was_ordered_may_be_committed() -> None:
    assert commit.refuse(record(100), sealing(), [1]) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "90-1"}, "90-1 is not in flight"),
        ({"generation": 2}, "generation 2"),
        ({"step": 90}, "names step 90"),
        ({"kind": "incremental"}, "ordered was full"),
        ({"base": "50-1"}, "ordered was full"),
        ({"versions": ((0, 100),)}, "lacks rank 1"),
        ({"versions": ((0, 100), (1, 99))}, "mixes steps"),
        ({"versions": ((0, 100), (1, 100), (2, 100))}, "does not have"),
        ({"versions": ((0, 100), (1, 100), (1, 100))}, "does not have"),
        ({"bytes_written": -1}, "-1 written: that cannot be"),
        ({"bytes_total": -1}, "it is of -1 bytes"),
    ],
)
def test_what_is_refused(changes: dict[str, object], words: str) -> None:
    given = dataclasses.replace(record(100), **changes)  # type: ignore[arg-type]
    assert words in commit.refuse(given, sealing(), [1])


def test_a_seal_without_every_share_once_is_refused() -> None:
    assert "without share 1 of shard all" in commit.refuse(record(100), sealing(parts=(part(0),)), [1])
    double = sealing(parts=(part(0), part(1), part(1)))
    assert "every share exactly once" in commit.refuse(record(100), double, [1])


def test_nothing_is_committed_twice() -> None:
    assert "not to be sealed now (store)" in commit.refuse(record(100), sealing(stage=Stage.STORE), [1])
    assert "not in flight" in commit.refuse(record(100), None, [1])


def test_the_newest_good_is_published_and_not_bad() -> None:
    records = [record(100), record(200, published=False), commit.as_bad(record(300), "rot")]
    good = commit.newest_good(records)
    assert good is not None
    assert good.id == "100-1"


@pytest.mark.parametrize("when", ["both", "first"])
def test_the_stages_follow_each_other_and_end(when: str) -> None:
    job = spec(mirror="file:///m", commit_when=when)
    stages: list[Stage | None] = [Stage.PERSIST]
    while stages[-1] is not None:
        stages.append(commit.after(stages[-1], job))
    assert tuple(stages[:-1]) == FLOWS[when]
    order = [stages.index(Stage.MIRROR if when == "both" else Stage.COPY), stages.index(Stage.STORE)]
    assert (order[0] < order[1]) is (when == "both")
    assert commit.after(Stage.FINALIZE, spec()) is Stage.STORE


# ---------------------------------------------------------------- who writes what


def writers(bytes_: int, *shards: str) -> list[tuple[str, int, int, str]]:
    """What two nodes with two ranks each write, with these shards by rank."""
    stage = running("submit nodes=2 nproc=2 storage=file:///c")
    names = [seat.member for seat in stage.etcd.generations["j"].seats]
    for name, shard in zip(names, shards or ("",) * 4, strict=True):
        word = f"shard={shard}" if shard else ""
        stage.do(f"report {name} running gen=1 step=9 bytes={bytes_} {word}")
    stage.do("snapshot 100")
    return [(each.shard, each.share, each.shares, each.node) for each in stage.writing]


def test_a_small_state_has_one_writer_and_a_large_one_a_writer_per_node() -> None:
    assert writers(1 << 20) == [("all", 0, 1, "a")]
    assert writers(31 << 20) == [("all", 0, 1, "a")]
    assert writers(32 << 20) == [("all", 0, 2, "a"), ("all", 1, 2, "b")]


def test_each_shard_is_written_where_it_is_held_and_small_ones_are_spread() -> None:
    assert writers(1 << 30, "w0", "w1", "w2", "w3") == [
        ("w0", 0, 1, "a"), ("w1", 0, 1, "a"), ("w2", 0, 1, "b"), ("w3", 0, 1, "b"),
    ]  # fmt: skip
    assert writers(1 << 20, "w0", "w1", "w0", "w1") == [("w0", 0, 1, "a"), ("w1", 0, 1, "b")]
    assert writers(1 << 30, "w0", "w1", "w0", "w1") == [
        ("w0", 0, 2, "a"), ("w0", 1, 2, "b"), ("w1", 0, 2, "b"), ("w1", 1, 2, "a"),
    ]  # fmt: skip


def test_what_a_former_leader_was_told_is_no_failure_of_this_one() -> None:
    """Agents say it again on a new stream: by then the checkpoint may have been made, and collected."""
    state, job = ClusterState(CoreSettings()), Job(spec())
    state.jobs["j"] = job
    sealing_of_parts.persisted(state, ev.Persisted("a", 1, record(100)))
    sealing_of_parts.part_persisted(state, ev.PartPersisted("a", 1, part()))
    told = state.take()
    assert [effect.kind for effect in told if isinstance(effect, fx.Note)] == ["refused_checkpoint"] * 2
    assert len(told) == 2


def test_a_job_ends_once_the_second_storage_has_its_final_state_too() -> None:
    """Committed on the first already; but nobody would copy it after the job's end."""
    state, job = (
        ClusterState(CoreSettings()),
        Job(spec(storage="file:///c", mirror="file:///d", commit_when="first")),
    )
    for seat in seats(1, 1):
        status = MemberStatus(seat.member, "j", MemberPhase.EXITED, elastic=True, held_step=100)
        job.add(Member(seat.member, "j", seat.node, Role.RANK, seat.rank, told=status, done=True))
    job.sit(seats(1, 1))
    job.checkpoints.records["100-1"] = record(100)
    job.checkpoints.savings["100-1"] = saving(stage=Stage.COPY, record=record(100))
    ending.finishing(state, job)
    assert job.ending is None and job.checkpoints.final_by is not None
    state.now = job.checkpoints.final_by
    ending.finishing(state, job)
    assert job.ending is not None, "it does not wait for ever"
    job.ending, state.now = None, 0.0
    job.checkpoints.savings.clear()
    ending.finishing(state, job)
    assert job.ending is not None
