"""One rank of a pipeline over gloo, in which rank 1 does DEED in its last round, and all stand still.

`piped.py STORE RANK SIZE DEED ROUNDS OUT`: in each round activations pass from rank to rank, gradients come
back, and all ranks reduce a loss. OUT/record.RANK has the record of the standstill."""

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

from holdfast.groups import waiting
from holdfast.groups.flight_record import FlightRecord

STORE, RANK, SIZE, DEED, ROUNDS = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4], int(sys.argv[5])
OUT = Path(sys.argv[6])
BYTES_MAX = 65_536
STANDSTILL_S = 2.0
record = FlightRecord()
record.begin(1)
waiting.begin(lambda: False, record.transfers)
host, _, port = STORE.rpartition(":")
store = TCPStore(host, int(port), None, False, timeout=timedelta(seconds=60))
dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=600))
previous, following = RANK - 1, RANK + 1


def passes_on(values: torch.Tensor, deed: str) -> None:
    if deed == "stops":
        time.sleep(600)
    elif deed == "drops":
        dist.isend(values, following, tag=1)
        (OUT / "dropped").touch()
    elif deed == "mistags":
        dist.send(values, following, tag=7)
    elif deed != "skips":
        dist.send(values, following, tag=1)  # the usual line


def play(deed: str) -> None:
    values = torch.ones(4, 8)
    if deed == "receives late":  # what is on its way when the receive is called would be transferred
        while not (OUT / "dropped").exists():
            time.sleep(0.01)
    if previous >= 0:
        dist.recv(values, previous, tag=1)
    if following < SIZE:
        passes_on(values, deed)
        dist.recv(values, following, tag=2)
    if previous >= 0:
        returned = [dist.P2POp(dist.isend, values, previous, tag=2)]
        for work in dist.batch_isend_irecv(returned):
            work.wait()
    dist.all_reduce(torch.ones(1))


def tell_of_standstill() -> None:
    time.sleep(STANDSTILL_S)
    (OUT / f"record.{RANK}.part").write_text(record.text(1, BYTES_MAX))
    (OUT / f"record.{RANK}.part").rename(OUT / f"record.{RANK}")


for _round in range(ROUNDS):
    play("")
threading.Thread(target=tell_of_standstill).start()
play(DEED if RANK == 1 else "receives late" if DEED == "drops" and RANK == 2 else "")
