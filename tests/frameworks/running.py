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
from tests.frameworks.cases import PACKAGES, Case, Kill

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


@dataclass(slots=True)
class RunEnd:
    """One run: the exit code, the end of its output, what each rank came to, the events, and its times."""

    name: str
    code: int
    said: str
    told: dict[str, Any]
    killed: bool
    ends: judging.Ends
    events: list[dict[str, Any]]


class Undisturbed:
    """The undisturbed runs so far: cases with the same script share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], RunEnd] = {}

    def of(self, case: Case, folder: Path) -> RunEnd:
        """The undisturbed run of this case's script."""
        key = (case.framework, case.ported(), case.arguments)
        if key not in self._known:
            self._known[key] = _once(case, folder / "undisturbed", None)
        return self._known[key]


def run(case: Case, undisturbed: Undisturbed) -> Row:
    """Run a case and judge it."""
    row = Row(case.name, version(case.framework), case.changed_lines, str(case.kill))
    if not row.framework_version:
        row.skipped = f"{PACKAGES[case.framework]} is not installed"
        return row
    with _folder() as folder:
        _judge(case, row, undisturbed.of(case, folder), _once(case, folder / "killed", case.kill))
    row.exact = not row.differs
    return row


def _judge(case: Case, row: Row, undisturbed: RunEnd, killed: RunEnd) -> None:
    for each in (undisturbed, killed):
        row.runs[each.name] = each.told
        if each.code:
            row.differs.append(f"the {each.name} run: exit code {each.code}:\n{each.said}")
    if row.differs:
        return
    if not killed.killed:
        row.differs.append(f"nothing was killed: no process was at {case.kill}")
    row.differs += judging.bits(undisturbed.ends, killed.ends)
    row.callbacks = found = judging.events(undisturbed.events, killed.events, case.again)
    if not found["exact"]:
        row.differs.append(f"events: repeated {found['repeated']}, missing {found['missing']}")


def _once(case: Case, place: Path, kill: Kill | None) -> RunEnd:
    """Run it to its end, with this kill."""
    place.mkdir()
    if kill is not None:
        (place / "kill.json").write_text(json.dumps(dataclasses.asdict(kill)))
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
    outcomes: list[str] = []
    try:
        code = job.start().end(DEADLINE_S)
        incidents = [body["incident"] for body in job.journal("IncidentChanged")]
        outcomes += [str(each["outcome"]) for each in incidents if each["outcome"] != "open"]
        said = job.output
    except AssertionError as error:
        code, said = -1, str(error)
    finally:
        job.stop()
    told = {"seconds": round(time.monotonic() - begun, 1), "incidents": outcomes}
    said = "\n".join(said.splitlines()[-SAID_LINES:])
    struck = (place / "killed").exists()
    return RunEnd(place.name, code, said, told, struck, _ends(place), list(_events(place)))


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
