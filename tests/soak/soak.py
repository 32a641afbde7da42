"""Run one soak test: kill processes of a job N times, check its checkpoints all the while, and compare the
result with that of an undisturbed job."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.demo.ledger import Samples, judge, read
from controlplane.cli.local.processes import end_all_below, is_running
from tests.e2e.cli_running import Run, until
from tests.e2e.holding import in_some_hold
from tests.soak.books import Journal, Steps
from tests.soak.strikes import MOMENTS, Strike, draw, strike
from tests.soak.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).with_name("train.py")
RANKS, KEPT = 4, 4
AHEAD = 60
"""Steps from the last kill to the end of the job, at least."""
RECOVERY_S = 90.0
SLOW_S = 6.0
"""After so long without a new checkpoint the ranks are asked where they are."""
WORDS = "--nnodes 2 --nproc-per-node 2 --snapshot-every 3".split()
SAVING = f"--checkpoint-every 6 --full-every 60 --keep-last {KEPT} --spares 1 --scrub-every-s 2".split()


class SoakError(AssertionError):
    """A promise that did not hold. The message says which; `soak` adds the seed and the folder."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The options. `kind`: plain, sharded, or "" for the one that the seed selects."""

    kills: int
    seed: int
    kind: str = ""
    pace_s: float = 0.02
    say: Any = field(default=lambda text: None)


@dataclass(slots=True)
class Told:
    """The result."""

    seed: int
    kind: str
    flags: list[str]
    kills: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    tiers: dict[str, int] = field(default_factory=dict)
    asks: dict[str, int] = field(default_factory=dict)
    verified: int = 0
    loaded: int = 0
    identical: bool = False
    samples: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    slowest_s: float = 0.0


@dataclass(slots=True)
class Job:
    """The job whose processes are killed."""

    run: Run
    journal: Journal
    steps: Steps
    watchers: list[Watcher]

    def problems(self) -> list[str]:
        """The promises that did not hold so far."""
        return [*self.steps.problems, *(each for one in self.watchers for each in one.problems)]


