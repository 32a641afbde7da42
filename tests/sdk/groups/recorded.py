"""One rank of a gloo group that is asked for its flight record all the time, and then stands still.

`recorded.py STORE RANK SIZE PLANTED OUT`: reduces while a thread asks; then rank PLANTED leaves a collective
of the second group out, and all stand still. OUT/sum.RANK has what was summed and how often it was asked,
OUT/record.RANK the record of the standstill."""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

os.environ.update(TORCH_FR_BUFFER_SIZE="64", GLOO_SOCKET_IFNAME="lo")

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from holdfast.groups.flight_record import FlightRecord

STORE, RANK, SIZE, PLANTED, OUT = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
ROUNDS = 500
BYTES_MAX = 65_536
record = FlightRecord()
record.begin(1)
host, _, port = STORE.rpartition(":")
store = TCPStore(host, int(port), None, False, timeout=timedelta(seconds=60))
dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=600))
second = dist.new_group(list(range(SIZE)))
answers: list[int] = []
still = threading.Event()


def ask() -> None:
    while not still.is_set():
        answers.append(len(record.text(1, BYTES_MAX)))


def write(name: str, text: str) -> None:
    (OUT / f"{name}.part").write_text(text)
    (OUT / f"{name}.part").rename(OUT / name)


def tell_of_standstill() -> None:
    time.sleep(1.0)
    write(f"record.{RANK}", record.text(1, BYTES_MAX))


asking = threading.Thread(target=ask)
asking.start()
total = torch.zeros(1)
for _round in range(ROUNDS):
    value = torch.ones(1) * (RANK + 1)
    dist.all_reduce(value)
    works = [dist.all_reduce(torch.ones(1), group=second, async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    total += value
still.set()
asking.join()
write(f"sum.{RANK}", f"{total.item()} {min(answers)} {len(answers)}")
threading.Thread(target=tell_of_standstill).start()
if RANK != PLANTED:
    dist.all_reduce(torch.ones(2), group=second)
dist.all_reduce(torch.ones(3))
