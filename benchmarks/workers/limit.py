"""The limit: bare torch forms a group of three survivors of four ranks, which know beforehand who will die.

`python limit.py LOGS RANK PORT VICTIM`: without detection, decision and state, what remains is torch
itself."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import _abort_process_group

from benchmarks.log import EventLog
from benchmarks.workers.model import STEP_S

RANKS = 4


def main() -> None:
    """Reduce until a collective fails, then re-form and reduce once."""
    rank, port, victim = map(int, sys.argv[2:])
    log = EventLog(Path(sys.argv[1]), rank=rank)
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    limit = timedelta(seconds=30)
    dist.init_process_group("gloo", store=PrefixStore("1", store), rank=rank, world_size=RANKS, timeout=limit)
    _reduce_until_broken(log)
    _abort_process_group()
    log("aborted")
    survivors = [other for other in range(RANKS) if other != victim]
    dist.init_process_group(
        "gloo",
        store=PrefixStore("2", store),
        rank=survivors.index(rank),
        world_size=len(survivors),
        timeout=limit,
    )
    dist.all_reduce(ones := torch.ones(1000))
    log("resumed", total=float(ones[0]))
    time.sleep(5)  # rank 0 serves the store: stay until the driver kills this process


def _reduce_until_broken(log: EventLog) -> None:
    step = 0
    try:
        while True:
            time.sleep(STEP_S)
            dist.all_reduce(torch.ones(1000))
            step += 1
            log("step", step=step)
    except RuntimeError as error:
        log("error", message=str(error)[:200])


main()
