"""Three etcd members: their leader is killed, or stopped; nothing is lost or applied twice."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.rows import Changed, Put, modified_at
from controlplane.daemon.etcd.store import RecordStore
from tests.daemon.etcd_fixtures import client_of, first, until
from tests.daemon.etcd_members import leader_of, three_members

if TYPE_CHECKING:
    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from tests.daemon.etcd_members import Member


def all_of(members: list[Member]) -> Etcd:
    return client_of(*(member.endpoint for member in members), timeout_s=20, try_timeout_s=1.0)


class Counter:
    """Counts up under one key by compare-and-swap, and remembers what it was told."""

    def __init__(self, etcd: Etcd, key: str) -> None:
        self.etcd, self.key = etcd, key
        self.done = 0
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        revision = 0
        while not self._stop.is_set():
            put = Put(self.key, str(self.done + 1).encode())
            result = await self.etcd.txn([modified_at(self.key, revision)], [put])
            assert result.succeeded, "nobody else writes here"
            revision = result.revision
            self.done += 1

    async def goes_on(self) -> None:
        at = self.done
        await until(lambda: self.done > at + 20 or self._task.done(), "writes go on")
        assert not self._task.done(), self._task.exception()

    async def end(self) -> int:
        self._stop.set()
        await self._task
        return self.done


async def test_the_leader_killed_under_writers_and_watchers(keys: Keyspace) -> None:
    async with three_members() as members, all_of(members) as etcd, etcd.watch(keys.nodes) as updates:
        await first(anext(updates))
        counters = [Counter(etcd, keys.node(f"n{n}")) for n in range(4)]
        for _ in range(2):
            await asyncio.gather(*(counter.goes_on() for counter in counters))
            leader = await leader_of(members)
            leader.kill()
            await asyncio.gather(*(counter.goes_on() for counter in counters))
            leader.start()
        totals = {counter.key: await counter.end() for counter in counters}
        rows = {row.key: row for row in (await etcd.list(keys.nodes)).rows}
        assert {key: (int(row.value), row.version) for key, row in rows.items()} == {
            key: (total, total) for key, total in totals.items()
        }
        told: dict[str, list[int]] = {key: [] for key in totals}
        while any(len(told[key]) < total for key, total in totals.items()):
            update = await first(anext(updates))
            assert isinstance(update, Changed)
            for change in update.changes:
                assert change.row is not None
                told[change.key].append(int(change.row.value))
        assert told == {key: list(range(1, total + 1)) for key, total in totals.items()}


async def test_a_leader_term_outlives_etcds_own_leader(keys: Keyspace) -> None:
    async with (
        three_members() as members,
        all_of(members) as etcd,
        await first(Election(etcd, keys, b"me", ttl_s=9).campaign()) as leadership,
    ):
        records = RecordStore(etcd, keys)
        await records.commit(leadership.term, {keys.generation("j"): b"1"})
        (await leader_of(members)).kill()
        await records.commit(leadership.term, {keys.generation("j"): b"2"})
        before = leadership.valid_until()
        await until(lambda: leadership.valid_until() > before + 1, "keepalives go on")
        row = await etcd.get(keys.generation("j"))
        assert leadership.held and row is not None and (row.value, row.version) == (b"2", 2)


async def test_a_leader_of_etcd_that_is_stopped_is_passed_by(keys: Keyspace) -> None:
    """Its port takes connections and says nothing; woken, it is not believed, nor does it undo anything."""
    async with three_members() as members:
        frozen = await leader_of(members)
        others = [member for member in members if member is not frozen]
        async with all_of([frozen, *others]) as etcd, etcd.watch(keys.nodes) as updates:
            await first(anext(updates))
            frozen.signal(signal.SIGSTOP)
            counter = Counter(etcd, keys.node("n"))
            await counter.goes_on()
            frozen.signal(signal.SIGCONT)
            await counter.goes_on()
            total, seen = await counter.end(), 0
            while seen < total:
                update = await first(anext(updates))
                assert isinstance(update, Changed)
                seen += len(update.changes)
            row = await etcd.get(keys.node("n"))
            assert row is not None and (int(row.value), row.version, seen) == (total, total, total)


async def test_without_a_quorum_nothing_is_written_and_nobody_waits_for_ever(keys: Keyspace) -> None:
    async with three_members() as members, all_of(members) as etcd:
        counter = Counter(etcd, keys.node("n"))
        await counter.goes_on()
        for member in members[:2]:
            member.kill()
        at = counter.done
        members[0].start()
        await until(lambda: counter.done > at + 20, "writes go on once two of three are back")
        total = await counter.end()
        row = await etcd.get(keys.node("n"))
        assert row is not None and (int(row.value), row.version) == (total, total)
