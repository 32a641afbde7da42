"""Wait in DDP's backward for a peer that never takes part, until another thread breaks the wait off.

Arguments: the rank, the port of the store. Rank 0 prints what its backward has raised."""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from holdfast import ddp
from holdfast.groups import waiting
from holdfast.groups.transfer_record import TransferRecord

RANK, PORT = int(sys.argv[1]), int(sys.argv[2])
store = TCPStore("127.0.0.1", PORT, 2, RANK == 0)
waiting.begin(lambda: False, TransferRecord())
dist.init_process_group("gloo", store=store, rank=RANK, world_size=2, timeout=datetime.timedelta(seconds=300))
model = ddp.wrap(torch.nn.Linear(8, 8), torch.device("cpu"), waiting.guarded({}))
model(torch.ones(1, 8)).sum().backward()
loss = model(torch.ones(1, 8)).sum()
if RANK == 1:
    time.sleep(300)
threading.Timer(1.0, waiting.give_up).start()
try:
    loss.backward()
    print(json.dumps("nothing"), flush=True)
except RuntimeError as error:
    print(json.dumps(str(error)), flush=True)
os._exit(0)
