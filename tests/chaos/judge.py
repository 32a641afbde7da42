"""Judge a disturbed job at its end: no sample, bit or checkpoint may be lost, and every incident must have a
reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.demo import ledger as ledgers
from controlplane.daemon.journal import replay
from controlplane.daemon.journal.recording import folder_of
from controlplane.reporting import story
from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.storage.store import Store
from tests.chaos.cluster import COORDINATORS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.books import State
    from tests.chaos.cluster import Cluster
    from tests.chaos.drive import Job

LOSS_TOLERANCE = 1e-3
"""The tolerance for a step's mean loss, relative: another number of ranks sums in another order."""


def lost_checkpoints(job: Job) -> list[str]:
    """The checkpoints that were reported as committed, were not removed by retention, and do not verify."""
    store, problems = Store.open(str(job.storage)), []
    gone = job.journals.let_go(job.name)
    try:
        for each in job.journals.committed(job.name):
            if each in gone:
                continue
            try:
                load.verify(store, job.name, each)
            except (CheckpointError, FileNotFoundError) as error:
                problems.append(f"checkpoint {each} was committed, and is lost: {error}")
    finally:
        store.close()
    return problems


def ledger(job: Job) -> ledgers.RecordedLedger:
    """The samples that its ranks consumed."""
    paths = (job.cluster.folder / "ledger").glob(f"{job.name}.*.jsonl")
    return ledgers.read({path.name: path.read_text().splitlines() for path in paths})


def sample_errors(job: Job, total: int, calm: Job) -> tuple[int, list[str]]:
    """The number of samples repeated or skipped, by the ledger, and what else is wrong with them."""
    found = ledgers.judge(ledger(job), total, ledger(calm))
    return found.repeated + found.skipped + len(found.problems), list(found.problems[:3])


def mismatches(job: Job, total: int, calm: Job, *, resized: bool) -> list[str]:
    """Where its states differ from those of the undisturbed job."""
    sizes = _sizes(job)
    for step in range(1, total + 1):
        mine, theirs = job.steps.states.get(step, {}), calm.steps.states[step]
        wanted = next(iter(theirs.values()))
        problem = ""
        if any(state.account != wanted.account for state in mine.values()):
            problem = "other samples were trained on"
        elif all(state.digest == wanted.digest for state in mine.values()):
            continue
        elif not resized:
            problem = "other weights than those of the undisturbed job"
        elif len(mine) == sizes[next(iter(mine.values())).generation]:  # else some died before writing
            problem = _loss_differs(_loss(mine), _loss(theirs))
        if problem:
            return [f"step {step}: {problem} (its ranks: {mine}; undisturbed: {wanted})"]
    return [] if job.steps.states.get(total) else [f"step {total} was written down by nobody"]


def _sizes(job: Job) -> dict[int, int]:
    """How many ranks each generation has."""
    stored = [body["generation"] for body in job.journals.bodies("StoreJob") if body["job"] == job.name]
    return {each["number"]: len(each["seats"]) for each in stored if each is not None}


def _loss(states: dict[int, State]) -> float:
    return sum(state.loss for state in states.values()) / len(states)


def _loss_differs(mine: float, theirs: float) -> str:
    if abs(mine - theirs) <= LOSS_TOLERANCE * abs(theirs):
        return ""
    return f"the loss is {mine}, undisturbed it was {theirs}"


def resized(job: Job) -> bool:
    """Whether it ever trained with another number of ranks than at first."""
    stored = [body["generation"] for body in job.journals.bodies("StoreJob") if body["job"] == job.name]
    return len({len(each["seats"]) for each in stored if each is not None and each["store"]}) > 1


def incidents(job: Job) -> tuple[int, list[str]]:
    """The number of incidents, and those that lack evidence or reason, or were never closed."""
    found = [each for each in story.stories(job.journals.lines) if each.job == job.name]
    unexplained = []
    for each in found:
        text = story.as_text(each)
        if not each.verdict.get("evidence") or not each.plan.get("reason"):
            unexplained.append(f"nobody knows why: {text}")
        elif each.outcome == "open" and each is found[-1]:
            unexplained.append(f"it never came to an end: {text}")
    return len(found), unexplained


def replays(cluster: Cluster) -> list[str]:
    """Replay every leader term: where an invariant breaks, or a decision differs."""
    journals = [cluster.journal(name) for name in COORDINATORS]
    found = [path for journal in journals for path in sorted(folder_of(journal).glob("*.jsonl"))]
    return [problem for path in found if (problem := _replay(path))]


def _replay(path: Path) -> str:
    with path.open() as file:
        first = file.readline()
        if not first.endswith("\n"):
            return ""  # killed before it had written a line
        leader_term = replay.header(first)
        for step in replay.replay(leader_term, file):
            if step.problem:
                return f"{path}: step {step.index}: {step.problem}"
    return ""
