"""The limit of a resize: bare torch goes from a group of three to one of two and back, at fixed steps.

`python regroup.py LOGS RANK PORT TURNS`: without decision and state, what remains is torch itself. Logs the
pause between the last collective of one group and the first of the next, as `pause`."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from benchmarks.log import EventLog
from benchmarks.workers.model import STEP_S

LARGE, SMALL, STEPS = 3, 2, 10


def main() -> None:
    """Take every turn; in the odd ones, with the small group, the last rank sits out."""
    rank, port, turns = map(int, sys.argv[2:])
    log = EventLog(Path(sys.argv[1]), rank=rank)
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    last = 0.0
    for turn in range(turns):
        world = LARGE if turn % 2 == 0 else SMALL
        if rank >= world:
            continue
        met = PrefixStore(str(turn), store)
        dist.init_process_group("gloo", store=met, rank=rank, world_size=world, timeout=timedelta(seconds=60))
        dist.all_reduce(torch.ones(1000))
        if last:
            log("pause", turn=turn, s=time.monotonic() - last)
        for _ in range(STEPS):
            time.sleep(STEP_S)
            dist.all_reduce(torch.ones(1000))
        last = time.monotonic() if rank < SMALL else 0.0
        dist.destroy_process_group()
    log("done")
    time.sleep(5)  # rank 0 serves the store: stay until the driver kills this process


main()
