"""What the SDK does with an arena that is not its own to keep."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import torch

from holdfast.ipc.arena import Arena, SlotWriter
from holdfast.snapshots import snapshot
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from pathlib import Path


class Fatal:
    """An object whose state kills the process that takes it over."""

    def state_dict(self) -> dict[str, Any]:
        return {"value": 1}

    def load_state_dict(self, _: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_reader_killed_while_it_reads_blocks_no_slot(tmp_path: Path) -> None:
    tracked = TrackedState()
    tracked.add("model", torch.nn.Linear(4, 2))
    tracked.add("fatal", Fatal())
    own = snapshot.SnapshotWriter(tracked)
    with Arena.create(tmp_path / "job.1.arena", own.needs()) as arena:
        own.attach(str(arena.path))
        assert [own.write(step, 1, released_step=step) for step in (5, 10)] == [0, 1]
        child = os.fork()
        if not child:
            snapshot.load(str(arena.path), 5, tracked)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert isinstance(arena.begin(15, 1, released_step=10), SlotWriter)
    own.detach()
