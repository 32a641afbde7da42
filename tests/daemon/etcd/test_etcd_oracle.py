"""What our client wrote, as another client (`etcd3`, in a process of its own) sees it, and the reverse."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.rows import Changed, Put, absent
from controlplane.daemon.etcd.store import RecordStore
from tests.daemon.etcd_fixtures import first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.server import PrivateEtcd

    Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
async def oracle(etcd_server: PrivateEtcd) -> AsyncIterator[Ask]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.daemon.etcd.etcd_oracle", *etcd_server.endpoint.split(":")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "PYTHONWARNINGS": "ignore"},
    )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def ask(do: str, **arguments: Any) -> Any:
        stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        return json.loads(await first(stdout.readline(), 30))

    yield ask
    stdin.close()
    assert await first(stdout.read()) == b""
    await first(process.wait())


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


async def test_the_oracle_sees_what_we_wrote(etcd: Etcd, keys: Keyspace, oracle: Ask) -> None:
    async with await first(Election(etcd, keys, b"127.0.0.1:7070").campaign()) as leadership:
        records = RecordStore(etcd, keys)
        await records.commit(leadership.term, {keys.generation("j"): b"\x00\xff1", keys.rdzv("j", 1): b"s"})
        revision = await records.commit(leadership.term, {keys.generation("j"): bytes(200_000)})
        ours = [
            {
                "key": row.key,
                "value": b64(row.value),
                "create_revision": row.create_revision,
                "mod_revision": row.mod_revision,
                "version": row.version,
                "lease": row.lease,
            }
            for row in (await etcd.list(keys.prefix)).rows
        ]
        theirs = sorted(await oracle("rows", prefix=keys.prefix), key=lambda row: str(row["key"]))
        assert theirs == ours
        (leader,) = [row for row in theirs if row["key"] == keys.leader]
        assert (leader["create_revision"], leader["value"]) == (leadership.term, b64(b"127.0.0.1:7070"))
        (generation,) = [row for row in theirs if row["key"] == keys.generation("j")]
        assert (generation["mod_revision"], generation["version"]) == (revision, 2)
        lease = await oracle("lease", id=leader["lease"])
        assert lease["granted"] == 10 and 0 < lease["ttl"] <= 10 and lease["keys"] == [keys.leader]
    assert keys.leader not in [row["key"] for row in await oracle("rows", prefix=keys.prefix)]


async def test_we_see_what_the_oracle_writes(etcd: Etcd, keys: Keyspace, oracle: Ask) -> None:
    async with etcd.watch(keys.nodes) as updates:
        await first(anext(updates))
        value = bytes(range(256))
        revision = await oracle("put", key=keys.node("a"), value=b64(value))
        row = await etcd.get(keys.node("a"))
        assert row is not None and (row.value, row.mod_revision) == (value, revision)
        update = await first(anext(updates))
        assert isinstance(update, Changed) and update.changes[0].row == row


async def test_of_both_clients_creating_one_key_one_wins(etcd: Etcd, keys: Keyspace, oracle: Ask) -> None:
    for number in range(20):
        key = keys.node(f"n{number}")
        ours, theirs = await asyncio.gather(
            etcd.txn([absent(key)], [Put(key, b"ours")]), oracle("create", key=key, value="theirs")
        )
        row = await etcd.get(key)
        assert row is not None and row.version == 1
        assert (ours.succeeded, theirs) == (row.value == b"ours", row.value == b"theirs")


def test_our_own_process_never_loads_it() -> None:
    assert "etcd3" not in sys.modules
