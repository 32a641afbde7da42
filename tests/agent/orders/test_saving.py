"""The orders that save and load, carried out by a real agent on real files."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil

import pytest

from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase
from holdfast.checkpoint import load, suspect
from holdfast.checkpoint.errors import CheckpointCorrupt
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.arena import Arena, SlotState
from tests.agent import keeper
from tests.agent.saving_support import Site
from tests.agent.support import AgentProcess, Leader, folder, until


async def test_two_writers_make_one_checkpoint_and_loads_bring_it_back(
    agent: AgentProcess, leader: Leader
) -> None:
    site = Site(agent, leader, ranks=2)
    for rank in (0, 1):
        await site.keep(f"job.{rank}", 32, 10, rank=rank)
    parts = []
    for share in (0, 1):
        order = site.persist(f"job.{share}", 10, share=share, shares=2, rank=share)
        parts.append((await site.answer(order, events.PartPersisted)).part)
    assert all(part.bytes_total > 10 << 20 for part in parts)
    record = (await site.answer(site.seal(parts), events.Persisted)).record
    assert record.bytes_total == (32 << 20) + keeper.SMALL
    assert record.shards == ("all",)
    assert (await site.answer(effects.Publish("n0", site.job, record), events.Published)).reason == ""
    assert sum(path.stat().st_size for path in site.chunks()) == record.bytes_total
    whole = await site.answer(effects.Load("n0", "job.7", site.job, record), events.Loaded)
    assert (whole.member, whole.reason, whole.share, whole.shares) == ("job.7", "", 0, 1)
    assert site.held("job.7", 10) == keeper.content("all", 32, 10)
    third = effects.Load("n0", "job.8", site.job, record, "all", 1, 3)
    share = await site.answer(third, events.Loaded)
    assert (share.reason, share.shard, share.share, share.shares) == ("", "all", 1, 3)
    with Arena.open(agent.memory / "job.8.arena") as arena:
        assert SlotState.PARTIAL in [slot.state for slot in arena.slots]
        assert arena.find(10) is None, "a share is not taken for the whole"
    wrong = await site.answer(effects.Load("n0", "job.9", site.job, record, "other"), events.Loaded)
    assert "has no shard 'other'" in wrong.reason
    for name in ("job.7", "job.8"):
        (agent.memory / f"{name}.arena").unlink()


async def test_an_order_that_was_carried_out_is_answered_again(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader)
    await site.keep("job.0", 2, 10)
    order = site.persist("job.0", 10)
    first = await site.answer(order, events.PartPersisted)
    assert await site.answer(order, events.PartPersisted) == first
    seal = site.seal([first.part])
    sealed = await site.answer(seal, events.Persisted)
    assert await site.answer(seal, events.Persisted) == sealed
    assert (
        await site.metric('holdfast_agent_uploaded_bytes_total{training_job="job"}')
        == first.part.bytes_written
    )
    failed = await site.answer(site.persist("job.0", 90), events.PersistFailed)
    assert "snapshot 90 of job.0 is no longer in its arena" in failed.reason


async def test_shards_are_saved_apart_and_sealed_together(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader, ranks=2)
    parts = []
    for rank, shard in enumerate(("aa", "bb")):
        await site.keep(f"job.{rank}", 9, 10, shard=shard, rank=rank)
        order = site.persist(f"job.{rank}", 10, rank=rank, shard=shard)
        parts.append((await site.answer(order, events.PartPersisted)).part)
    wrong = await site.answer(site.persist("job.0", 10, shard="bb"), events.PersistFailed)
    assert "shard aa" in wrong.reason
    failed = await site.answer(site.seal(parts[:1] * 2), events.PersistFailed)
    assert failed.checkpoint == "10-1"
    record = (await site.answer(site.seal(parts), events.Persisted)).record
    assert record.shards == ("aa", "bb")
    await site.answer(effects.Publish("n0", site.job, record), events.Published)
    loaded = await site.answer(effects.Load("n0", "job.5", site.job, record, "bb"), events.Loaded)
    assert loaded.reason == ""
    (agent.memory / "job.5.arena").rename(agent.memory / "job.0.arena")
    assert site.held("job.0", 10) == keeper.content("bb", 9, 10)


async def test_an_arena_that_is_too_small_is_made_anew_for_a_load(
    agent: AgentProcess, leader: Leader
) -> None:
    site = Site(agent, leader)
    await site.keep("job.0", 24, 10)
    await site.keep("job.1", 2, 10, rank=1, waits=True)
    record = await site.saved("job.0", 10)
    log = agent.run_dir / "logs" / "job.1.log"
    assert log.exists()
    before = (agent.memory / "job.1.arena").stat().st_size
    loaded = await site.answer(effects.Load("n0", "job.1", site.job, record), events.Loaded)
    assert loaded.reason == ""
    assert (agent.memory / "job.1.arena").stat().st_size > before
    assert site.held("job.1", 10) == keeper.content("all", 24, 10)


async def test_a_restore_does_not_wait_for_an_upload(leader: Leader) -> None:
    with folder() as base:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}", process_timeout_s=30.0)
        site = Site(agent, leader)
        await site.keep("job.0", 8, 10, 20)
        record = await site.saved("job.0", 10)
        agent.kill()
        agent.process = AgentProcess(
            base, f"127.0.0.1:{leader.port}", process_timeout_s=30.0, upload_bytes_per_s=1 << 20
        ).process
        await leader.hello(2)
        slow = site.persist("job.0", 20, base="")
        await leader.order(slow)
        await until(lambda: list(site.storage.glob("holdfast-drafts/*.draft")), "the upload's beginning")
        loaded = await site.answer(effects.Load("n0", "job.3", site.job, record), events.Loaded)
        assert loaded.reason == ""
        assert await site.metric('holdfast_agent_snapshot_orders{queue="upload"}') == 1
        await leader.order(slow)
        assert not leader.of(events.PersistFailed), "an order that runs is not begun again"
        assert [part.part.step for part in leader.of(events.PartPersisted)] == [10]
        (agent.memory / "job.3.arena").unlink()
        assert await agent.end() == 0


async def test_a_dead_members_snapshot_stays_until_it_is_saved(leader: Leader) -> None:
    with folder() as base:
        agent = AgentProcess(
            base, f"127.0.0.1:{leader.port}", process_timeout_s=30.0, upload_bytes_per_s=4 << 20
        )
        site = Site(agent, leader)
        await site.keep("job.0", 8, 10)
        await leader.order(site.persist("job.0", 10))
        await until(site.storage.exists, "the upload's beginning")
        await leader.order(effects.Kill("n0", "job", "job.0", "test"))
        await leader.phase("job.0", MemberPhase.EXITED)
        await leader.order(effects.Release("n0", "job", 20))
        (part,) = await until(lambda: leader.of(events.PartPersisted), "the part")
        assert part.part.bytes_total == (8 << 20) + keeper.SMALL
        assert (agent.memory / "job.0.arena").exists()
        await leader.order(effects.Release("n0", "job", 20))
        await until(lambda: not (agent.memory / "job.0.arena").exists(), "its removal")
        assert await agent.end() == 0


async def test_an_agent_killed_in_an_upload_goes_on_where_it_was(leader: Leader) -> None:
    with folder() as base:
        coordinator = f"127.0.0.1:{leader.port}"
        agent = AgentProcess(base, coordinator, process_timeout_s=30.0, upload_bytes_per_s=24 << 20)
        site = Site(agent, leader)
        await site.keep("job.0", 64, 10)
        order = site.persist("job.0", 10)
        await leader.order(order)
        await until(lambda: len(site.chunks()) >= 3, "a few chunks")
        agent.kill()
        before = {path: path.stat().st_ino for path in site.chunks()}
        assert not leader.of(events.PartPersisted)
        agent.process = AgentProcess(base, coordinator, process_timeout_s=30.0).process
        await leader.hello(2)
        part = (await site.answer(order, events.PartPersisted)).part
        after = {path: path.stat().st_ino for path in site.chunks()}
        assert {path: after[path] for path in before} == before
        total = sum(path.stat().st_size for path in after)
        old = sum(path.stat().st_size for path in before)
        assert part.bytes_written == total - old
        record = (await site.answer(site.seal([part]), events.Persisted)).record
        await site.answer(effects.Publish("n0", site.job, record), events.Published)
        load.verify(Store.open(site.job.storage), "job", record.id, record.manifest_digest)
        assert await agent.end() == 0


async def test_a_mirror_holds_it_all_and_mends_what_is_lost(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader, mirror=True)
    await site.keep("job.0", 9, 10)
    part = await site.answer(site.persist("job.0", 10), events.PartPersisted)
    record = (await site.answer(site.seal([part.part]), events.Persisted)).record
    assert (await site.answer(effects.Mirror("n0", site.job, record), events.Mirrored)).reason == ""
    assert not list(site.second.glob("jobs/job/manifests/*")), "not committed yet"
    await site.answer(effects.Publish("n0", site.job, record), events.Published)
    for url in (site.job.storage, site.job.mirror):
        load.verify(Store.open(url), "job", record.id, record.manifest_digest)
    shutil.rmtree(site.storage / "jobs" / "job" / "bases")
    loaded = await site.answer(effects.Load("n0", "job.5", site.job, record), events.Loaded)
    assert loaded.reason == ""
    assert site.held("job.5", 10) == keeper.content("all", 9, 10)
    (agent.memory / "job.5.arena").unlink()


async def test_a_scrub_mends_from_memory_and_from_the_mirror(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader)
    await site.keep("job.0", 17, 10)
    record = await site.saved("job.0", 10)
    scrub = effects.Scrub("n0", site.job, record)
    clean = await site.answer(scrub, events.Scrubbed)
    assert (clean.repaired, clean.reason, clean.corrupt) == (0, "", False)
    for path in site.chunks():
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"rotten")
    mended = await site.answer(scrub, events.Scrubbed)
    assert (mended.repaired, mended.corrupt) == (len(site.chunks()), False)
    load.verify(Store.open(site.job.storage), "job", record.id, record.manifest_digest)
    await leader.order(effects.Complete("n0", "job", True, "done"))
    await until(lambda: not list(agent.memory.glob("*.arena")), "the end of its memory")
    gone = site.chunks()[0]
    gone.unlink()
    lost = await site.answer(scrub, events.Scrubbed)
    assert lost.corrupt
    assert gone.name.partition(".")[0] in lost.reason
    with pytest.raises(CheckpointCorrupt):
        load.verify(Store.open(site.job.storage), "job", record.id, record.manifest_digest)
    assert await site.metric('holdfast_agent_scrub_failed_total{training_job="job"}') == 1


async def test_a_mirror_that_was_away_is_completed_and_mended_by_scrubs(
    agent: AgentProcess, leader: Leader
) -> None:
    site = Site(agent, leader, mirror=True)
    await site.keep("job.0", 9, 10)
    record = await site.saved("job.0", 10)
    assert not site.second.exists(), "nobody has mirrored it"
    scrub = effects.Scrub("n0", site.job, record)
    first = await site.answer(scrub, events.Scrubbed)
    assert (first.repaired, first.reason, first.corrupt) == (0, "", False)
    load.verify(Store.open(site.job.mirror), "job", record.id, record.manifest_digest)
    assert await site.metric('holdfast_agent_mirror_caught_up_total{training_job="job"}') == 1
    for path in site.chunks(site.second):
        path.write_bytes(b"rotten" + path.read_bytes()[6:])
    second = await site.answer(scrub, events.Scrubbed)
    assert (second.repaired, second.corrupt) == (len(site.chunks(site.second)), False)
    load.verify(Store.open(site.job.mirror), "job", record.id, record.manifest_digest)
    shutil.rmtree(site.second)
    site.second.write_text("no folder: the second storage is away")
    away = await site.answer(scrub, events.Scrubbed)
    assert (away.repaired, away.corrupt) == (0, False), "what is wrong with the mirror is no rot"


async def test_what_retention_gives_up_is_off_the_storage(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader)
    await site.keep("job.0", 9, 10, 20)
    first = await site.saved("job.0", 10)
    second = await site.saved("job.0", 20, base="10-1")
    assert second.bytes_written < first.bytes_written / 2
    order = effects.Collect("n0", site.job, (first.id,), (second.id,), ())
    collected = await site.answer(order, events.Collected)
    assert (collected.removed, collected.reason) == ((first.id,), "")
    assert collected.bytes_freed > 0
    assert [found.id for found in load.listing(Store.open(site.job.storage), "job")] == [second.id]
    load.verify(Store.open(site.job.storage), "job", second.id, second.manifest_digest)


async def test_a_storage_that_cannot_be_is_named(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader)
    await site.keep("job.0", 2, 10)
    (agent.base / "store").write_text("a file, not a folder")
    failed = await site.answer(site.persist("job.0", 10), events.PersistFailed)
    assert str(site.storage) in failed.reason
    (agent.base / "store").unlink()
    again = await site.answer(site.persist("job.0", 10), events.PartPersisted)
    assert again.part.step == 10
    await asyncio.sleep(0)


async def test_a_load_that_comes_too_late_is_refused_and_touches_nothing(
    agent: AgentProcess, leader: Leader
) -> None:
    """The rank trains: both slots are its own, whatever was ordered for it before."""
    site = Site(agent, leader)
    await site.keep("job.0", 2, 10)
    record = await site.saved("job.0", 10)
    before = site.held("job.0", 10)
    late = await site.answer(effects.Load("n0", "job.0", site.job, record), events.Loaded)
    assert "does not wait for a state any more" in late.reason and not late.corrupt
    fetch = effects.Fetch("n0", "job.0", "job", "job.0", 10, 1, "127.0.0.1:1")
    await leader.order(fetch)
    await until(lambda: leader.of(events.Fetched), "the answer to the late Fetch")
    assert leader.of(events.Fetched)[0].reason
    assert site.held("job.0", 10) == before
    with Arena.open(agent.memory / "job.0.arena") as arena:
        assert [slot.state for slot in arena.slots] == [SlotState.READY, SlotState.FREE]


async def test_a_checkpoint_that_became_suspect_is_marked_on_both_storages(
    agent: AgentProcess, leader: Leader
) -> None:
    site = Site(agent, leader, mirror=True)
    await site.keep("job.0", 1, 10)
    part = await site.answer(site.persist("job.0", 10), events.PartPersisted)
    record = (await site.answer(site.seal([part.part]), events.Persisted)).record
    await site.answer(effects.Mirror("n0", site.job, record), events.Mirrored)
    await site.answer(effects.Publish("n0", site.job, record), events.Published)
    for again in ("replicas differed", "a later word"):
        bad = dataclasses.replace(record, manifest_digest="", bad=again)
        assert (await site.answer(effects.Publish("n0", site.job, bad), events.Published)).reason == ""
    (found,) = load.listing(Store.open(site.job.storage), "job")
    assert found.suspect == "replicas differed", "the first mark stays"
    load.verify(Store.open(site.job.storage), "job", record.id, record.manifest_digest)
    assert suspect.reasons(Store.open(site.job.mirror), "job") == {record.id: "replicas differed"}
    shutil.rmtree(site.storage / "jobs/job/suspect")
    (site.storage / "jobs/job/suspect").write_text("in the way")
    bad = dataclasses.replace(record, manifest_digest="", bad="a third word")
    failed = await site.answer(effects.Publish("n0", site.job, bad), events.Published)
    assert failed.understood and failed.reason, "not taken for an agent that does not know marks"
