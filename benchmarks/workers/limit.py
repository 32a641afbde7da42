"""The limit: bare torch forms a new group after a death, by ranks which know beforehand who will die.

`python limit.py LOGS RANK PORT VICTIM`: without detection, decision and state, what remains is torch itself:
the survivors form a group of three and reduce once.

`python limit.py LOGS RANK PORT VICTIM full`: a fifth process with rank 4, which has built everything and
waits, takes the place of the dead. The four form a group, rank 0 or the next survivor sends the state in one
broadcast, and all reduce once."""

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
from benchmarks.workers import model as workload
from benchmarks.workers.model import STEP_S

RANKS = 4
LIMIT = timedelta(seconds=60)


def main() -> None:
    """Reduce until a collective fails, then re-form and reduce once."""
    rank, port, victim = map(int, sys.argv[2:5])
    full = sys.argv[5:] == ["full"]
    log = EventLog(Path(sys.argv[1]), rank=rank)
    torch.set_num_threads(1)
    state = _state() if full else None
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    if rank < RANKS:
        prefix = PrefixStore("1", store)
        dist.init_process_group("gloo", store=prefix, rank=rank, world_size=RANKS, timeout=LIMIT)
        _reduce_until_broken(log)
        _abort_process_group()
        log("aborted")
    log("waiting")
    survivors = [other for other in range(RANKS) if other != victim]
    members = [*survivors, RANKS] if full else survivors
    dist.init_process_group(
        "gloo",
        store=PrefixStore("2", store),
        rank=members.index(rank),
        world_size=len(members),
        timeout=LIMIT,
    )
    if state is not None:
        dist.broadcast(state, 0)
    dist.all_reduce(ones := torch.ones(1000))
    log("resumed", total=float(ones[0]))
    time.sleep(5)  # rank 0 serves the store: stay until the driver kills this process


def _state() -> torch.Tensor:
    """As many bytes as the weights and AdamW's moments of the step that the others train."""
    model, _ = workload.build()
    return torch.zeros(3 * sum(parameter.numel() for parameter in model.parameters()))


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
