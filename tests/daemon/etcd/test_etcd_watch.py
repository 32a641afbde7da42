"""A watch misses nothing: etcd killed under it, history compacted away, waits cancelled, answers lost."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.errors import EtcdError
from controlplane.daemon.etcd.rows import Changed, Listed, Put, absent, modified_at
from tests.daemon.etcd_fixtures import Proxy, client_of, first, gateway, until

if TYPE_CHECKING:
    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.server import PrivateEtcd
    from controlplane.daemon.etcd.watch import EtcdWatch


async def write(etcd: Etcd, key: str, *values: str) -> int:
    """Write the key once per value; returns the last revision."""
    row = await etcd.get(key)
    revision = row.mod_revision if row else 0
    for value in values:
        result = await etcd.txn([modified_at(key, revision)], [Put(key, value.encode())])
        assert result.succeeded
        revision = result.revision
    return revision


async def values(updates: EtcdWatch, count: int) -> list[str]:
    """The next `count` written values; fails on a listing."""
    told: list[str] = []
    async with asyncio.timeout(20):
        while len(told) < count:
            update = await anext(updates)
            assert isinstance(update, Changed)
            told += [change.row.value.decode() if change.row else "-" for change in update.changes]
    return told


async def test_it_lists_and_then_tells_every_change_in_order(etcd: Etcd, keys: Keyspace) -> None:
    await write(etcd, keys.node("a"), "1")
    async with etcd.watch(keys.nodes) as updates:
        listed = await first(anext(updates))
        assert isinstance(listed, Listed) and listed.compacted == 0
        assert [(row.key, row.value) for row in listed.rows] == [(keys.node("a"), b"1")]
        await write(etcd, keys.node("b"), "2", "3")
        await write(etcd, keys.config, "not below nodes/")
        row = await etcd.get(keys.node("a"))
        assert row is not None
        await etcd.txn([modified_at(row.key, row.mod_revision)], deletes=[row.key])
        assert await values(updates, 3) == ["2", "3", "-"]


async def test_one_transaction_is_told_as_one_change(etcd: Etcd, keys: Keyspace) -> None:
    async with etcd.watch(keys.prefix) as updates:
        await first(anext(updates))
        puts = [Put(keys.generation("j"), b"7"), Put(keys.rdzv("j", 7), b"seats")]
        result = await etcd.txn([absent(keys.generation("j"))], puts)
        update = await first(anext(updates))
    assert isinstance(update, Changed) and update.revision == result.revision
    assert [change.key for change in update.changes] == [put.key for put in puts]


async def test_from_a_revision_it_tells_what_came_after(etcd: Etcd, keys: Keyspace) -> None:
    revision = await write(etcd, keys.meta, "1", "2")
    await write(etcd, keys.meta, "3", "4")
    async with etcd.watch(keys.prefix, revision) as updates:
        assert await values(updates, 2) == ["3", "4"]


async def test_etcd_killed_under_it_and_restarted(own_server: PrivateEtcd, keys: Keyspace) -> None:
    async with client_of(own_server.endpoint) as etcd, etcd.watch(keys.prefix) as updates:
        await first(anext(updates))
        for round_ in range(3):
            waiting = asyncio.create_task(values(updates, 2))
            os.kill(own_server.pid, signal.SIGKILL)
            await until(lambda: not own_server.alive, "etcd is dead")
            await own_server.start()
            await write(etcd, keys.meta, f"{round_}a", f"{round_}b")
            assert await waiting == [f"{round_}a", f"{round_}b"]


async def test_what_happened_while_it_was_cut_off_is_told_later(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with Proxy(etcd_server.endpoint) as proxy, client_of(proxy.endpoint) as client:
        async with client.watch(keys.prefix) as updates:
            await first(anext(updates))
            waiting = asyncio.create_task(values(updates, 4))
            await write(etcd, keys.meta, "1", "2")
            proxy.cut()
            await write(etcd, keys.meta, "3", "4")
            assert await waiting == ["1", "2", "3", "4"]


async def test_a_cancelled_wait_loses_nothing(etcd: Etcd, keys: Keyspace) -> None:
    """Waits are cancelled before, while and after changes arrive."""
    async with etcd.watch(keys.prefix) as updates:
        await first(anext(updates))
        with pytest.raises(TimeoutError):  # nothing is written yet: this wait is cancelled for certain
            await first(values(updates, 1), timeout_s=0.002)
        writing = asyncio.create_task(write(etcd, keys.meta, *map(str, range(100))))
        told: list[str] = []
        cancelled = 0
        while len(told) < 100:
            try:
                told += await first(values(updates, 1), timeout_s=0.002 + 0.0005 * (cancelled % 20))
            except TimeoutError:
                cancelled += 1
                assert cancelled < 5000, f"only {len(told)} changes were told"
        await writing
    assert told == [str(number) for number in range(100)]


async def test_it_ends_with_its_client(etcd_server: PrivateEtcd, keys: Keyspace) -> None:
    client = client_of(etcd_server.endpoint)
    async with client.watch(keys.prefix) as updates:
        await first(anext(updates))
        waiting = asyncio.create_task(anext(updates))
        await asyncio.sleep(0)
        await client.close()
        (ended,) = await first(asyncio.gather(waiting, return_exceptions=True))
        assert isinstance(ended, EtcdError | asyncio.CancelledError)
        with pytest.raises(EtcdError, match="this etcd client is closed"):
            await client.get(keys.meta)


async def test_history_compacted_away_under_it_lists_anew_and_says_so(
    own_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with client_of(own_server.endpoint) as etcd, Proxy(own_server.endpoint) as proxy:
        revision = await write(etcd, keys.meta, "1")
        async with client_of(proxy.endpoint) as cut_off, cut_off.watch(keys.prefix, revision) as updates:
            await write(etcd, keys.meta, "2")
            assert await values(updates, 1) == ["2"]
            proxy.cut()
            newest = await write(etcd, keys.meta, "3", "4", "5")
            await gateway(own_server.endpoint, "kv/compaction", revision=newest, physical=True)
            update = await first(anext(updates))
            assert isinstance(update, Listed) and update.compacted == newest
            assert [row.value for row in update.rows] == [b"5"]
            await write(etcd, keys.meta, "6")
            assert await values(updates, 1) == ["6"]


async def test_from_a_compacted_revision_it_begins_with_a_listing(
    own_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with client_of(own_server.endpoint) as etcd:
        oldest = await write(etcd, keys.meta, "1")
        newest = await write(etcd, keys.meta, "2", "3")
        await gateway(own_server.endpoint, "kv/compaction", revision=newest)
        async with etcd.watch(keys.prefix, oldest) as updates:
            update = await first(anext(updates))
    assert isinstance(update, Listed) and update.compacted == newest and update.rows[0].value == b"3"


async def test_a_list_longer_than_history_starts_again(own_server: PrivateEtcd, keys: Keyspace) -> None:
    """Compaction between two pages of a list."""
    async with client_of(own_server.endpoint) as etcd:
        for n in range(30):
            await write(etcd, keys.node(f"n{n:02}"), "x")

        async def compact() -> None:
            for n in range(30):
                revision = await write(etcd, keys.meta, str(n))
                await gateway(own_server.endpoint, "kv/compaction", revision=revision)

        compacting = asyncio.create_task(compact())
        while not compacting.done():
            listing = await etcd.list(keys.nodes, page=3)
            assert len(listing.rows) == 30
        await compacting
