"""What a rank is told of where its state comes from, and what a status says of an arena."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.deciding.member import LocalMember, survey
from agent.ranks.forms import form_message
from agent.ranks.members import MemberMemory, held_by
from controlplane.core.records.model import (
    NO_STEP,
    MemberPhase,
    MemberStatus,
    Placement,
    Resume,
    Source,
    Tier,
)
from controlplane.settings import AgentSettings, SettingsError, check_agent
from holdfast import removal
from holdfast.ipc.arena import Arena, SlotWriter
from tests.agent.support import generation, spec

if TYPE_CHECKING:
    from agent.host.paths import Paths


def member(name: str) -> LocalMember:
    return LocalMember(MemberStatus(name, "job", MemberPhase.READY), spec=spec("x", storage="file:///store"))


def resume(paths: Paths, name: str, what: Resume) -> dict[str, object]:
    formed = generation(3, "job.0", "job.1", resume=what)
    found: dict[str, object] = form_message(member(name), formed, "", paths).generation["resume"]
    return found


def test_one_source_names_the_arena_to_its_reader_only(paths: Paths) -> None:
    what = Resume(Tier.MEMORY, 20, 1, member="job.9")
    assert resume(paths, "job.1", what)["arena"] == str(paths.arena("job.9"))
    assert "arena" not in resume(paths, "job.0", what)
    loaded = Resume(Tier.CHECKPOINT, 20, 0, checkpoint="20-1")
    assert resume(paths, "job.0", loaded)["arena"] == str(paths.arena("job.0"))


def test_each_source_has_the_arena_it_reads(paths: Paths) -> None:
    """The rank's own snapshot, a dead member's, and one that was fetched for it."""
    sources = (
        Source("a", Tier.DONOR, 0),
        Source("b", Tier.MEMORY, 1, "job.7"),
        Source("c", Tier.PEER, 1, "job.1"),
        Source("d", Tier.CHECKPOINT, 0, "job.0", 1, 2),
    )
    what = Resume(Tier.PEER, 20, 1, sources=sources)
    told = resume(paths, "job.1", what)
    arenas = [entry.get("arena") for entry in told["sources"]]  # type: ignore[attr-defined]
    assert arenas == [None, str(paths.arena("job.7")), str(paths.arena("job.1")), None]
    assert told["arena"] == str(paths.arena("job.7"))
    (last,) = [entry for entry in resume(paths, "job.0", what)["sources"] if "arena" in entry]  # type: ignore[attr-defined]
    assert (last["shard"], last["share"], last["shares"]) == ("d", 1, 2)


def test_a_rank_that_reshards_is_told_the_storage(paths: Paths) -> None:
    what = Resume(Tier.CHECKPOINT, 20, 0, checkpoint="20-1", reshard=True)
    for name in ("job.0", "job.1"):
        told = resume(paths, name, what)
        assert (told["reshard"], told["storage"], told["job"]) == (True, "file:///store", "job")
        assert told["checkpoint"] == "20-1"


def test_a_member_without_a_seat_is_named(paths: Paths) -> None:
    formed = generation(3, "job.0")
    assert formed.seats == (Placement(0, "job.0", "n0", 0),)
    with pytest.raises(ValueError, match=r"job\.5 has no seat in generation 3"):
        form_message(member("job.5"), formed, "", paths)


def snapshot(arena: Arena, step: int, number: int, released: int = NO_STEP) -> None:
    writer = arena.begin(step, number, released_step=released)
    assert isinstance(writer, SlotWriter)
    writer.layout(b"{}", 0)
    writer.ready()


def test_a_status_says_what_both_slots_hold(paths: Paths) -> None:
    someone = member("job.0")
    status = survey(someone.status, held_by(someone))
    assert (status.snapshot_step, status.snapshot_before) == (NO_STEP, NO_STEP)
    someone.arena = Arena.create(paths.arena("job.0"), 4096)
    expected = {(10, 1): (10, -1, -1), (20, 1): (20, 10, -1), (20, 2): (20, -1, 20), (30, 2): (30, 20, -1)}
    for (step, number), held in expected.items():
        snapshot(someone.arena, step, number, released=step)
        status = survey(someone.status, held_by(someone))
        assert status.snapshot_generation == number
        assert (status.snapshot_step, status.snapshot_before, status.former_step) == held
        assert status.former_generation == (1 if held[2] >= 0 else 0)
    MemberMemory(paths).close([someone])


def test_a_new_agent_knows_the_job_of_a_member(paths: Paths) -> None:
    job, memory = spec("train.py", "--flag", storage="s3://bucket/x", env=(("A", "b"),)), MemberMemory(paths)
    before = LocalMember(MemberStatus("job.0", "job", MemberPhase.RUNNING), spec=job)
    memory.make(before)
    memory.keep(before.status)
    memory.close([before])
    (found,) = MemberMemory(paths).recall()
    assert found.spec == job
    memory.remove(found)
    assert [path.name for path in paths.memory.iterdir()] == [removal.MARK]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"domain": "../rack"}, "failure domain"),
        ({"peer_listen": "9000"}, "--peer-listen"),
        ({"peer_listen": "host:99999"}, "--peer-listen"),
        ({"metrics": "host:99999"}, "--metrics"),
        ({"coordinator": "host:99999"}, "--coordinator 'host:99999' is not an address"),
        ({"coordinator": "a:1, b"}, "--coordinator 'b' is not an address"),
        ({"coordinator": " , "}, "--coordinator is empty: give host:port"),
        ({"upload_bytes_per_s": -1}, "--upload-bytes-per-s"),
        ({"storage_deadline_s": 0.0}, "--storage-deadline-s"),
        ({"scrub_bytes_per_s": -5}, "--scrub-bytes-per-s"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, object], word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        check_agent(AgentSettings(**settings))  # type: ignore[arg-type]


def test_settings_that_can_be() -> None:
    check_agent(AgentSettings(domain="rack-7", peer_listen="[::1]:0", upload_bytes_per_s=10 << 20))
