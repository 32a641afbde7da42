"""The plain loops: a script's own `--reference` mode, in as many ranks as it is given, as torchrun would.

Ranks are forked from one interpreter that has imported torch: importing it is most of what they cost."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PRELOADED = [
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.optim.swa_utils",
    "tests.workloads.plain",
]
DEADLINE_S = 300.0


class PlainError(RuntimeError):
    """A plain loop did not come to its end: what it said."""


def train(script: Path, arguments: Sequence[str], ranks: int, folder: Path) -> None:
    """Run the script's plain loop to its end. Raises PlainError."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    argv, port = [str(script), *arguments, "--reference"], _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    children = [
        context.Process(target=_rank, args=(number, ranks, port, argv, str(folder / f"{number}.log")))
        for number in range(ranks)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(DEADLINE_S)
    for child in children:
        if child.exitcode is None:
            child.kill()
    if any(child.exitcode != 0 for child in children):
        said = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))
        raise PlainError(f"{script.name} {' '.join(arguments)} in plain torch:\n{said}")


def _rank(number: int, ranks: int, port: int, argv: list[str], log: str) -> None:
    """The process of one rank."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(ranks))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = argv
    sys.path.insert(0, str(Path(argv[0]).parent))
    try:
        runpy.run_path(argv[0], run_name="__main__")
        import torch.distributed

        torch.distributed.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
