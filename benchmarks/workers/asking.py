"""Submit a job to one coordinator until it is taken, from a process that is running already.

`asking.py ADDRESS JOB SCRIPT` prints `ready` at the first refusal, then the time (s, CLOCK_MONOTONIC) when
the answer came that the job is taken and stored. A new process of `holdfast submit` for each try could take
longer to start than a failover."""

from __future__ import annotations

import asyncio
import sys
import time

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import UnreachableError
from controlplane.core.records.model import JobSpec

PAUSE_S = 0.02
RANKS = 9  # more than a node has room for: it never starts


async def ask(address: str, job: str, script: str) -> None:
    """Ask until the job is taken. Raises CliError when it is refused for good."""
    spec = JobSpec(job, (script,), "/", nproc_per_node=RANKS)
    refused = False
    async with AdminClient(address) as admin:
        while True:
            try:
                await admin.submit(spec)
                print(time.monotonic(), flush=True)
                return
            except UnreachableError:
                if not refused:
                    print("ready", flush=True)
                refused = True
                await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(ask(*sys.argv[1:4]))
