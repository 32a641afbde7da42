"""Have a spare that waits go once through all of torch.compile, so that its first step need not.

The first compilation of a process takes seconds even where every graph is on disk: inductor is imported, the
CPU and the C++ compiler are tried in processes of their own, torch's own sources are hashed. A spare does so
while it waits, on a module of its own, once a process of this job and node has compiled something: scripts
that never compile pay nothing. What is left for its first step is to trace the script's own modules."""

from __future__ import annotations

import contextlib
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from holdfast.state import compiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ipc.agent_client import AgentClient, AgentOrders

MARK = "compiled"
"""A file in the node's run folder: a process of this job has compiled here."""
_LOOK_EVERY_S = 1.0
log = logging.getLogger("holdfast.sdk")


def announce(agent_socket: str, *_: Any) -> None:
    """A compilation is over here: let this node's spares know. `agent_socket`: "": there are none."""
    if agent_socket and compiler.in_use():
        with contextlib.suppress(OSError):
            _mark(agent_socket).touch()


def while_idle(agent: AgentClient, agent_socket: str, moved: Callable[[AgentOrders], Any]) -> None:
    """Wait like `agent.wait(moved)`, and rehearse once there is a reason to."""
    mark = _mark(agent_socket)
    while not agent.wait(moved, _LOOK_EVERY_S):
        if mark.exists():
            rehearse()
            return


def rehearse() -> None:
    """Compile a small module forward and backward. Random numbers stay as they are, and nothing is raised:
    what fails here fails again where the script compiles, if it matters there."""
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.enable_grad():
            warnings.simplefilter("ignore")
            with torch.device("cpu"):
                module, given = _Rehearsed(), torch.ones(2, 8)
            called: Any = torch.compile(module, dynamic=False)
            called(given).sum().backward()
    except Exception as error:
        log.info("the first compilation was not rehearsed: %s: %s", type(error).__name__, str(error)[:200])


def _mark(agent_socket: str) -> Path:
    return Path(agent_socket).with_name(MARK)


class _Rehearsed(torch.nn.Module):
    """The usual layers. A class of its own: dynamo keeps what it compiles with the code of `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.nn.functional.gelu(self.norm(self.first(x)))
        return torch.nn.functional.dropout(output, 0.1)
