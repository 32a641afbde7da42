"""Work that gives way to the training, also where all of the agent is nice already."""

from __future__ import annotations

import subprocess
import sys

NICE = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from holdfast.checkpoint import priority
from agent.peers.threads import nice_pool
from agent.orders.snapshot_queue import NICE
os.nice(max(0, 15 - os.nice(0)))
if os.getuid() == 0:
    os.setuid(65534)
way = priority.give_way
pools = [ThreadPoolExecutor(1, initializer=way, initargs=(nice,)) for nice in (*NICE.values(), 10)]
for pool in (*pools, nice_pool(1, "peers")):
    assert pool.submit(os.getpriority, os.PRIO_PROCESS, 0).result() >= 15
"""


def test_an_agent_that_was_started_nice_works_all_the_same() -> None:
    """`nice -n 15 holdfast agent`, and no right to be less nice than that."""
    subprocess.run([sys.executable, "-c", NICE], check=True, timeout=100)
