"""Judges what a run consumed from what its ranks wrote down: nothing repeated, nothing skipped. Pure.

A step's samples are those that all ranks attempted in the generation that first committed it on some rank."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class LedgerError(ValueError):
    """A ledger holds what no rank writes."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank was handed for one step."""

    world_size: int
    total: int
    indices: tuple[int, ...]


@dataclass(slots=True)
class Ledger:
    """Everything that the ranks of one run wrote down."""

    shares: dict[tuple[int, int], dict[int, Share]] = field(default_factory=lambda: defaultdict(dict))
    """By (step, generation), then by rank."""
    committed: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By step: for each generation that committed it, the time of its first rank, in ns."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The judgement. Counts of samples; `problems` says for people what is wrong, first things first."""

    consumed: int
    repeated: int
    skipped: int
    problems: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was repeated, nothing skipped, nothing else is wrong."""
        return not (self.repeated or self.skipped or self.problems)


def read(files: Mapping[str, Iterable[str]]) -> Ledger:
    """Gather the lines of all files, by name. Raises LedgerError on a line that no rank writes."""
    ledger = Ledger()
    for name, lines in files.items():
        for number, line in enumerate(lines, 1):
            try:
                _enter(ledger, json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise LedgerError(f"{name}, line {number}: {error!r} in {line[:80]!r}") from error
    return ledger


def _enter(ledger: Ledger, entry: dict[str, Any]) -> None:
    _ENTRIES[entry["kind"]](ledger, entry)


def _attempt(ledger: Ledger, entry: dict[str, Any]) -> None:
    share = Share(entry["world_size"], entry["total"], tuple(entry["indices"]))
    ledger.shares[entry["step"], entry["generation"]][entry["rank"]] = share


def _commit(ledger: Ledger, entry: dict[str, Any]) -> None:
    times = ledger.committed[entry["step"]]
    generation = entry["generation"]
    times[generation] = min(entry["t_ns"], times.get(generation, entry["t_ns"]))


_ENTRIES = {"attempt": _attempt, "committed": _commit}


def judge(ledger: Ledger, steps: int, reference: Ledger | None = None) -> Samples:
    """Judge steps 0 to `steps` - 1. With a reference (an undisturbed run) each step's samples must be its."""
    counts: Counter[int] = Counter()
    problems: list[str] = []
    repeated = skipped = consumed = 0
    for step in range(steps):
        samples, missing = _step(ledger, step, problems)
        counts += samples
        consumed += samples.total()
        skipped += missing
        expected = None if reference is None else _step(reference, step, [])[0]
        if expected is not None and expected != samples and not missing:
            repeated += (samples - expected).total()
            skipped += (expected - samples).total()
            problems.append(f"step {step} consumed other samples than the undisturbed run")
    again, left_out = _over_epochs(counts, _total(ledger), consumed)
    return Samples(consumed, max(repeated, again), max(skipped, left_out), tuple(problems))


def _step(ledger: Ledger, step: int, problems: list[str]) -> tuple[Counter[int], int]:
    """The samples of one step, and how many of its samples no rank consumed."""
    times = ledger.committed.get(step, {})
    if not times:
        problems.append(f"step {step} was never committed")
        return Counter(), _batch(ledger)
    first = min(times, key=lambda generation: (times[generation], generation))
    shares = ledger.shares.get((step, first), {})
    samples = _together(shares)
    problems += [
        f"step {step} consumed other samples in generation {generation} than in {first}"
        for generation in sorted(times)
        if generation != first and _together(ledger.shares.get((step, generation), {})) != samples
    ]
    world = max((share.world_size for share in shares.values()), default=0)
    if len(shares) < world or not shares:
        problems.append(f"step {step} lacks the share of {world - len(shares) or 'every'} rank(s)")
        return samples, max(0, _batch(ledger) - samples.total())
    return samples, 0


def _together(shares: Mapping[int, Share]) -> Counter[int]:
    return Counter(index for share in shares.values() for index in share.indices)


def _batch(ledger: Ledger) -> int:
    """The size of a whole step: the largest that was attempted."""
    return max((_together(shares).total() for shares in ledger.shares.values()), default=0)


def _total(ledger: Ledger) -> int:
    return max((share.total for shares in ledger.shares.values() for share in shares.values()), default=0)


def _over_epochs(counts: Counter[int], total: int, consumed: int) -> tuple[int, int]:
    """Each sample's turn comes once per pass over the data: how many came too often, how many too rarely."""
    if total == 0:
        return 0, 0
    least, most = consumed // total, -(-consumed // total)
    too_often = sum(count - most for count in counts.values() if count > most)
    too_rarely = sum(least - counts[index] for index in range(total) if counts[index] < least) if least else 0
    return too_often, too_rarely
