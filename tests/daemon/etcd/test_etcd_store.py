"""Records are written by the present leader, all or nothing, exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.errors import (
    Conflict,
    EtcdUnavailable,
    EtcdUnknownOutcome,
    Fenced,
    ValueTooLarge,
)
from controlplane.daemon.etcd.rows import Put, absent, modified_at
from controlplane.daemon.etcd.store import RecordStore
from tests.daemon.etcd_fixtures import Proxy, client_of, first, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.server import PrivateEtcd


@pytest.fixture
async def term(etcd: Etcd, keys: Keyspace) -> AsyncIterator[int]:
    async with await first(Election(etcd, keys, b"me", ttl_s=60).campaign()) as leadership:
        yield leadership.term


async def value(etcd: Etcd, key: str) -> bytes | None:
    row = await etcd.get(key)
    return row.value if row else None


async def test_what_is_committed_is_loaded_at_one_revision(etcd: Etcd, keys: Keyspace, term: int) -> None:
    records = RecordStore(etcd, keys)
    written: dict[str, bytes | None] = {
        keys.spec("j"): b"spec",
        keys.generation("j"): b"1",
        keys.rdzv("j", 1): b"seats",
        keys.checkpoint("j", 10, 1): b"manifest",
        keys.latest("j"): b"10-1",
    }
    revision = await records.commit(term, written)
    listing = await RecordStore(etcd, keys).load()
    rows = {row.key: row for row in listing.rows}
    assert rows.pop(keys.leader).create_revision == term
    assert {key: row.value for key, row in rows.items()} == written
    assert {row.mod_revision for row in rows.values()} == {revision} and listing.revision >= revision


async def test_records_are_rewritten_and_deleted(etcd: Etcd, keys: Keyspace, term: int) -> None:
    records = RecordStore(etcd, keys)
    await records.commit(term, {keys.state("j"): b"1", keys.meta: b"m"})
    await records.commit(term, {keys.state("j"): b"2", keys.meta: None, keys.config: None})
    await records.commit(term, {keys.state("j"): b"2", keys.config: b"c"})
    await records.commit(term, {keys.node("never-there"): None})
    assert [await value(etcd, key) for key in (keys.state("j"), keys.meta, keys.config)] == [b"2", None, b"c"]


async def test_a_former_leader_writes_nothing(etcd: Etcd, keys: Keyspace) -> None:
    old = await first(Election(etcd, keys, b"old").campaign())
    records = RecordStore(etcd, keys)
    await records.commit(old.term, {keys.generation("j"): b"1"})
    await old.resign()
    with pytest.raises(Fenced, match="nobody leads"):
        await records.commit(old.term, {keys.generation("j"): b"2"})
    async with await first(Election(etcd, keys, b"new").campaign()) as new:
        with pytest.raises(Fenced, match=f"term {old.term} is over, term {new.term} leads"):
            await records.commit(old.term, {keys.generation("j"): b"2"})
        assert await value(etcd, keys.generation("j")) == b"1"


async def test_a_foreign_change_is_a_conflict_once(etcd: Etcd, keys: Keyspace, term: int) -> None:
    records = RecordStore(etcd, keys)
    revision = await records.commit(term, {keys.state("j"): b"ours"})
    await etcd.txn([modified_at(keys.state("j"), revision)], [Put(keys.state("j"), b"theirs")])
    with pytest.raises(Conflict, match="someone else changed one of"):
        await records.commit(term, {keys.state("j"): b"next", keys.meta: b"m"})
    assert (await value(etcd, keys.state("j")), await value(etcd, keys.meta)) == (b"theirs", None)
    await records.commit(term, {keys.state("j"): b"next", keys.meta: b"m"})
    assert await value(etcd, keys.state("j")) == b"next"


async def test_a_condition_of_the_caller_holds_or_nothing_is_written(
    etcd: Etcd, keys: Keyspace, term: int
) -> None:
    records = RecordStore(etcd, keys)
    await records.commit(term, {keys.spec("j"): b"1"}, [absent(keys.state("j"))])
    with pytest.raises(Conflict, match=f"a condition on {keys.spec('j')} does not hold"):
        await records.commit(term, {keys.meta: b"1"}, [absent(keys.spec("j"))])
    assert await value(etcd, keys.meta) is None


async def test_keys_of_others_and_large_values_are_refused(etcd: Etcd, keys: Keyspace, term: int) -> None:
    records = RecordStore(etcd, keys)
    for key in ("/elsewhere", keys.leader):
        with pytest.raises(ValueError, match="is not a record of the cluster"):
            await records.commit(term, {key: b""})
    with pytest.raises(ValueTooLarge, match=keys.spec("j")):
        await records.commit(term, {keys.spec("j"): bytes(500_000)})


async def test_lost_answers_neither_repeat_nor_lose_a_commit(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace, term: int
) -> None:
    """etcd applies what it is sent, and every answer is lost: then a later commit goes on from there."""
    async with (
        Proxy(etcd_server.endpoint) as proxy,
        client_of(proxy.endpoint, timeout_s=0.8, try_timeout_s=0.3) as client,
    ):
        records = RecordStore(client, keys)
        await records.commit(term, {keys.generation("j"): b"1"})
        for number in (b"2", b"3"):
            proxy.deaf = True
            with pytest.raises(EtcdUnknownOutcome):
                await records.commit(term, {keys.generation("j"): number})
        proxy.deaf = False
        proxy.cut()
        await records.commit(term, {keys.generation("j"): b"4"})
        row = await etcd.get(keys.generation("j"))
        assert row is not None and row.value == b"4" and row.version in (3, 4)


async def test_a_commit_cancelled_in_mid_air_is_known_again(
    etcd_server: PrivateEtcd, keys: Keyspace, term: int
) -> None:
    async with Proxy(etcd_server.endpoint) as proxy, client_of(proxy.endpoint) as client:
        records = RecordStore(client, keys)
        await records.commit(term, {keys.state("j"): b"1", keys.meta: b"m"})
        proxy.deaf = True
        with pytest.raises(TimeoutError):
            await first(records.commit(term, {keys.state("j"): b"2", keys.meta: None}), timeout_s=0.5)
        assert proxy.swallowed_bytes
        proxy.deaf = False
        proxy.cut()
        await records.commit(term, {keys.state("j"): b"3", keys.meta: b"n"})
        rows = {row.key: row.value for row in (await records.load()).rows}
        assert (rows[keys.state("j")], rows[keys.meta]) == (b"3", b"n")


async def test_etcd_killed_again_and_again_while_a_leader_writes(
    own_server: PrivateEtcd, keys: Keyspace
) -> None:
    """Every commit is applied exactly once: versions count them, generation and rdzv stay together."""
    async with (
        client_of(own_server.endpoint, timeout_s=20) as etcd,
        await first(Election(etcd, keys, b"me", ttl_s=60).campaign()) as leadership,
    ):
        records, done = RecordStore(etcd, keys), 0

        async def write() -> None:
            nonlocal done
            while not stop.is_set():
                number = str(done + 1).encode()
                await records.commit(
                    leadership.term, {keys.generation("j"): number, keys.rdzv("j", done + 1): number}
                )
                done += 1

        stop = asyncio.Event()
        writing = asyncio.create_task(write())
        for _ in range(4):
            at = done
            await until(lambda at=at: done > at + 20, "commits go on")  # type: ignore[misc]
            os.kill(own_server.pid, signal.SIGKILL)
            await until(lambda: not own_server.alive, "etcd is dead")
            await own_server.start()
        stop.set()
        await writing
        listing = await etcd.list(keys.job("j"))
        rows = {row.key: row for row in listing.rows}
        assert rows[keys.generation("j")].version == done
        assert len(rows) == done + 1
        assert all(row.version == 1 for key, row in rows.items() if "/rdzv/" in key)


async def test_with_etcd_away_a_commit_says_so(own_server: PrivateEtcd, keys: Keyspace) -> None:
    async with client_of(own_server.endpoint, timeout_s=0.5) as etcd:
        await own_server.stop()
        with pytest.raises(EtcdUnavailable, match=f"{own_server.endpoint} cannot be reached") as raised:
            await RecordStore(etcd, keys).commit(1, {keys.meta: b""})
        assert not isinstance(raised.value, EtcdUnknownOutcome)
