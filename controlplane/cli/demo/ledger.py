"""Judge from the ledgers of a run whether samples were repeated or skipped. Pure.

The samples of a step are those that all ranks attempted in the generation in which some rank first committed
the step: what other generations attempted was undone. Where the job went back because of a numeric anomaly
and left data out, the newest generation that committed the step counts instead. A sample is repeated when its
turn comes before every other sample has had its own in this epoch. The lines of a ledger are in
docs/protocols.md."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class LedgerError(ValueError):
    """A ledger has a line that no rank writes."""


@dataclass(frozen=True, slots=True)
class Share:
    """The samples that one rank was given for one step."""

    world_size: int
    total: int  # samples of the whole step, over all ranks
    indices: tuple[int, ...]


@dataclass(slots=True)
class RecordedLedger:
    """Everything that the ranks of one run recorded."""

    shares: dict[tuple[int, int], dict[int, Share]] = field(default_factory=lambda: defaultdict(dict))
    """By (step, generation), then by rank: what each rank was given."""
    committed: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By step: each generation that committed it, and when its first rank did so (ns)."""
    left_out: dict[tuple[int, int], int] = field(default_factory=dict)
    """Batches [first, end) that are left out by policy, and from which generation on."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The verdict, as counts of samples. `problems` names what is wrong, for people, most important
    first."""

    consumed: int
    repeated: int
    skipped: int
    problems: tuple[str, ...] = ()
    left_out: int = 0  # left out by policy after numeric anomalies: neither consumed nor skipped

    @property
    def clean(self) -> bool:
        """Whether nothing was repeated or skipped, and nothing else is wrong."""
        return not (self.repeated or self.skipped or self.problems)


def read(files: Mapping[str, Iterable[str]]) -> RecordedLedger:
    """Read the lines of all files, by file name. Raises LedgerError on a line that no rank writes."""
    ledger = RecordedLedger()
    for name, lines in files.items():
        for number, line in enumerate(lines, 1):
            try:
                _enter(ledger, json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise LedgerError(f"{name}, line {number}: {error!r} in {line[:80]!r}") from error
    return ledger


def _enter(ledger: RecordedLedger, entry: dict[str, Any]) -> None:
    _ENTRIES[entry["kind"]](ledger, entry)


def _attempt(ledger: RecordedLedger, entry: dict[str, Any]) -> None:
    share = Share(entry["world_size"], entry["total"], tuple(entry["indices"]))
    ledger.shares[entry["step"], entry["generation"]][entry["rank"]] = share


def _commit(ledger: RecordedLedger, entry: dict[str, Any]) -> None:
    times = ledger.committed[entry["step"]]
    generation = entry["generation"]
    times[generation] = min(entry["t_ns"], times.get(generation, entry["t_ns"]))


def _skip(ledger: RecordedLedger, entry: dict[str, Any]) -> None:
    window = (int(entry["first"]), int(entry["end"]))
    ledger.left_out[window] = min(entry["generation"], ledger.left_out.get(window, entry["generation"]))


_ENTRIES = {"attempt": _attempt, "committed": _commit, "skipped": _skip}


def judge(ledger: RecordedLedger, steps: int, reference: RecordedLedger | None = None) -> Samples:
    """Judge the steps from 0 to `steps` - 1.

    With a reference (an undisturbed run) each step's samples must also equal the reference's."""
    problems: list[str] = []
    repeated = again = skipped = consumed = 0
    epoch = _Epoch(_distinct(ledger))
    for step in range(steps):
        samples, missing = _step(ledger, step, problems)
        consumed += samples.total()
        skipped += missing
        usual = _batch_of(ledger, step)
        known = reference is not None and usual in reference.committed
        expected = _step(reference, usual, [])[0] if reference is not None and known else None
        again += 0 if ledger.left_out else epoch.turn(samples)
        if expected is not None and expected != samples and not missing:
            repeated += (samples - expected).total()
            skipped += (expected - samples).total()
            problems.append(f"step {step} consumed other samples than the undisturbed run")
    windows = _windows(ledger, None)
    upto = _batch_of(ledger, steps - 1)
    left_out = sum(1 for first, end in windows for batch in range(first, end) if batch <= upto)
    return Samples(consumed, max(repeated, again), skipped, tuple(problems), left_out * _batch(ledger))


def _windows(ledger: RecordedLedger, generation: int | None) -> list[tuple[int, int]]:
    """The windows of batches left out, ascending, as that generation knew them (None: as known in the end). A
    window inside another one is dropped."""
    known = [w for w, since in ledger.left_out.items() if generation is None or since <= generation]
    return sorted(w for w in known if not any(o != w and o[0] <= w[0] and w[1] <= o[1] for o in known))


def _batch_of(ledger: RecordedLedger, step: int) -> int:
    """The batch of the endless order that a step consumes, given what is left out."""
    for first, end in _windows(ledger, None):
        if step >= first:
            step += end - first
    return step


def _step(ledger: RecordedLedger, step: int, problems: list[str]) -> tuple[Counter[int], int]:
    """The samples that one step consumed, and how many of its samples no rank consumed."""
    times = ledger.committed.get(step, {})
    if not times:
        problems.append(f"step {step} was never committed")
        return Counter(), _batch(ledger)
    first = min(times, key=lambda generation: (times[generation], generation))
    first = max(times) if ledger.left_out else first
    shares = ledger.shares.get((step, first), {})
    samples = _together(shares)
    problems += [
        f"step {step} consumed other samples in generation {generation} than in {first}"
        for generation in sorted(times)
        if generation != first
        and _windows(ledger, generation) == _windows(ledger, first)
        and _together(ledger.shares.get((step, generation), {})) != samples
    ]
    world = max((share.world_size for share in shares.values()), default=0)
    if len(shares) < world or not shares:
        problems.append(f"step {step} has no samples recorded for {world - len(shares) or 'any'} rank(s)")
        return samples, max(0, _batch(ledger) - samples.total())
    return samples, 0


def _together(shares: Mapping[int, Share]) -> Counter[int]:
    return Counter(index for share in shares.values() for index in share.indices)


def _batch(ledger: RecordedLedger) -> int:
    """The number of samples in a whole step."""
    return max((share.total for shares in ledger.shares.values() for share in shares.values()), default=0)


def _distinct(ledger: RecordedLedger) -> int:
    """How many different samples were ever attempted: a lower bound of the size of the data."""
    return len(
        {index for shares in ledger.shares.values() for share in shares.values() for index in share.indices}
    )


class _Epoch:
    """One pass over the data: no sample comes again before all others have come."""

    def __init__(self, distinct: int) -> None:
        self._distinct = distinct
        self._seen: set[int] = set()

    def turn(self, samples: Counter[int]) -> int:
        """Add a step's samples, and return how many of them came too early."""
        early = 0
        known = [index for index in samples.elements() if index in self._seen]
        for index in [*(samples - Counter(known)).elements(), *known]:
            if len(self._seen) == self._distinct:
                self._seen.clear()
            early += index in self._seen
            self._seen.add(index)
        return early
