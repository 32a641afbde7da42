"""Break a collective of bare torch in one way, and print how the SDK classifies rank 0's exception.

Arguments: the way, the rank, the port of the store."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from holdfast.groups import torch_texts

WAY, RANK, PORT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TRY = datetime.timedelta(seconds=2)
LONG = datetime.timedelta(seconds=60)


def closed(tensor: torch.Tensor) -> None:
    """The peer has ended: its connections close."""
    if RANK == 1:
        os._exit(0)
    time.sleep(0.5)
    dist.all_reduce(tensor)


def killed(tensor: torch.Tensor) -> None:
    """The peer is killed amid the transfer: its connections are reset, or close."""
    if RANK == 1:
        dist.recv(tensor[:1])
        os.kill(os.getpid(), signal.SIGKILL)
    dist.send(tensor[:1], 1)
    dist.all_reduce(torch.ones(20_000_000))


def silent(tensor: torch.Tensor) -> None:
    """The peer lives, and does not take part."""
    if RANK == 1:
        time.sleep(60)
    dist.all_reduce(tensor)


def backward(tensor: torch.Tensor) -> None:
    """The peer has ended, and DDP's reducer waits in C++."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    loss = model(tensor[:8]).sum()
    if RANK == 1:
        os._exit(0)
    time.sleep(0.5)
    loss.backward()


def patience(tensor: torch.Tensor) -> None:
    """Nothing is broken: `Work.wait` was given less time than the operation takes."""
    if RANK == 1:
        time.sleep(60)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait(datetime.timedelta(milliseconds=50))


def main() -> None:
    timeout = LONG if WAY == "patience" else TRY
    store = TCPStore("127.0.0.1", PORT, 2, RANK == 0, timeout=TRY)
    if WAY == "absent" and RANK == 1:  # it has met the store, and does not take part in the collective
        time.sleep(60)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=2, timeout=timeout)
    globals()[WAY](torch.ones(64))


try:
    main()
except Exception as error:
    found = {
        "typed": isinstance(error, dist.DistError),
        "of_gloo": torch_texts.is_of_gloo(error),
        "wait_over": torch_texts.is_wait_over(error),
        "text": f"{type(error).__name__}: {error}",
    }
    print(json.dumps(found), flush=True)
os._exit(0)
