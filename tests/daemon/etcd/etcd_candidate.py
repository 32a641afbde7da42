"""A candidate in an election, in its own process: `python -m tests.daemon.etcd.etcd_candidate ENDPOINT
CLUSTER NAME TTL`.

It prints `term <n>` when it leads, and `lost <reason>` when it does not lead any more. A line on standard
input makes it resign."""

from __future__ import annotations

import asyncio
import sys

from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.etcd.target import EtcdTarget


async def main(endpoint: str, cluster: str, name: str, ttl: str) -> None:
    async with Etcd(EtcdTarget((endpoint,), private=True)) as etcd:
        print("standing", flush=True)
        election = Election(etcd, Keyspace(cluster), name.encode(), ttl_s=float(ttl))
        leadership = await election.campaign()
        print(f"term {leadership.term}", flush=True)
        resigning = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        losing = asyncio.create_task(leadership.lost.wait())
        await asyncio.wait([resigning, losing], return_when=asyncio.FIRST_COMPLETED)
        losing.cancel()
        await leadership.resign()
        print(f"lost {leadership.reason}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
