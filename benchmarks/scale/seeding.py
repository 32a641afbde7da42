"""Leave in etcd what a leader of a training fleet leaves there, so that the next one takes the fleet over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.etcd.rows import Put, absent
from controlplane.daemon.etcd.target import EtcdTarget
from controlplane.daemon.leadership.rows import RecordMapping

if TYPE_CHECKING:
    from benchmarks.scale.shape import Fleet

PUTS_MAX = 100
"""Rows of one transaction: etcd takes 128 operations by default."""


async def seed(endpoint: str, cluster: str, fleet: Fleet) -> None:
    """Write the rows, before any coordinator runs."""
    records, rows = RecordMapping(Keyspace(cluster)), []
    for record in fleet.records():
        rows += [Put(key, value) for key, value in records.puts(record).items() if value is not None]
    async with Etcd(EtcdTarget((endpoint,), private=True)) as etcd:
        for at in range(0, len(rows), PUTS_MAX):
            some = rows[at : at + PUTS_MAX]
            result = await etcd.txn([absent(row.key) for row in some], some)
            assert result.succeeded, "this etcd is new: nothing is in it"
