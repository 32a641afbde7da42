"""Nothing of a deleted job is left in a real etcd, however many generations it has had."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events
from controlplane.core.records.model import CheckpointRecord, Generation, JobPhase, JobSpec, JobState
from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.store import RecordStore
from controlplane.daemon.leadership import accounts
from controlplane.daemon.leadership.recorder import StoreWriter
from controlplane.daemon.leadership.rows import PRUNED_MAX, RecordMapping
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.daemon.telemetry.observer import Observer
from tests.daemon.etcd_fixtures import first
from tests.wire.test_codec import sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.leadership.recorder import Commit

GENERATIONS = 150
"""More than etcd takes in one transaction."""


def writes(job: str, generations: int) -> list[fx.Store]:
    """All that a leader has written of a job."""
    state = JobState(job, JobPhase.STOPPED, "enough")
    made: list[fx.Store] = [fx.StoreJob(job, state, JobSpec(job, ("train.py",), "/"))]
    made += [
        fx.StoreJob(job, state, generation=generation(job, number)) for number in range(1, generations + 1)
    ]
    record = CheckpointRecord(job, "5-1", 5, 1, "full", "5-1", "d", 1, 1, ((0, 5),))
    return [*made, fx.StoreCheckpoint(job, record)]


def generation(job: str, number: int) -> Generation:
    whole: Generation = sample(Generation)
    return dataclasses.replace(whole, job=job, number=number, term=1)


async def written(store: Commit, records: RecordMapping, term: int, effects: list[fx.Store]) -> None:
    """Have these writes done, in order."""
    writer = StoreWriter(store, records, lambda _event: None, term, Metrics("0"))
    task = asyncio.create_task(writer.run())
    for ticket, effect in enumerate(effects, 1):
        answer = writer.outcome(ticket)
        writer.add(_numbered(effect, ticket))
        assert await answer == ""
    task.cancel()
    await asyncio.wait([task])


def _numbered(effect: fx.Store, ticket: int) -> fx.Store:
    return dataclasses.replace(effect, ticket=ticket)


async def test_only_the_newest_generation_keeps_a_key(etcd: Etcd, keys: Keyspace) -> None:
    async with await first(Election(etcd, keys, b"me", ttl_s=60).campaign()) as leadership:
        term, store = leadership.term, RecordStore(etcd, keys)
        await written(store, RecordMapping(keys), term, writes("j", 40))
        assert await generations(store) == [keys.rdzv("j", 40)]


async def test_what_earlier_leaders_have_left_goes_with_the_next_generations(
    etcd: Etcd, keys: Keyspace
) -> None:
    async with await first(Election(etcd, keys, b"me", ttl_s=60).campaign()) as leadership:
        term, store, records = leadership.term, RecordStore(etcd, keys), RecordMapping(keys)
        await written(store, RecordMapping(keys), term, writes("j", 1))
        await left_behind(store, keys, term)
        records.elected(term, {row.key: row.value for row in (await store.load()).rows})
        made: list[fx.Store] = [
            fx.StoreJob("j", JobState("j", JobPhase.STOPPED, ""), generation=generation("j", GENERATIONS + n))
            for n in range(1, GENERATIONS // PRUNED_MAX + 2)
        ]
        await written(store, records, term, made)
        assert await generations(store) == [keys.rdzv("j", GENERATIONS + len(made))]


async def test_a_deletion_that_etcd_refused_is_made_again(keys: Keyspace) -> None:
    records = RecordMapping(keys)
    for effect in writes("j", 2):
        records.puts(effect)  # what came of these writes is not known
    assert {keys.rdzv("j", 1), keys.rdzv("j", 2)} <= records.puts(fx.ForgetJob("j", ("5-1",))).keys()


async def left_behind(store: RecordStore, keys: Keyspace, term: int) -> None:
    """Write the keys of generations that an earlier version has never deleted."""
    numbers = range(1, GENERATIONS + 1)
    for begin in range(0, GENERATIONS, 50):
        await store.commit(term, {keys.rdzv("j", number): b"seats" for number in numbers[begin : begin + 50]})


async def generations(store: RecordStore) -> list[str]:
    """The keys of generations that etcd has."""
    return [row.key for row in (await store.load()).rows if "/rdzv/" in row.key]


async def test_a_next_leader_deletes_what_former_ones_have_written(etcd: Etcd, keys: Keyspace) -> None:
    async with await first(Election(etcd, keys, b"me", ttl_s=60).campaign()) as leadership:
        term, store = leadership.term, RecordStore(etcd, keys)
        await written(store, RecordMapping(keys), term, [*writes("j", GENERATIONS), *writes("k", 1)])
        await store.commit(term, {keys.account("j"): b"{}", keys.findings("j"): b"{}"})
        others = {row.key for row in (await store.load()).rows if not row.key.startswith(keys.job("j"))}

        await left_behind(store, keys, term)
        store, records = RecordStore(etcd, keys), RecordMapping(keys)
        rows = {row.key: row.value for row in (await store.load()).rows}
        assert sum("/rdzv/" in key for key in rows) == GENERATIONS + 1
        records.elected(term, rows)
        await written(store, records, term, [fx.ForgetJob("j", ("5-1",))])
        assert {row.key for row in (await store.load()).rows} == others


async def test_a_deletion_that_is_repeated_leaves_what_came_after_it(keys: Keyspace) -> None:
    records = RecordMapping(keys)
    for effect in writes("j", 1):
        records.puts(effect)
    later = CheckpointRecord("j", "9-2", 9, 2, "full", "9-2", "d", 1, 1, ((0, 9),))
    records.puts(fx.StoreCheckpoint("j", later))
    puts = records.puts(fx.ForgetJob("j", ("5-1",)))
    assert puts[keys.checkpoint("j", 5, 1)] is None and keys.checkpoint("j", 9, 2) not in puts
    assert puts[keys.latest("j")] == b"9-2" and list(puts)[-1] == keys.spec("j")


async def test_the_account_of_a_deleted_job_is_deleted_and_not_taken_up(keys: Keyspace) -> None:
    rows: dict[str, bytes | None] = {}

    class Disk:
        async def commit(self, term: int, puts: Mapping[str, bytes | None]) -> int:
            rows.update(puts)
            return term

    observer = Observer(Metrics("0"))
    observer.event(events.JobSubmitted(JobSpec("j", ("train.py",), "/")))
    saver = accounts.saver(Disk(), keys, 1, observer)
    await saver.keep()
    left = rows[keys.account("j")]
    assert left is not None and not accounts.read(keys, {keys.account("j"): left})
    assert list(accounts.read(keys, {keys.account("j"): left, keys.spec("j"): b"{}"})) == ["j"]
    observer.effect(fx.ForgetJob("j"))
    await saver.keep()
    assert rows[keys.account("j")] is None and observer.account("j") is None
