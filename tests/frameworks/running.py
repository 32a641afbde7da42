"""Run one case twice under `holdfast run`, undisturbed and with its kill, or once without Holdfast, under
torchrun, and compare the two."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tests.e2e.cli_running import Run
from tests.frameworks import judging, logging_cases, trainer_logs
from tests.frameworks.case import PACKAGES, Case, Kill
from tests.frameworks.log_cases import TrainerLogCase
from tests.frameworks.rows import Row
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.frameworks.log_cases import LogCase

DEADLINE_S = 240.0
SAID_LINES = 25
STACKS_TIMEOUT_S, STACKS_MAX = 120.0, 20_000
"""How long `holdfast stacks` may take, and how many characters of it are kept."""
RANKS_2 = ("--nnodes", "2", "--snapshot-every", "4")
RANK_ALONE = ("--nnodes", "1", "--snapshot-every", "1")
"""Nobody else holds the state of a rank alone: from an older snapshot it would log steps twice."""


def version(framework: str) -> str:
    """The installed version of a framework, or another package; "" if it is not installed."""
    try:
        return importlib.metadata.version(PACKAGES.get(framework, framework))
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclass(slots=True)
class RunEnd:
    """One run: the exit code, its output, what each rank came to, the events, and its times."""

    name: str
    code: int
    said: str
    told: dict[str, Any]
    killed: bool
    ends: judging.Ends
    events: list[dict[str, Any]]

    @property
    def last_words(self) -> str:
        """The end of its output; all that is known of a run that did not end."""
        return self.said if self.code < 0 else _tail(self.said)


class Undisturbed:
    """The undisturbed runs so far: cases with the same script share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], RunEnd] = {}

    def of(self, case: Case, folder: Path) -> RunEnd:
        """The undisturbed run of this case's script."""
        key = (case.framework, case.ported(), case.arguments, case.plain)
        if key not in self._known:
            self._known[key] = _once(case, folder / "undisturbed", None)
        return self._known[key]


def run(case: Case, undisturbed: Undisturbed) -> Row:
    """Run a case and judge it."""
    row = Row(case.name, version(case.framework), case.changed_lines, str(case.kill))
    if not row.framework_version:
        row.skipped = f"{PACKAGES[case.framework]} is not installed"
    elif case.needs and not version(case.needs):
        row.skipped = f"{case.needs} is not installed"
    elif case.on_gpu is not None and not torch.cuda.is_available():
        row.skipped = "no CUDA device on this machine"
    if row.skipped:
        return row
    with _folder() as folder:
        if case.refused or case.named:
            row.kill_at = ""
            _judge_words(case, row, _once(case, folder / "told", None))
        elif case.plain:
            row.kill_at = ""
            _judge(case, row, _plainly(case, folder / "plain"), undisturbed.of(case, folder))
        else:
            _judge(case, row, undisturbed.of(case, folder), _once(case, folder / "killed", case.kill))
    row.exact = not row.differs
    return row


def _judge_words(case: Case, row: Row, run_end: RunEnd) -> None:
    row.runs[run_end.name] = run_end.told
    words = case.refused or case.named
    if bool(run_end.code) != bool(case.refused) or words not in run_end.said:
        row.differs.append(f"exit code {run_end.code}, and not {words!r}:\n{run_end.last_words}")


def run_logger(case: LogCase | TrainerLogCase) -> Row:
    """Run a case of a logger."""
    try:
        row = Row(case.name, importlib.metadata.version(case.library), 0, case.kill_at)
    except importlib.metadata.PackageNotFoundError:
        return Row(case.name, kill_at=case.kill_at, skipped=f"{case.library} is not installed")
    with _folder() as folder:
        if isinstance(case, TrainerLogCase):
            trainer_logs.judge(case, row, folder)
        else:
            logging_cases.judge(case, row, folder)
    row.exact = not row.differs
    return row


