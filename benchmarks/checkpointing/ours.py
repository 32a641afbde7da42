"""Run Holdfast: the SDK's snapshot in the training process, the agent's work in a process beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.checkpointing.state import Holder
from holdfast.snapshots import snapshot
from holdfast.snapshots.snapshot import SnapshotWriter
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.checkpointing.state import State


class Holdfast:
    """One rank and its agent."""

    def __init__(self, state: State, memory: Path) -> None:
        self._tracked = TrackedState()
        self._tracked.add("state", Holder(state))
        self._snapshots = SnapshotWriter(self._tracked)
        self._arena, self._spare = memory / "ours.arena", memory / "spare.arena"
        self.storage = ""
        self._saver = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.checkpointing.saver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        slot_bytes = self._snapshots.needs()
        for path in (self._arena, self._spare):
            self._order(op="create", arena=str(path), slot_bytes=slot_bytes)
        self._snapshots.attach(str(self._arena))
        self.step = 0
        for _ in range(2):  # so that both slots have been written once
            self.snapshot_s()

    def snapshot_s(self) -> float:
        """Take a snapshot of the next step. Returns the seconds for which training stands still."""
        self.step += 1
        begun = time.perf_counter()
        outcome = self._snapshots.write(self.step, 1, self.step - 1)
        spent = time.perf_counter() - begun
        assert isinstance(outcome, int), outcome
        return spent

    def save(
        self, during: Callable[[], Any] | None = None, *, base: str = "", codec: str = "none"
    ) -> tuple[float, float, dict[str, Any]]:
        """Take a snapshot, and make it durable and published while `during` goes on: (stall, total, answer).

        Times in s; `answer` is the saving process's."""
        begun = time.perf_counter()
        stall = self.snapshot_s()
        order = {"op": "save", "arena": str(self._arena), "storage": self.storage, "step": self.step}
        answers: list[dict[str, Any]] = []
        waiting = threading.Thread(
            target=lambda: answers.append(self._order(**order, base=base, codec=codec))
        )
        waiting.start()
        while waiting.is_alive():
            if during is None:
                waiting.join()
            else:
                during()
        return stall, time.perf_counter() - begun, answers[0]

    def restore_s(self) -> float:
        """Restore from storage: verified into an arena by the agent, copied into the live tensors by the
        rank."""
        begun = time.perf_counter()
        self._order(op="load", arena=str(self._spare), storage=self.storage, step=self.step)
        snapshot.load(str(self._spare), self.step, self._tracked)
        return time.perf_counter() - begun

    def restore_memory_s(self) -> float:
        """Restore from the rank's own arena into the live tensors."""
        begun = time.perf_counter()
        snapshot.load(str(self._arena), self.step, self._tracked)
        return time.perf_counter() - begun

    @property
    def memory_bytes(self) -> int:
        """The most memory that the agent's process has held besides the arenas."""
        return int(self._order(op="memory")["bytes"])

    def close(self) -> None:
        """End the other process, and detach from the arena."""
        self._snapshots.detach()
        assert self._saver.stdin is not None and self._saver.stdout is not None
        self._saver.stdin.close()
        self._saver.wait()
        self._saver.stdout.close()

    def _order(self, **order: Any) -> dict[str, Any]:
        assert self._saver.stdin is not None and self._saver.stdout is not None
        self._saver.stdin.write(json.dumps(order) + "\n")
        self._saver.stdin.flush()
        line = self._saver.stdout.readline()
        if not line:
            raise RuntimeError(f"the saving process ended over {order['op']}: {self._saver.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
