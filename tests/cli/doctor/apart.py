"""One rank of a small gloo job in which rank 2 goes apart from the others, and its real dump.

`python apart.py FOLDER RANK RANKS FAULT`: calls the last collective without waiting for it, writes
FOLDER/nccl_trace_rank_RANK, and ends when all ranks have written theirs."""

from __future__ import annotations

import os
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ["TORCH_FR_BUFFER_SIZE"] = "64"

import torch
from torch import distributed
from torch._C import _distributed_c10d

folder, rank, ranks, fault = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
recorder: Any = _distributed_c10d  # torch's annotations lack the dump

distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks, timeout=timedelta(minutes=5)
)
for _ in range(3):
    distributed.all_reduce(torch.ones(4))
works = []
if rank != 2:
    works.append(distributed.all_reduce(torch.ones(8), async_op=True))  # the line of the others
elif fault == "shape":
    works.append(distributed.all_reduce(torch.ones(6), async_op=True))  # the line of rank 2

# torch records an end in another thread, a little later; who looks at a hang comes long after that.
while not all(entry["retired"] for entry in pickle.loads(recorder._dump_fr_trace())["entries"][:3]):
    time.sleep(0.05)
part = folder / f"part.{rank}"
part.write_bytes(recorder._dump_fr_trace())
part.rename(folder / f"nccl_trace_rank_{rank}")
while len(list(folder.glob("nccl_trace_rank_*"))) < ranks:
    time.sleep(0.05)
os._exit(0)  # the collective never ends
