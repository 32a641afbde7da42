"""Run one workload: its plain loop once, then the same as a job of a cluster, with the kills of a plan."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.standing import Job
from tests.workloads import blows, judging, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.workloads.table import Workload

DEADLINE_S = 240.0
SAID_LINES = 12


@dataclass(slots=True)
class Row:
    """The result for one workload. `wrong`: in words; empty when all is as it should be.

    `while_copying`: kills that fell while a snapshot was copied beside training."""

    workload: str
    kills: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    exact: bool = False
    steps_lost: int = 0
    lost_by_recovery: dict[int, int] = field(default_factory=dict)  # steps lost -> how many recoveries
    lost_by_phase: dict[str, dict[int, int]] = field(default_factory=dict)  # the same by phases of kills
    while_copying: int = 0
    refused: bool = False
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return dataclasses.asdict(self)


def strike(workload: Workload, kills: int, seed: int) -> Row:
    """Run it with `kills` kills, or check that it is refused, and judge the result."""
    begun = time.monotonic()
    with _folder() as folder:
        row = _refused(workload, folder) if workload.refused else _struck(workload, folder, kills, seed)
    row.seconds = round(time.monotonic() - begun, 1)
    return row


def planned_for(workload: Workload, kills: int, seed: int) -> tuple[blows.Blow, ...]:
    """The kills that it takes with this seed."""
    room = workload.struck or workload.steps
    return blows.plan(workload.name, seed, kills, workload.ranks, workload.tasks, room)


def _struck(workload: Workload, folder: Path, kills: int, seed: int) -> Row:
    steps = ("--steps", str(workload.steps))
    row = Row(workload.name, phases=dict.fromkeys(workload.phases, 0))
    try:
        out = folder / "plain"
        plain.train(workload.path, [*workload.arguments, *steps, "--out", str(out)], workload.ranks, out)
    except plain.PlainError as error:
        row.wrong.append(str(error))
        return row
    wanted = judging.Told.of(_ends(out))
    planned = planned_for(workload, kills, seed)
    code, output = _run(workload, folder, planned, steps)
    fallen = _fallen(folder)
    _count(row, fallen, planned)
    if workload.lazy != any((folder / "plan").glob("*.lazy")):
        row.wrong.append(f"copies of snapshots beside training: {not workload.lazy}")
    if code:
        row.refused = "SessionError" in output
        row.wrong.append(f"exit code {code}:\n" + "\n".join(output.splitlines()[-SAID_LINES:]))
    ledger = list(_ledger(folder / "ledger"))
    row.wrong += judging.bits(wanted, judging.Told.of(_ends(folder / "out")))
    row.wrong += judging.samples(wanted, ledger)
    row.wrong += judging.calls(_calls(out), _calls(folder / "out"))
    row.exact = not row.wrong
    row.steps_lost = judging.done_again(ledger)
    lost = judging.lost_by_recovery(ledger)
    row.lost_by_recovery = dict(sorted(Counter(lost.values()).items()))
    row.lost_by_phase = judging.lost_by_phase(lost, fallen)
    if row.steps_lost > workload.loses * max(row.kills, 1):
        row.wrong.append(f"{row.steps_lost} steps were done again: {workload.loses} a kill at most")
    return row


def _fallen(folder: Path) -> list[dict[str, Any]]:
    """What each kill left before it fell, in their order."""
    paths = sorted((folder / "plan").glob("*.blow"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def _count(row: Row, fallen: list[dict[str, Any]], planned: tuple[blows.Blow, ...]) -> None:
    row.while_copying = sum(each["copying"] for each in fallen)
    row.phases |= Counter(each["phase"] for each in fallen)
    row.kills = len(fallen)
    if row.kills < len(planned):
        row.wrong.append(f"of {len(planned)} blows {row.kills} fell: {planned[row.kills]} did not")


def _run(
    workload: Workload, folder: Path, planned: tuple[blows.Blow, ...], more: tuple[str, ...]
) -> tuple[int, str]:
    """Run it as a job. Returns the exit code and the output."""
    plan = folder / "plan"
    plan.mkdir()
    (plan / "plan.json").write_text(json.dumps([dataclasses.asdict(blow) for blow in planned]))
    (folder / "ledger").mkdir()
    env = {"HOLDFAST_LEDGER": str(folder / "ledger")}
    job = Job(
        folder,
        *("--nnodes", "2", "--nproc-per-node", str(workload.nproc), "--spares", "1"),
        *("--snapshot-every", workload.snapshot_every, *workload.flags),
        *("-m", "tests.workloads.struck", str(plan / "plan.json"), str(workload.path)),
        *(*workload.arguments, *more, "--out", str(folder / "out")),
        env=env | ({"HOLDFAST_SNAPSHOT_COPY": "lazy"} if workload.lazy else {}),
    )
    try:
        code = job.start().end(DEADLINE_S)
        return code, job.output
    except AssertionError as error:
        return -1, str(error)
    finally:
        job.stop()


def _refused(workload: Workload, folder: Path) -> Row:
    row = Row(workload.name)
    code, output = _run(workload, folder, (), ())
    row.refused = code != 0 and "SessionError" in output
    missing = [word for word in workload.refused if word not in output]
    if not row.refused:
        last = "\n".join(output.splitlines()[-SAID_LINES:])
        row.wrong.append(f"it was not refused by the session: exit code {code}:\n{last}")
    elif missing:
        last = "\n".join(output.splitlines()[-SAID_LINES:])
        row.wrong.append(f"it was refused without naming {', '.join(missing)}:\n{last}")
    row.exact = not row.wrong
    return row


def _ends(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _calls(folder: Path) -> set[tuple[int, int]]:
    """What a script's callback after each step left: a file RANK.STEP."""
    return {(int(path.stem), int(path.suffix[1:])) for path in (folder / "told").glob("*.*")}


def _ledger(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        yield from (json.loads(line) for line in path.read_text().splitlines())


@contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
