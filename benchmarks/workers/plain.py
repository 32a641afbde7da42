"""A script for torchrun that does not know Holdfast: DDP, a checkpoint file every 50 steps.

`LOGS` and `CHECKPOINT` (a file) come from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.log import EventLog

RANK = int(os.environ["RANK"])
log = EventLog(Path(os.environ["LOGS"]), rank=RANK)
log("start")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from benchmarks.workers import model as workload  # noqa: E402

log("imported")


def main() -> None:
    """Train until killed, from the checkpoint if there is one."""
    dist.init_process_group("gloo")
    log("formed")
    model, optimizer = workload.build()
    checkpoint = Path(os.environ["CHECKPOINT"])
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    log("loaded", step=step)
    ddp = DistributedDataParallel(model)
    generator = torch.Generator().manual_seed(RANK)
    while True:
        workload.step(ddp, optimizer, generator)
        step += 1
        log("step", step=step)
        if RANK == 0 and step % workload.CHECKPOINT_EVERY == 0:
            fresh = checkpoint.with_suffix(".fresh")
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, fresh
            )
            fresh.replace(checkpoint)


main()
