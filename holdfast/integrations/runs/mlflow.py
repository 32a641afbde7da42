"""A run of MLflow. It cannot take a point back: a metric of it says how far it has come."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from holdfast.integrations.runs import ENTRY, STEP, BegunRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.integrations.runs import Found, Rename


class MlflowRun(BegunRun):
    """`begin()` makes the run, and gives the server's address (`uri`) and the run's id (`run_id`)."""

    name = "MLflow"

    def make(self) -> Found:
        """Make the run."""
        made = self._begin()
        return {**made, "first": _Writer(str(made["uri"]), str(made["run_id"]), dict).newest + 1}

    def open(self, found: Found) -> _Writer:
        """Open the run. It is RUNNING, whatever a process that has ended said of it."""
        writer = _Writer(str(found["uri"]), str(found["run_id"]), self.rename)
        writer.client.update_run(writer.run_id, "RUNNING")
        return writer


class _Writer:
    def __init__(self, uri: str, run_id: str, rename: Rename) -> None:
        self.client, self.run_id, self._rename = MlflowClient(uri), run_id, rename
        self.newest = int(self.client.get_run(run_id).data.metrics.get(ENTRY, -1))

    def write(self, number: int, values: Mapping[str, float]) -> None:
        """Write an entry in one request, if the run does not have it."""
        if number <= self.newest:
            return
        numbers = dict(values)
        step, now_ms = int(numbers.pop(STEP)), int(time.time() * 1000)
        named = {**self._rename(numbers), ENTRY: number}
        metrics = [Metric(_name(name), value, now_ms, step) for name, value in named.items()]
        self.client.log_batch(self.run_id, metrics)

    def note(self, number: int, text: str) -> None:
        """Write a text as a tag."""
        self.client.set_tag(self.run_id, f"holdfast.{number}", text)

    def close(self, *, finished: bool) -> None:
        """End the run if the job is over."""
        if finished:
            self.client.set_terminated(self.run_id)


def _name(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^0-9A-Za-z_\-. :/]", "_", name)


def apart(function: Callable[[], Any]) -> Any:
    """Call a function that begins a run in a thread of its own.

    The active run is the thread's: that of the main thread is marked as finished when the process ends, also
    where the job goes on without it."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()
