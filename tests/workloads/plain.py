"""Run the plain loops: a script's own `--reference` mode, in as many ranks as asked for, as torchrun would.

Ranks are forked from one interpreter that has imported torch, because importing it is most of what they cost.
The store where they meet is ours, as torchrun's agent has one: no port is chosen first and opened later."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import time
from typing import TYPE_CHECKING

from torch._C._distributed_c10d import TCPStore

from tests.sdk.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PRELOADED = (
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.optim.swa_utils",
)
DEADLINE_S = 300.0


class PlainError(RuntimeError):
    """A plain loop did not end properly. The message has its output."""


@functools.cache
def _zygote() -> Zygote:
    made = Zygote(*PRELOADED)
    atexit.register(made.close)
    return made


def train(script: Path, arguments: Sequence[str], ranks: int, folder: Path) -> None:
    """Run the script's plain loop to its end. Raises PlainError."""
    folder.mkdir(parents=True, exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    clean |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    clean |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    pids = []
    for rank in range(ranks):
        env = {**clean, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        log = folder / f"{rank}.log"
        pids.append(_zygote().spawn(script, env, log, *arguments, "--reference"))
    if any(_ended(pid) != 0 for pid in pids):
        said = "\n".join(each.read_text()[-3000:] for each in sorted(folder.glob("*.log")))
        raise PlainError(f"{script.name} {' '.join(arguments)} in plain torch:\n{said}")


def _ended(pid: int) -> int:
    """The exit code of a rank. One that does not end in time is killed."""
    deadline = time.monotonic() + DEADLINE_S
    while (code := _zygote().poll(pid)) is None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return code
