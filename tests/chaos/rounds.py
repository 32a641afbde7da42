"""Run rounds of chaos: a fresh cluster, a job, faults one after the other, and the judgement at the end."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos import judge
from tests.chaos.cluster import Cluster
from tests.chaos.drive import Job, Wedged
from tests.chaos.faults import KINDS, causes, explained
from tests.chaos.wires import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUND_S = 100.0
"""How long a cluster lives; a node that returns too often in one life would be held down for minutes."""
TOLD_S = 40.0
WEDGED_MAX = 3
OWN_ROW = frozenset({"node.preempted"})
"""A planned fault among unplanned ones of its row: drawn like a row of its own, so that no short run lacks
it."""
PACE_S = 0.04
FLAGS = (
    "--snapshot-every",
    "5",
    "--checkpoint-every",
    "10",
    "--full-every",
    "100",
    "--keep-last",
    "4",
    "--max-restarts",
    "8",
)


@dataclass(slots=True)
class Told:
    """The result."""

    seed: int
    faults: dict[str, int] = field(default_factory=dict)
    incidents: int = 0
    wedged: int = 0
    lost_checkpoints: int = 0
    digest_mismatches: int = 0
    sample_errors: int = 0
    problems: list[str] = field(default_factory=list)  # in words, including those of the figures above
    kept: list[str] = field(default_factory=list)  # folders of rounds that failed

    def shown(self) -> dict[str, Any]:
        """The result as plain data."""
        names = (
            "faults",
            "incidents",
            "wedged",
            "lost_checkpoints",
            "digest_mismatches",
            "sample_errors",
            "seed",
        )
        return {name: getattr(self, name) for name in names}


class Bag:
    """Kinds of faults in random order.

    Each comes before any comes again, and one of each row of the table before a second one of any row."""

    def __init__(self, chance: random.Random, kinds: Sequence[str]) -> None:
        self._chance, self._kinds, self._left = chance, list(kinds), list[str]()

    def draw(self, elastic: bool) -> str:
        """The next fault that a job of this kind can have."""
        while True:
            for name in self._left:
                if elastic or not KINDS[name].elastic_only:
                    self._left.remove(name)
                    return name
            self._left += self._dealt()

    @property
    def waits(self) -> bool:
        """Whether a kind was passed over because no elastic job was there."""
        return bool(self._left) and KINDS[self._left[0]].elastic_only

    def _dealt(self) -> list[str]:
        turns: Counter[str] = Counter()
        found: list[tuple[int, str]] = []
        for name in self._chance.sample(self._kinds, len(self._kinds)):
            row = name if name in OWN_ROW else name.partition(".")[0]
            found.append((turns[row], name))
            turns[row] += 1
        return [name for _, name in sorted(found, key=lambda each: each[0])]


def chaos(seconds: float, seed: int, kinds: Sequence[str], say: Callable[[str], None]) -> Told:
    """Disturb clusters for `seconds`, not counting their start and judgement. A failed round leaves its
    folder."""
    told, chance = Told(seed), random.Random(seed)
    bag, left_s = Bag(chance, kinds), seconds
    while left_s > 0 and told.wedged < WEDGED_MAX:
        elastic = chance.random() < 0.4 or bag.waits
        one = Round(told, random.Random(chance.random()), bag, elastic, say)
        left_s -= one.run(min(left_s, ROUND_S))
    return told


class Round:
    """The life of one cluster."""

    def __init__(
        self, told: Told, chance: random.Random, bag: Bag, elastic: bool, say: Callable[[str], None]
    ) -> None:
        self._told, self._chance, self._bag, self._elastic, self._say = told, chance, bag, elastic, say
        self._spares = chance.choice(["0", "1"])
        self._problems: list[str] = []
        self._struck_s = 0.0

    def run(self, seconds: float) -> float:
        """Run from the first host to the judgement. Returns for how long faults were made, in s."""
        folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
        least = 2 if self._elastic else 3
        self._say(f"a cluster in {folder}: a job of {least} to 3 nodes, {self._spares} spares a node")
        with Cluster(folder) as cluster:
            job = Job(cluster, "struck", PACE_S, least, 3, (*FLAGS, "--spares", self._spares))
            try:
                job.submit().settled("the start", beyond=0)
                self._strike(job, seconds)
                total = job.finish()
                self._judge(job, total, self._calm(cluster, total))
            except Wedged as wedged:
                self._told.wedged += 1
                self._problems.append(f"wedged: {wedged}")
                self._say(self._problems[-1])
            self._problems += judge.replays(cluster)
        self._told.problems += self._problems
        if self._problems:
            self._told.kept.append(str(folder))
        else:
            shutil.rmtree(folder)
        return self._struck_s

    def _strike(self, job: Job, seconds: float) -> None:
        began = time.monotonic()
        while self._struck_s < seconds:
            name = self._bag.draw(self._elastic)
            job.look()
            since, step = len(job.journals.lines), job.steps.highest
            fault = Fault(name)
            try:
                KINDS[name].make(job, self._chance, fault)
            except AssertionError as error:
                raise Wedged(f"{name} ({fault.whom}): {error}") from error
            finally:
                fault.heal()
                self._struck_s = time.monotonic() - began
            self._told.faults[name] = self._told.faults.get(name, 0) + 1
            spent_s = job.settled(f"{name} ({fault.whom})")
            if not self._explained(job, name, since):
                self._problems.append(f"{name} ({fault.whom}): nothing was told of it")
            job.settled(f"{name} ({fault.whom}), judged late")  # its daemon may start slowly
            judged = ", ".join(causes(job.journals.lines[since:])) or "no verdict"
            self._say(
                f"{name} ({fault.whom}): step {step}, {judged}; {spent_s:.1f} s after its end all train"
            )
            self._struck_s = time.monotonic() - began

    def _explained(self, job: Job, name: str, since: int) -> bool:
        """Whether the journals report the fault; a new leader, or a daemon that restarts, takes its time."""
        deadline = time.monotonic() + TOLD_S
        while time.monotonic() < deadline:
            job.look()
            if explained(KINDS[name], job.journals.lines[since:]):
                return True
            time.sleep(0.1)
        return False

    def _calm(self, cluster: Cluster, total: int) -> Job:
        """Run the same job undisturbed on the same cluster."""
        calm = Job(cluster, "calm", 0.0, 3, 3, ())
        (calm.folder / "last").write_text(str(total))
        calm.submit()
        calm.finish(total)
        calm.look()
        return calm

    def _judge(self, job: Job, total: int, calm: Job) -> None:
        job.look()
        told, resized = self._told, judge.resized(job)
        lost = judge.lost_checkpoints(job)
        other = judge.mismatches(job, total, calm, resized=resized)
        wrong, words = judge.sample_errors(job, total, calm)
        count, unexplained = judge.incidents(job)
        told.incidents += count
        told.lost_checkpoints += len(lost)
        told.digest_mismatches += bool(other)
        told.sample_errors += wrong
        self._problems += [*lost, *other, *words, *unexplained]
        kept = len(job.journals.committed(job.name))
        size = ", resized" if resized else ""
        self._say(
            f"{total} steps{size}, {count} incidents, {kept} checkpoints committed: "
            f"{'; '.join(self._problems) or 'all as undisturbed'}"
        )
