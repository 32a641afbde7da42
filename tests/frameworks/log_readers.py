"""Read what a job has logged, each with the logger's own reader where it has one, and serve MLflow."""

from __future__ import annotations

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


def tensorboard(folder: Path) -> Log:
    """By TensorBoard's EventAccumulator, of the one folder. It drops numbers that are written again, but no
    text: a note that is there several times counts once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "runs" / "my-job")).Reload()
    texts = [event for tag in found.Tags()["tensors"] for event in found.Tensors(tag)]
    notes = sorted({event.tensor_proto.string_val[0].decode() for event in texts})
    folders = sorted({path.parent.name for path in (folder / "runs").rglob("*tfevents*")})
    wrong = [] if folders == ["my-job"] else [f"the folders are {folders}"]
    points = [(event.step, event.value) for event in found.Scalars("loss")]
    return Log(points, notes, {"folders": len(folders)}, wrong)


def mlflow(_: Path) -> Log:
    """By the server's API."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    found = client.search_runs([client.get_experiment_by_name("my-job").experiment_id])
    wrong = [] if len(found) == 1 else [f"{len(found)} runs"]
    history = client.get_metric_history(found[0].info.run_id, "loss")
    notes = [text for tag, text in sorted(found[0].data.tags.items()) if tag.startswith("holdfast.")]
    points = sorted((point.step, point.value) for point in history)
    return Log(points, notes, {"runs": len(found), "status": found[0].info.status}, wrong)


def wandb(folder: Path) -> Log:
    """From the files of the offline runs. W&B has no reader for them: these are read as in newest_step."""
    from wandb.proto import wandb_internal_pb2 as messages

    from holdfast.integrations.wandb_files import records

    paths = sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))
    log = Log([], [], {"folders": len(paths)})
    ids = set()
    for path in paths:
        for content in records(path):
            record = messages.Record.FromString(content)
            if record.HasField("run"):
                ids.add(record.run.run_id)
            items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            if "loss" in items:
                log.points.append((record.history.step.num, float(items["loss"])))
            log.notes += [items["holdfast"]] if "holdfast" in items else []
    log.wrong += [] if ids == {"job-1"} else [f"the run ids are {sorted(ids)}"]
    return log


READERS: dict[str, Callable[[Path], Log]] = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}


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
