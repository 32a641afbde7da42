"""Which copies are gone on from: those that rest on the word of the agent whose rank made them."""

from __future__ import annotations

import pytest

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobSpec, PeerCopy, Tier
from controlplane.core.restore import vouching
from controlplane.core.restore.vouching import Trust
from controlplane.core.state.concerns import Restore
from controlplane.core.state.job import Job
from tests.core.lifecycle.test_loading import broken, committed, lost, resume
from tests.transcripts.language import Play

COPY = PeerCopy("j.1", "j", 0, "all", 20, 1, "d")
OTHER = {"n2": "other"}
KEY = ("j.1", 1, 20)


def notes(play: Play, kind: str) -> list[str]:
    return [line for line in play.lines if line.startswith(f"Note {kind}")]


@pytest.mark.parametrize(
    ("said", "told", "holders", "trust"),
    [
        ({(1, 20): "d"}, "d", {}, Trust.VOUCHED),
        ({(1, 20): "d"}, "", {}, Trust.VOUCHED),  # kept by an agent of an older version: the bytes will tell
        ({(1, 20): "e"}, "d", {}, Trust.REFUTED),
        ({(1, 10): "d"}, "d", {}, Trust.UNVOUCHED),
        ({}, "", {}, Trust.UNVOUCHED),  # its own agent is of an older version
        (None, "d", {"n1": "d"}, Trust.KEPT),
        (None, "d", {"n1": "d", **OTHER}, Trust.UNVOUCHED),
        (None, "", OTHER, Trust.UNVOUCHED),
        (None, "", {}, Trust.UNVOUCHED),
    ],
)
def test_what_a_copy_rests_on(
    said: dict[tuple[int, int], str] | None, told: str, holders: dict[str, str], trust: Trust
) -> None:
    job = Job(JobSpec("j", ("x",), "/"), restore=Restore(known_step=30))
    if said is not None:
        job.restore.vouches["j.1"] = said
    copy = PeerCopy(*KEY[:1], "j", 0, "all", 20, 1, told)
    assert vouching.trust(job, copy, {KEY: holders} if holders else {}) is trust


def test_a_step_that_nobody_has_reached_is_not_believed() -> None:
    job = Job(JobSpec("j", ("x",), "/"), restore=Restore(known_step=38))
    vouching.agent_spoke(job, "j.1")
    assert vouching.trust(job, PeerCopy("j.1", "j", 0, "all", 398, 1, "d"), {}) is Trust.REFUTED


def test_a_copy_that_nobody_vouches_for_is_never_preferred_to_an_older_one_that_is() -> None:
    play = Play()
    broken(play)
    play.do("report j.1000000 running gen=1 step=22 snap=20 snapgen=1 before=10")
    play.do("keep c j.1000001 step=10 gen=1 shard=right rank=1")
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1 vouched=no")
    lost(play)
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.PEER, 10)
    assert "nobody vouches" not in resume(play).reason


def test_nor_to_an_older_checkpoint() -> None:
    play = Play()
    broken(play, "storage=file:///c")
    committed(play, 10)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1 vouched=no told=made-up")
    lost(play)
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.CHECKPOINT, 10)


def test_a_job_of_which_nothing_else_is_left_goes_on_from_what_nobody_vouches_for_and_says_so() -> None:
    play = Play()
    broken(play)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1 vouched=no")
    lost(play)
    assert play.last[fx.Fetch].digest == ""
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.PEER, 20)
    assert "nobody vouches for the copy d's of j.1000001, and nothing else is left" in resume(play).reason


def test_what_is_not_what_its_ranks_agent_said_is_not_asked_for_and_its_keeper_is_named() -> None:
    play = Play()
    broken(play)
    play.do("keep c j.1000001 step=20 gen=1 shard=right rank=1")
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1 vouched=no told=forged")
    lost(play)
    fetch = play.last[fx.Fetch]
    assert (fetch.address, fetch.digest) == ("c:7", "j.1000001/1/20")
    assert notes(play, "copy_refuted") == [
        line for line in play.lines if "d offers a copy of j.1000001" in line
    ]
    assert len(notes(play, "copy_refuted")) == 1


def test_altered_bytes_are_refused_the_next_copy_is_taken_and_the_keeper_is_named() -> None:
    play = Play()
    broken(play)
    for name in "cd":
        play.do(f"keep {name} j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    first = play.last[fx.Fetch]
    answered = play.do('brought "it is not what was vouched for" because=altered')
    second = play.last[fx.Fetch]
    assert {first.address, second.address} == {"c:7", "d:7"}
    assert first.digest == second.digest == "j.1000001/1/20"
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.PEER, 20)
    keeper = first.address[0]
    told = f"step 20 of j.1000001 cannot be had from {keeper}: it is not what was vouched for"
    assert told in resume(play).reason
    assert [told in line for line in answered if line.startswith("Note copy_altered")] == [True]


def test_altered_bytes_are_not_asked_for_again() -> None:
    play = Play()
    broken(play, "storage=file:///c")
    committed(play, 10)
    play.do("keep d j.1000001 step=20 gen=1 shard=right rank=1")
    lost(play)
    play.do('brought "it is not what was vouched for" because=altered')
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.CHECKPOINT, 10)


def away(play: Play, *kept: str) -> None:
    """A job whose leader ends, and the node of rank 1 with its memory: the next leader hears of it from those
    who keep copies alone."""
    broken(play, "storage=file:///c")
    for words in kept:
        play.do(f"keep {words} j.1000001 step=20 gen=1 shard=right rank=1")
    play.do("crash")
    del play.hosts["b"]
    play.do("elect")
    committed(play, 10)
    for name in ("a", "c", "d"):
        play.do(f"hello {name} peer={name}:7")
    play.do("stored")
    for _ in range(3):
        for name in "acd":
            play.do(f"beat {name}")
        play.do("wait 12")
    play.do("report j.1000000 ready held=22 gen=1")
    launched = play.last[fx.Launch].member
    play.do(f"report {launched} starting", f"report {launched} ready held=-1")


def test_a_leader_that_came_later_has_the_word_of_those_who_keep_copies() -> None:
    play = Play()
    away(play, "c", "d")
    assert play.last[fx.Fetch].digest == "j.1000001/1/20"
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.PEER, 20)
    assert "hashes to is known from those who keep it" in resume(play).reason


def test_it_believes_none_of_them_when_they_differ() -> None:
    play = Play()
    away(play, "c", "d told=forged vouched=no")
    play.do("brought")
    assert (resume(play).tier, resume(play).step) == (Tier.CHECKPOINT, 10)


def test_nobody_vouches_for_another_nodes_rank() -> None:
    play = Play()
    broken(play)
    vouch = ev.SnapshotVouched("d", play.hosts["d"].incarnation, "j.1000001", "j", 1, 20, "forged")
    play.feed(vouch)
    assert notes(play, "stale_vouch")
    assert vouching.digest_of(play.cluster.state.jobs["j"], "j.1000001", 1, 20) == ""
