"""A run of Weights & Biases. Each row has the number of its entry; W&B's own steps only ascend.

Offline, each process that goes on with it has a folder of its own, and reads those of the others: all nodes
need the same folder."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

import wandb

from holdfast.integrations.runs import ENTRY, STEP, LoggerRun
from holdfast.integrations.wandb_files import newest_step, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.integrations.runs import Found, Rename

FLUSH_S = 0.1
"""How often W&B writes its files; what it has not written when rank 0 dies, another process writes."""


class WandbRun(LoggerRun):
    """`options`: of wandb.init. `step_name`: the name of the trainer's step, and default axis. `opened(run)`:
    called in the thread of the writer, to set what belongs to the run."""

    name = "W&B"

    def __init__(
        self,
        options: Mapping[str, Any],
        step_name: str,
        opened: Callable[[Any], object] = bool,
        **names: Any,
    ) -> None:
        super().__init__(**names)
        self._options, self._step_name, self._opened = dict(options), step_name, opened
        self._made: _Writer | None = None

    def make(self) -> Found:
        """Begin the run."""
        run_id = self._options.get("id") or os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
        self._made = self._writer(run_id)
        return {"id": run_id, "first": self._made.newest + 1}

    def open(self, found: Found) -> _Writer:
        """Go on with the run."""
        made, self._made = self._made, None
        return made or self._writer(str(found["id"]))

    def _writer(self, run_id: str) -> _Writer:
        options = {**self._options, "id": run_id, "resume": "allow"}
        writer = _Writer(options, self._step_name, self.rename)
        self._opened(writer.run)
        return writer


class _Writer:
    def __init__(self, options: dict[str, Any], step_name: str, rename: Rename) -> None:
        self._step_name, self._rename = step_name, rename
        given = options.pop("settings", None) or {}
        settings = wandb.Settings(**given) if isinstance(given, dict) else given
        settings.x_transaction_log_flush_interval = FLUSH_S
        self.run = wandb.init(**options, settings=settings)
        folder, run_id = self.run.settings.wandb_dir, self.run.id
        self._least = newest_step(folder, run_id) + 1
        self.newest = max(map(int, texts(folder, run_id, ENTRY)), default=-1)
        earlier = texts(folder, run_id, "holdfast")
        self._noted, self._notes = {line for text in earlier for line in text.splitlines()}, list[str]()
        self.newest = max(self.newest, int(self.run.summary.get(ENTRY, -1)))
        self.run.define_metric(step_name)
        self.run.define_metric("*", step_metric=step_name, step_sync=True)
        self.run.define_metric(ENTRY, hidden=True)

    def write(self, number: int, values: Mapping[str, float]) -> None:
        """Write an entry as one row, if the run does not have it."""
        if number <= self.newest:
            return
        numbers = dict(values)
        step = numbers.pop(STEP)
        row = {**self._rename(numbers), self._step_name: step, ENTRY: number}
        if self._notes:
            row["holdfast"] = "\n".join(self._notes)
        self.run.log(row, step=max(self.run.step, self._least), commit=True)
        self._notes = []

    def note(self, number: int, text: str) -> None:
        """Write a text, with the next row."""
        if text not in self._noted and (self.run.offline or number > self.newest):
            self._notes.append(text)

    def close(self, *, finished: bool) -> None:
        """Close the folder of this process."""
        self.run.finish()
