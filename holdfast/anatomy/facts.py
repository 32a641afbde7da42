"""Collect what a rank knows of its work and its device, and write it to its progress page."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from holdfast.anatomy import compute
from holdfast.anatomy.compute import ComputeFacts, DeclaredCompute
from holdfast.ipc.memory_left import available_bytes
from holdfast.ipc.rank_facts import RankFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.ipc.rank_facts import RankFactsPage


class FactsWriter:
    """Writes the facts of one session. `modules` returns the modules that are tracked now."""

    def __init__(self, page: RankFactsPage, modules: Callable[[], Iterable[torch.nn.Module]]) -> None:
        self._page, self._modules = page, modules
        self._compute: ComputeFacts | None = None
        self.declared = DeclaredCompute()
        self.autocast: torch.dtype | None = None  # in which a tracked module was called
        self.declared_ns = {"compile": 0, "evaluate": 0, "checkpoint": 0}

    def forget(self) -> None:
        """A loop over steps begins, or the script has declared something: look at the model again."""
        self._compute = None

    def write(self, memory_bytes: int) -> None:
        """Write them. `memory_bytes`: what this process uses. The thread that trains calls this, about once a
        second."""
        on_gpu = torch.cuda.is_available() and torch.cuda.memory_allocated() > 0
        if self._compute is None:
            device = torch.cuda.get_device_name() if on_gpu else None
            self._compute = compute.facts(self._modules(), self.declared, device, self.autocast)
        reserved = torch.cuda.memory_reserved() if on_gpu else 0
        limit = _gpu_limit(reserved) if on_gpu else _host_limit(memory_bytes)
        ran_ns = 0 if on_gpu else _ran_ns()
        self._page.write(
            RankFacts(
                token_flops=self._compute.token_flops,
                peak_flops=self._compute.peak_flops,
                note=self._compute.note,
                compile_ns=self.declared_ns["compile"],
                evaluate_ns=self.declared_ns["evaluate"],
                checkpoint_ns=self.declared_ns["checkpoint"],
                memory_limit_bytes=limit,
                memory_reserved_bytes=reserved,
                ran_ns=ran_ns,
                at_ns=time.monotonic_ns() if ran_ns else 0,
            )
        )


def _gpu_limit(reserved_bytes: int) -> int:
    """How much torch could have of this GPU now: what it holds, and what is free. 0: not known."""
    try:
        return reserved_bytes + torch.cuda.mem_get_info()[0]
    except RuntimeError:
        return 0  # the driver does not answer now, as while a graph is captured: the limit stays unknown


def _host_limit(memory_bytes: int) -> int:
    """How much memory this process can have before the machine, or its container, has none left: what it uses
    and what is available. Others may take that too. 0: not known."""
    try:
        return memory_bytes + available_bytes() if memory_bytes else 0
    except (OSError, KeyError, ValueError):
        return 0  # not Linux, or no such files here: the limit stays unknown


def _ran_ns() -> int:
    """How long this thread has run, or waited for a processor: it had work. 0: the kernel does not tell.

    /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst): time on a CPU, time in the run
    queue, both in ns."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text()
        ran, waited = text.split()[:2]
        return int(ran) + int(waited)
    except (OSError, ValueError):
        return 0
