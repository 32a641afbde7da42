"""Read what a job has logged, each with the logger's own reader where it has one, and serve MLflow."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import until
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STEP_NAMES = ("train/global_step", "trainer/global_step", "global_step")
"""What trainers call their own step in W&B."""
Points = list[tuple[int, float]]


@dataclass(slots=True)
class Log:
    """What a log holds: the points of the loss in the order read, the notes, and what is said of its runs."""

    points: Points
    notes: list[str]
    runs: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def json_lines(folder: Path) -> Log:
    """From the file of JSON lines."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    points = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    return Log(points, [line["note"] for line in lines if "note" in line])


def tensorboard(folder: Path, name: str = "loss") -> Log:
    """By TensorBoard's EventAccumulator, of each folder with numbers of this name. It drops numbers that are
    written again, but no text: a note that is there several times counts once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log, folders = Log([], []), []
    for path in sorted({path.parent for path in folder.rglob("*tfevents*")}):
        found = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        texts = [event for tag in found.Tags()["tensors"] for event in found.Tensors(tag)]
        log.notes += sorted({b"".join(event.tensor_proto.string_val).decode() for event in texts})
        if name in found.Tags()["scalars"]:
            folders.append(str(path.relative_to(folder)))
            log.points += [(event.step, event.value) for event in found.Scalars(name)]
    log.runs = {"folders": len(folders)}
    log.wrong = [] if len(folders) == 1 else [f"the folders are {folders}"]
    return log


def mlflow(_: Path, name: str = "loss") -> Log:
    """By the server's API."""
    from mlflow.tracking import MlflowClient

    client, log = MlflowClient(), Log([], [])
    found = client.search_runs([each.experiment_id for each in client.search_experiments()])
    log.wrong = [] if len(found) == 1 else [f"{len(found)} runs"]
    for run in found:
        history = client.get_metric_history(run.info.run_id, name)
        log.points += sorted((point.step, point.value) for point in history)
        tags = sorted(run.data.tags.items())
        log.notes += [text for tag, text in tags if tag.startswith("holdfast.")]
    log.runs = {"runs": len(found), "status": ", ".join(sorted({run.info.status for run in found}))}
    return log


def wandb(folder: Path, name: str = "loss") -> Log:
    """From the files of the offline runs. W&B has no reader for them: these are read as in newest_step. A
    point is at the trainer's step, where there is one; and no step of W&B's own may be there twice."""
    from wandb.proto import wandb_internal_pb2 as messages

    from holdfast.integrations.wandb_files import records

    paths = sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))
    log = Log([], [], {"folders": len(paths)})
    ids, own = set(), []
    for path in paths:
        for content in records(path):
            record = messages.Record.FromString(content)
            if record.HasField("run"):
                ids.add(record.run.run_id)
            items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            own += [record.history.step.num] * record.HasField("history")
            if name in items:
                steps = [items[key] for key in STEP_NAMES if key in items]
                step = int(steps[0]) if steps else record.history.step.num
                log.points.append((step, float(items[name])))
            log.notes += [items["holdfast"]] if "holdfast" in items else []
    log.wrong += [] if len(ids) == 1 else [f"the run ids are {sorted(ids)}"]
    twice = sorted({step for step in own if own.count(step) > 1})
    log.wrong += [f"W&B's own steps twice: {twice}"] * bool(twice)
    return log


def csv_file(folder: Path, name: str = "loss") -> Log:
    """From Lightning's metrics.csv."""
    log, paths = Log([], []), sorted(folder.rglob("metrics.csv"))
    for path in paths:
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row.get(name)]
        log.points += [(int(row["step"]), float(row[name])) for row in rows]
    log.runs = {"files": len(paths)}
    log.wrong = [] if len(paths) == 1 else [f"the files are {[str(path) for path in paths]}"]
    return log


READERS: dict[str, Callable[..., Log]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
    "csv": csv_file,
}


class Server:
    """MLflow's own server, over a database in a folder. A client finds it by MLFLOW_TRACKING_URI."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        os.environ["MLFLOW_TRACKING_URI"] = self._url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it serves."""
        store = ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"]
        words = ["-m", "mlflow", "server", *store, "--port", str(self._port), "--workers", "1"]
        words += ["--artifacts-destination", str(self._folder / "artifacts")]
        with (self._folder / "mlflow.log").open("a") as said:
            self._process = subprocess.Popen(
                leashed([sys.executable, *words]),
                stdout=said,
                stderr=said,
                start_new_session=True,
                cwd=self._folder,
            )
        until(self._serves, (self._folder / "mlflow.log").read_text)

    def send(self, sent: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, sent)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def served(library: str, folder: Path) -> Iterator[Server | None]:
    """The server that a logger needs, while it is needed; None: it needs none."""
    if library != "mlflow":
        os.environ["WANDB_MODE"], os.environ["WANDB_SILENT"] = "offline", "true"
        yield None
        return
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def generations(notes: list[str]) -> list[int]:
    """The generations that notes say have begun, as they stand."""
    return [int(found) for text in notes for found in re.findall(r"generation (\d+): ", text)]
