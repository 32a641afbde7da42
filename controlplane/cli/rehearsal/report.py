"""Say what came of a rehearsal: to a person, and as one JSON object."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.demo.verdict import incidents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from controlplane.cli.demo.strike import KillResult
    from controlplane.cli.rehearsal.differences import Difference
    from controlplane.cli.rehearsal.plan import RehearsalPlan

SHOWN = 12
"""Differences that a person is shown; the JSON object has all."""
_PREFIX = re.compile(r"^\[\S+ \d+\] ")
"""Before each line of a rank, as `holdfast run` prints it."""
_WARNINGS = ("comes out differently", "cannot take the state")
"""What the SDK's warnings about what is not kept say (holdfast/clean/forgotten.py)."""
OWN_DOING = (
    "The script does not come out the same without failures either, so this says nothing about failures. "
    "Look for random numbers that are not seeded, times, files that it changes, the order of threads"
)
TO_DO = (
    "What the steps need and Holdfast does not keep begins anew in the process that replaces a dead one: "
    "track it (docs/porting.md, What you forget to track)"
)


@dataclass(slots=True)
class Rehearsed:
    """What was seen. `differing`: between the undisturbed training and the one with kills; `unsteady`:
    between two undisturbed ones, None if that was not asked."""

    step: int
    blows: Sequence[KillResult]
    differing: Sequence[Difference]
    tensors: int
    journal: Sequence[dict[str, Any]]
    warnings: Sequence[str]
    unsteady: Sequence[Difference] | None = None

    @property
    def by_failures(self) -> list[Difference]:
        """What differs, but not between two undisturbed trainings."""
        own = {each.place for each in self.unsteady or ()}
        return [each for each in self.differing if each.place not in own]

    @property
    def random(self) -> bool:
        """Whether the script trains to another result each time."""
        return any(each.is_tensor for each in self.unsteady or ())

    @property
    def exact(self) -> bool:
        """Whether the state is the same, byte for byte, but for data that differ each time (as times that
        were measured). This is the exit code."""
        return not self.by_failures and not self.random


def opening(plan: RehearsalPlan, folder: Path) -> str:
    """What is going to be done."""
    kills = "; ".join(map(str, plan.kills))
    return (
        f"Kills: {kills}. Compared is the state of step {plan.until}.\n"
        f"The trainings' output, checkpoints and journals are in {folder}"
    )


def journal_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; the last one may have been cut off."""
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def warnings_of(log: Path) -> list[str]:
    """What the SDK has warned of in the output of a training, each once."""
    lines = (_PREFIX.sub("", line) for line in log.read_text(errors="replace").splitlines())
    return list(dict.fromkeys(line for line in lines if any(words in line for words in _WARNINGS)))


def as_json(found: Rehearsed) -> dict[str, Any]:
    """The result as the last line of `holdfast rehearse --json`."""
    return {
        "exact": found.exact,
        "step": found.step,
        "tensors": found.tensors,
        "differing": [_row(each) for each in found.differing],
        "reproducible": None if found.unsteady is None else not found.random,
        "differing_undisturbed": [_row(each) for each in found.unsteady or ()],
        "warnings": list(found.warnings),
        "incidents": incidents(found.journal, found.blows),
        "kills": [{"kill": str(blow.kill), "in_step": blow.step} for blow in found.blows],
    }


def _row(each: Difference) -> dict[str, str]:
    return {"name": each.name, "shard": each.shard, "what": each.what}


def lines(found: Rehearsed) -> Iterator[tuple[str, str]]:
    """The result for a person: lines, each with a style of rich's."""
    for blow, row in zip(found.blows, incidents(found.journal, found.blows), strict=False):
        yield f"{blow.kill}, while in step {blow.step}: {row['lost_steps']} steps lost", ""
    for text in found.warnings:
        yield f"warned: {text}", "yellow"
    own = [each for each in found.differing if each not in found.by_failures]
    if found.exact:
        what = f"{found.tensors} tensors and all plain data of step {found.step}"
        if own:
            what += f", but for what differs without failures, too: {'; '.join(map(str, own[:SHOWN]))}"
        yield f"Same state as without failures: yes, byte for byte: {what}", "bold green"
        return
    yield f"Same state as without failures: NO, after step {found.step}", "bold red"
    shown = found.differing if found.random else found.by_failures
    for each in shown[:SHOWN]:
        yield f"  {each}", "red"
    if shown[SHOWN:]:
        yield f"  and {len(shown) - SHOWN} more: see --json", "red"
    yield (OWN_DOING if found.random else TO_DO), ""