def _judge(case: Case, row: Row, wanted: RunEnd, got: RunEnd) -> None:
    for each in (wanted, got):
        row.runs[each.name] = each.told
        if each.code:
            row.differs.append(f"the {each.name} run: exit code {each.code}:\n{each.last_words}")
    if row.differs:
        return
    if not (got.killed or case.plain):
        row.differs.append(f"nothing was killed: no process was at {case.kill}")
    ends = judging.parts(wanted.ends, case.only), judging.parts(got.ends, case.only)
    needed = case.only or (("weights", "rates", "samples") if case.plain else ("weights",))
    row.differs += judging.bits(*ends, (wanted.name, got.name), needed)
    row.callbacks = found = judging.events(wanted.events, got.events, case.again)
    if not found["exact"]:
        row.differs.append(f"events: repeated {found['repeated']}, missing {found['missing']}")


def _prepared(case: Case, place: Path, text: str) -> tuple[str, ...]:
    """Make the folder of a run of this text, and return the words that run it in a process of a rank."""
    place.mkdir()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: more threads only wait for each other
    script = place / case.script.name
    script.write_text(text)
    if case.plain:
        (place / "watched").touch()
    words = ("tests.frameworks.struck", case.framework, str(place), str(script))
    return ("-m", *words, *case.words(place / "out"))


def _plainly(case: Case, place: Path) -> RunEnd:
    """Run the script without Holdfast to its end: as many ranks, under torchrun."""
    words, output, begun = _prepared(case, place, case.unported()), place / "output", time.monotonic()
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    with output.open("w") as out:
        process = subprocess.Popen(leashed([*torchrun, *words]), stdout=out, stderr=out)
    try:
        code = process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        process.terminate()  # torchrun ends its ranks
        process.wait()
    told = {"seconds": round(time.monotonic() - begun, 1)}
    return RunEnd(place.name, code, output.read_text(), told, False, _ends(place), list(_events(place)))


def _once(case: Case, place: Path, kill: Kill | None) -> RunEnd:
    """Run it to its end, with this kill."""
    words = _prepared(case, place, case.ported())
    if kill is not None:
        (place / "kill.json").write_text(json.dumps(dataclasses.asdict(kill)))
    begun = time.monotonic()
    job = Run(
        place,
        *(RANKS_2 if case.on_gpu is None else RANK_ALONE),
        *("--nproc-per-node", "1", "--spares", "1"),
        *words,
        job=f"f{place.parent.name[3:]}{place.name[0]}".replace("_", "x"),
    )
    outcomes: list[str] = []
    try:
        code, said = ended(job.start(), DEADLINE_S)
        incidents = [body["incident"] for body in job.journal("IncidentChanged")]
        outcomes += [str(each["outcome"]) for each in incidents if each["outcome"] != "open"]
    finally:
        job.stop()
    told = {"seconds": round(time.monotonic() - begun, 1), "incidents": outcomes}
    struck = (place / "killed").exists()
    return RunEnd(place.name, code, said, told, struck, _ends(place), list(_events(place)))


def ended(job: Run, deadline_s: float) -> tuple[int, str]:
    """Its exit code and its output. If it is late: -1, the end of the output, and where its ranks are."""
    try:
        return job.end(deadline_s), job.output
    except AssertionError:
        return -1, f"it does not end in {deadline_s:g} s; it said:\n{_tail(job.output)}\n{_stacks(job)}"


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-SAID_LINES:])


def _stacks(job: Run) -> str:
    """What `holdfast stacks` says of a job that runs."""
    found = re.search(r"--coordinator (\S+)", job.output)
    if not found:
        return "no stacks: it has not said where its coordinator is"
    words = [sys.executable, "-P", "-m", "controlplane", "stacks", job.job, "--coordinator", found[1]]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=STACKS_TIMEOUT_S)
    return f"holdfast stacks {job.job}:\n{(done.stdout + done.stderr)[:STACKS_MAX]}"


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
