"""Reads, compare-and-swap writes and leases of our etcd client, on a real etcd."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.errors import EtcdUnknownOutcome, LeaseLost, ValueTooLarge
from controlplane.daemon.etcd.keyspace import MAX_VALUE_BYTES
from controlplane.daemon.etcd.rows import Compare, Put, absent, applies_once, created_at, modified_at
from tests.daemon.etcd_fixtures import Proxy, client_of, gateway

if TYPE_CHECKING:
    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.server import PrivateEtcd


async def test_a_row_comes_back_as_it_was_written(etcd: Etcd, keys: Keyspace) -> None:
    assert await etcd.get(keys.meta) is None
    created = await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"\x00\xff one")])
    row = await etcd.get(keys.meta)
    assert row is not None and created.succeeded
    assert (row.value, row.create_revision, row.mod_revision, row.version) == (
        b"\x00\xff one", created.revision, created.revision, 1,
    )  # fmt: skip
    changed = await etcd.txn([modified_at(keys.meta, row.mod_revision)], [Put(keys.meta, b"two")])
    assert changed.succeeded and changed.revision > created.revision and not changed.read_back
    deleted = await etcd.txn([created_at(keys.meta, created.revision)], deletes=[keys.meta])
    assert deleted.succeeded and await etcd.get(keys.meta) is None


async def test_a_failed_comparison_writes_nothing_and_shows_what_is_there(etcd: Etcd, keys: Keyspace) -> None:
    await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"mine")])
    lost = await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"x"), Put(keys.config, b"y")])
    assert not lost.succeeded
    assert {key: row.value for key, row in lost.rows.items()} == {keys.meta: b"mine"}
    assert await etcd.get(keys.config) is None


async def test_one_of_many_writers_wins(etcd: Etcd, keys: Keyspace) -> None:
    results = await asyncio.gather(
        *(etcd.txn([absent(keys.leader)], [Put(keys.leader, str(n).encode())]) for n in range(20))
    )
    row = await etcd.get(keys.leader)
    assert row is not None
    assert [n for n, result in enumerate(results) if result.succeeded] == [int(row.value)]


@pytest.mark.parametrize(
    ("compares", "puts", "deletes"),
    [
        ([], ["a"], []),
        ([absent("b")], ["a"], []),
        ([created_at("a", 7)], ["a"], []),
        ([Compare("a", value=b"new")], ["a"], []),
        ([modified_at("a", 0)], [], ["a"]),
        ([absent("a")], [], ["a"]),
    ],
)
async def test_a_write_that_could_apply_twice_is_refused(
    etcd: Etcd, compares: list[Compare], puts: list[str], deletes: list[str]
) -> None:
    writes = [Put(key, b"new") for key in puts]
    assert not applies_once(compares, writes, deletes)
    with pytest.raises(ValueError, match="blind write of a"):
        await etcd.txn(compares, writes, deletes)


async def test_a_lost_answer_is_read_back_and_not_applied_again(
    etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with (
        Proxy(etcd_server.endpoint) as proxy,
        client_of(proxy.endpoint, etcd_server.endpoint, try_timeout_s=0.5) as client,
    ):
        assert await client.get(keys.meta) is None
        proxy.deaf = True
        result = await client.txn([absent(keys.meta)], [Put(keys.meta, b"once")])
        assert result.succeeded and result.read_back and proxy.swallowed_bytes
        row = await client.get(keys.meta)
        assert row is not None and (row.version, row.mod_revision) == (1, result.revision)


async def test_a_lost_answer_is_not_taken_for_success_when_another_won(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with (
        Proxy(etcd_server.endpoint) as proxy,
        client_of(proxy.endpoint, etcd_server.endpoint, try_timeout_s=0.5) as client,
    ):
        assert await client.get(keys.meta) is None
        await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"theirs")])
        proxy.deaf = True
        result = await client.txn([absent(keys.meta)], [Put(keys.meta, b"ours")])
        assert not result.succeeded and result.rows[keys.meta].value == b"theirs"


async def test_without_any_answer_the_outcome_is_called_unknown(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with (
        Proxy(etcd_server.endpoint) as proxy,
        client_of(proxy.endpoint, timeout_s=1.0, try_timeout_s=0.4) as client,
    ):
        assert await client.get(keys.meta) is None
        proxy.deaf = True
        with pytest.raises(EtcdUnknownOutcome, match=proxy.endpoint):
            await client.txn([absent(keys.meta)], [Put(keys.meta, b"once")])
        row = await etcd.get(keys.meta)
        assert row is not None and row.version == 1


async def test_a_long_list_is_read_in_pages_at_one_revision(etcd: Etcd, keys: Keyspace) -> None:
    names = [keys.node(f"n{n:03}") for n in range(250)]
    for part in range(0, 250, 100):
        await etcd.txn([absent(name) for name in names[part : part + 100]],
                       [Put(name, name.encode()) for name in names[part : part + 100]])  # fmt: skip
    listing = await etcd.list(keys.nodes, page=7)
    assert [row.key for row in listing.rows] == names
    assert max(row.mod_revision for row in listing.rows) == listing.revision
    assert (await etcd.list(keys.nodes)).rows == listing.rows
    assert (await etcd.list(keys.jobs)).rows == ()


async def test_a_key_that_is_no_text_survives(etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace) -> None:
    body = {"key": "L2hmLXRlc3Qv//4=", "value": "eA=="}  # /hf-test/ and the bytes ff fe
    await gateway(etcd_server.endpoint, "kv/put", **body)
    (row,) = (await etcd.list("/hf-test/")).rows
    assert row.key.encode("utf-8", "surrogateescape") == b"/hf-test/\xff\xfe"
    assert (await etcd.txn([modified_at(row.key, row.mod_revision)], deletes=[row.key])).succeeded


async def test_values_too_large_are_refused_by_name(etcd: Etcd, keys: Keyspace) -> None:
    with pytest.raises(
        ValueTooLarge,
        match=rf"{keys.meta} has {MAX_VALUE_BYTES + 1} bytes.*{MAX_VALUE_BYTES} at most.*digest",
    ):
        await etcd.txn([absent(keys.meta)], [Put(keys.meta, bytes(MAX_VALUE_BYTES + 1))])
    many = [keys.node(f"n{n}") for n in range(5)]
    with pytest.raises(ValueTooLarge, match="one transaction of 5 values"):
        await etcd.txn([absent(many[0])], [Put(key, bytes(MAX_VALUE_BYTES)) for key in many])
    with pytest.raises(ValueError, match="130 operations in one transaction, 128 at most"):
        more = [keys.node(f"n{n}") for n in range(130)]
        await etcd.txn([absent(more[0])], [Put(key, b"") for key in more])
    assert (await etcd.list(keys.prefix)).rows == ()
    largest = await etcd.txn([absent(keys.meta)], [Put(keys.meta, bytes(MAX_VALUE_BYTES))])
    assert largest.succeeded


async def test_a_lease_takes_its_keys_along(etcd: Etcd, keys: Keyspace) -> None:
    lease, key = await etcd.grant(10), keys.coordinator("c1")
    await etcd.txn([absent(key)], [Put(key, b"", lease.id)])
    renewed = await etcd.keepalive(lease.id)
    assert (lease.ttl_s, renewed.ttl_s, renewed.id) == (10.0, 10.0, lease.id)
    assert renewed.sent_at > lease.sent_at
    await etcd.revoke(lease.id)
    assert await etcd.get(key) is None
    with pytest.raises(LeaseLost, match=f"{lease.id:x}"):
        await etcd.keepalive(lease.id)
    with pytest.raises(LeaseLost):
        await etcd.txn([absent(key)], [Put(key, b"", lease.id)])
    await etcd.revoke(lease.id)


async def test_a_lease_granted_twice_by_a_lost_answer_is_one_lease(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with (
        Proxy(etcd_server.endpoint) as proxy,
        client_of(proxy.endpoint, etcd_server.endpoint, try_timeout_s=0.5) as client,
    ):
        assert await client.get(keys.meta) is None
        proxy.deaf = True
        lease = await client.grant(10)
        assert lease.ttl_s == 10.0
        await etcd.revoke(lease.id)