def soak(wish: Wish) -> Told:
    """Run the test. Raises SoakError with the seed and the folder, which is then kept."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-soak-"))
    try:
        told = _soak(wish, folder)
    except AssertionError as error:
        raise SoakError(f"seed {wish.seed}, kept in {folder}: {error}") from error
    shutil.rmtree(folder)
    told.seconds = round(time.monotonic() - began, 1)
    return told


def _soak(wish: Wish, folder: Path) -> Told:
    chance = random.Random(wish.seed)
    kind = chance.choice(["plain", "sharded"])
    kind, flags, ask_every = wish.kind or kind, _flags(chance, folder), chance.choice([0, 40])
    told = Told(wish.seed, kind, [*flags, f"ask-every {ask_every}"])
    wish.say(f"seed {wish.seed}: {kind}, {' '.join(told.flags)}")
    with _running(folder / "struck", [*WORDS, *SAVING, *flags], [kind, wish.pace_s, ask_every]) as run:
        job = _watched(run, folder)
        try:
            _settled(job, 0, 0)
            for number in range(1, wish.kills + 1):
                _one(wish, job, told, number, draw(chance, _moments(flags, ask_every), RANKS))
            _finish(job, told)
        finally:
            for watcher in job.watchers:
                watcher.end()
        _judge(job, told)
    with _running(folder / "calm", WORDS, [kind, 0, 0], last=told.steps) as calm:
        code = calm.end(600)
        _must(code == 0, f"the undisturbed run ended with {code}: {calm.output}")
        _compare(job, calm, told)
    return told


def _flags(chance: random.Random, folder: Path) -> list[str]:
    flags = ["--storage", str(folder / "storage"), "--codec", chance.choice(["none", "zstd"])]
    if chance.random() < 0.5:
        flags += ["--mirror", str(folder / "mirror"), "--commit-when", chance.choice(["both", "first"])]
    return [*flags, "--replicas", chance.choice(["0", "1"])]


def _moments(flags: list[str], ask_every: int) -> list[str]:
    absent = {"mirror": "--mirror" not in flags, "asked": not ask_every}
    return [moment for moment in MOMENTS if not absent.get(moment)]


@contextmanager
def _running(folder: Path, flags: list[str], arguments: list[Any], last: int = 0) -> Iterator[Run]:
    """Start a run of the job, and end it afterwards. Its folder stays: the caller made it."""
    (folder / "ledger").mkdir(parents=True)
    if last:
        (folder / "last").write_text(str(last))
    words = [*flags, "--ledger", str(folder / "ledger"), str(SCRIPT), str(folder), *map(str, arguments)]
    run = Run(folder, *words, job=f"soak{folder.parent.name[8:]}{folder.name[0]}".replace("_", "x")).start()
    try:
        yield run
    finally:
        assert run.process is not None
        if run.process.poll() is None:
            run.process.terminate()
            try:
                run.process.wait(30)
            except subprocess.TimeoutExpired:
                end_all_below(run.process.pid)
                run.process.kill()
                run.process.wait()


def _watched(run: Run, folder: Path) -> Job:
    urls = [run.words[index + 1] for index, word in enumerate(run.words) if word in ("--storage", "--mirror")]
    watchers = [Watcher(url, run.job, run.folder) for url in urls]
    for watcher in watchers:
        watcher.start()
    return Job(run, Journal(run.layout.state / "journal.jsonl"), Steps(run.folder), watchers)


def _one(wish: Wish, job: Job, told: Told, number: int, blow: Strike) -> None:
    strike(blow, job.run, job.journal)
    step, began, known = job.steps.look().highest, time.monotonic(), len(job.journal.committed)
    _settled(job, step, known, str(blow))
    spent = time.monotonic() - began
    for target in blow.targets:
        word = {"r": "rank", "n": "agent", "c": "coordinator"}[target[0]]
        told.kills[word] = told.kills.get(word, 0) + 1
    told.slowest_s = max(told.slowest_s, round(spent, 1))
    wish.say(f"{number}: {blow}: step {step}, back in {spent:.1f} s")


def _settled(job: Job, step: int, known: int, after: str = "the start") -> None:
    """Wait until every rank trains beyond `step`, and a checkpoint of a later step is committed."""
    deadline = time.monotonic() + RECOVERY_S
    asked = time.monotonic() + SLOW_S
    while time.monotonic() < deadline:
        if time.monotonic() > asked:
            _ask_where_they_are(job)
            asked = deadline
        job.journal.news()
        newest = job.steps.look().newest
        later = [each for each in job.journal.committed[known:] if int(each.split("-")[0]) > step]
        _must(not job.problems(), f"after {after}: {'; '.join(job.problems()[:3])}")
        code = job.run.process.poll() if job.run.process else None
        _must(code is None, f"after {after}: the job ended with {code}: {job.run.output[-3000:]}")
        if later and len(newest) == RANKS and min(newest.values()) > step:
            return
        time.sleep(0.01)
    _must(False, f"after {after}: no checkpoint beyond step {step}, ranks at {job.steps.newest} within "
          f"{RECOVERY_S:.0f} s: {job.run.output[-3000:]}")  # fmt: skip


def _ask_where_they_are(job: Job) -> None:
    """Have every rank write the stacks of its threads into the folder."""
    for path in job.run.folder.glob("*.stacks"):
        if is_running(int(path.stem)):
            os.kill(int(path.stem), signal.SIGUSR1)


def _finish(job: Job, told: Told) -> None:
    _retained(job)
    told.steps = job.steps.look().highest + AHEAD
    (job.run.folder / "last.part").write_text(str(told.steps))
    (job.run.folder / "last.part").rename(job.run.folder / "last")
    code = job.run.end(120)
    _must(code == 0, f"it ended with {code}: {job.run.output[-3000:]}")


def _retained(job: Job) -> None:
    """Hold training, and check that retention then leaves only the newest checkpoints, the base that they
    need, and one that is being made, whatever was killed meanwhile."""
    hold = job.run.folder / "hold"

    def few() -> bool:
        job.journal.news()
        return all(len(one.present) <= KEPT + 2 for one in job.watchers)

    until(
        in_some_hold(hold, few),
        lambda: f"keep-last {KEPT} leaves {[watcher.present for watcher in job.watchers]}",
    )
    hold.unlink()


def _judge(job: Job, told: Told) -> None:
    job.steps.look()
    job.journal.news()
    _must(not job.problems(), "; ".join(job.problems()[:3]))
    listed = {each for watcher in job.watchers for each in watcher.listed}
    _must(listed <= job.journal.named, f"nobody made {sorted(listed - job.journal.named)}")
    orphans = [each for each in job.watchers[0].present if each in job.journal.forgotten]
    _must(not orphans, f"{orphans} left etcd, and are on the storage still")
    told.verified = sum(each.verified for each in job.watchers)
    told.loaded = sum(each.loaded for each in job.watchers)
    told.outcomes, told.reasons, told.tiers = job.journal.outcomes, job.journal.reasons, job.journal.tiers
    for path in job.run.folder.glob("*.asks"):
        for line in path.read_text().splitlines():
            request, outcome, checkpoint, reason = line.split(" ", 3)
            told.asks[outcome] = told.asks.get(outcome, 0) + 1
            _must(outcome != "open" and bool(reason), f"asking {request} has no answer: {line}")
            known = outcome != "committed" or checkpoint in job.journal.named
            _must(known, f"asking {request} was told of {checkpoint}, which nobody made")
    url = job.watchers[0]._store.url
    verdict = subprocess.run(
        [sys.executable, "-P", "-m", "controlplane", "checkpoint", "verify", url, "--json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    _must(verdict.returncode == 0, f"holdfast checkpoint verify: {verdict.stdout} {verdict.stderr}")
    steps = [each["step"] for each in json.loads(verdict.stdout)["checkpoints"]]
    _must(steps[0] == told.steps, f"the newest checkpoint is of step {steps[0]}, the job had {told.steps}")


def _compare(job: Job, calm: Run, told: Told) -> None:
    reference = Steps(calm.folder).look().digests
    other = [key for key, digest in job.steps.digests.items() if reference.get(key) != digest]
    _must(
        not other,
        f"{len(other)} states differ from the undisturbed run's, first step, rank: {sorted(other)[:1]}",
    )
    missing = [rank for rank in range(RANKS) if (told.steps, rank) not in job.steps.digests]
    _must(not missing, f"ranks {missing} never had step {told.steps}")
    told.identical = True
    samples: Samples = judge(_ledger(job.run.folder), told.steps, _ledger(calm.folder))
    told.samples = {"consumed": samples.consumed, "repeated": samples.repeated, "skipped": samples.skipped}
    _must(samples.clean, f"samples: {samples}")


def _ledger(folder: Path) -> Any:
    return read({each.name: each.read_text().splitlines() for each in (folder / "ledger").glob("*.jsonl")})


def _must(held: bool, problem: str) -> None:
    if not held:
        raise SoakError(problem)
