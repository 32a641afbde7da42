"""Run one case twice under `holdfast run`, undisturbed and with its kill, and compare the two."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import Run
from tests.frameworks import judging
from tests.frameworks.cases import PACKAGES, Case

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 240.0
SAID_LINES = 25
SNAPSHOT_EVERY = 4


@dataclass(slots=True)
class Row:
    """The result of one case. `exact`: every bit and every event is as in the undisturbed run; `differs`: in
    words where not. `skipped`: why it did not run; "" if it did."""

    workload: str
    framework_version: str = ""
    changed_lines: int = 0
    kill_at: str = ""
    exact: bool = False
    callbacks: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    skipped: str = ""

    def as_json(self) -> str:
        """For programs: one line."""
        return json.dumps(dataclasses.asdict(self))


def version(framework: str) -> str:
    """The installed version of a framework; "" if it is not installed."""
    try:
        return importlib.metadata.version(PACKAGES[framework])
    except importlib.metadata.PackageNotFoundError:
        return ""


def run(case: Case) -> Row:
    """Run a case and judge it."""
    row = Row(case.name, version(case.framework), case.changed_lines, str(case.kill))
    if not row.framework_version:
        row.skipped = f"{PACKAGES[case.framework]} is not installed"
        return row
    with _folder() as folder:
        _twice(case, folder, row)
    row.exact = not row.differs
    return row


def _twice(case: Case, folder: Path, row: Row) -> None:
    ends, events = [], []
    for name, kill in (("undisturbed", None), ("killed", case.kill)):
        place = folder / name
        place.mkdir()
        if kill is not None:
            (place / "kill.json").write_text(json.dumps(dataclasses.asdict(kill)))
        code, output, row.runs[name] = _once(case, place)
        if code:
            said = "\n".join(output.splitlines()[-SAID_LINES:])
            row.differs.append(f"the {name} run: exit code {code}:\n{said}")
            return
        ends.append(_ends(place))
        events.append(list(_events(place)))
    if not (folder / "killed" / "killed").exists():
        row.differs.append(f"nothing was killed: no process was at {case.kill}")
    row.differs += judging.bits(ends[0], ends[1])
    row.callbacks = judging.events(events[0], events[1], case.again)
    if not row.callbacks["exact"]:
        row.differs.append(
            f"events: repeated {row.callbacks['repeated']}, missing {row.callbacks['missing']}"
        )


def _once(case: Case, place: Path) -> tuple[int, str, dict[str, Any]]:
    """Run it to its end. Returns the exit code, the output, and what is known of the run."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: more threads only wait for each other
    script = place / case.script.name
    script.write_text(case.ported())
    begun = time.monotonic()
    job = Run(
        place,
        *("--nnodes", "2", "--nproc-per-node", "1", "--spares", "1", "--snapshot-every", str(SNAPSHOT_EVERY)),
        *("-m", "tests.frameworks.struck", case.framework, str(place), str(script)),
        *case.words(place / "out"),
        job=f"f{place.parent.name[3:]}{place.name[0]}".replace("_", "x"),
    )
    try:
        code = job.start().end(DEADLINE_S)
        incidents = [body["incident"] for body in job.journal("IncidentChanged")]
        recovered = [str(each["outcome"]) for each in incidents if each["outcome"] != "open"]
        return code, job.output, {"seconds": round(time.monotonic() - begun, 1), "incidents": recovered}
    except AssertionError as error:
        return -1, str(error), {"seconds": round(time.monotonic() - begun, 1)}
    finally:
        job.stop()


def _ends(place: Path) -> judging.Ends:
    return {int(path.stem): json.loads(path.read_text()) for path in sorted(place.glob("[0-9].json"))}


def _events(place: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(place.glob("events.*.jsonl")):
        yield from (json.loads(line) for line in path.read_text().splitlines())


@contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
