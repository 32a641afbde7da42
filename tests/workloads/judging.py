"""Compare the results of a run with kills with those of the plain loop: every bit, every sample. Pure.

Repeated steps count: each time a step was completed, its samples must be the plain loop's."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 4
"""The most differences of one kind that are reported."""


@dataclass(frozen=True, slots=True)
class Told:
    """What each rank wrote at its end, by rank.

    `digests` by the name of a tensor or number; for the plain loop also `shares`: (step, samples), in the
    order in which they were taken."""

    digests: dict[int, dict[str, str]]
    shares: dict[int, list[tuple[int, tuple[int, ...]]]]

    @classmethod
    def of(cls, files: Iterable[dict[str, Any]]) -> Told:
        """From the files of all ranks."""
        files = list(files)
        shares = {f["rank"]: [(step, tuple(samples)) for step, samples in f["shares"]] for f in files}
        return cls({f["rank"]: f["digests"] for f in files}, shares)


def bits(plain: Told, struck: Told) -> list[str]:
    """Where the final states differ, by rank and name."""
    found = []
    for rank in sorted(plain.digests.keys() | struck.digests.keys()):
        if rank not in struck.digests:
            found.append(f"rank {rank} never said what it came to")
            continue
        ours, theirs = struck.digests[rank], plain.digests.get(rank, {})
        names = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            found.append(f"rank {rank}: other bits in {', '.join(names[:SHOWN])}{more}")
    return found


def samples(plain: Told, ledger: Iterable[dict[str, Any]]) -> list[str]:
    """Where the samples of completed steps differ, by rank and step.

    Steps without a collective may be completed by some ranks after another one has died; the last time that
    such a step is completed, all must take part. The ledger counts the steps of the job: they grow from one
    training of a script to its next, with a gap."""
    completed, attempted = _read(ledger)
    known = iter(sorted({step for step, generation in completed if attempted[step, generation]}))
    steps = [next(known, -1) for _ in range(max(map(len, plain.shares.values()), default=0))]
    wanted = {
        (rank, steps[place] if steps[place] >= 0 else place): {taken}
        for rank, shares in plain.shares.items()
        for place, (_, taken) in enumerate(shares)
    }
    taken_in: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    found = []
    last = dict(sorted(completed))
    for step, generation in sorted(completed):
        missing = {rank for rank, at in wanted if at == step} - attempted[step, generation].keys()
        if missing and generation == last[step]:
            found.append(f"step {step} was completed in generation {generation} without ranks {missing}")
        for rank, handed in attempted[step, generation].items():
            taken_in[rank, step] |= handed
    for (rank, step), expected in sorted(wanted.items()):
        if taken_in[rank, step] != expected:
            got = [list(each) for each in taken_in[rank, step]]
            found.append(f"step {step}, rank {rank}: took {got}, not {[list(each) for each in expected]}")
    return found[:SHOWN]


def calls(plain: set[tuple[int, int]], struck: set[tuple[int, int]]) -> list[str]:
    """Each (rank, step) whose callback after the step was not called, or was called for a step that does not
    exist."""
    never = [f"rank {rank}: nothing was called after step {step}" for rank, step in sorted(plain - struck)]
    return [*never, *[f"rank {rank}: was called after step {step}" for rank, step in sorted(struck - plain)]]


def done_again(ledger: Iterable[dict[str, Any]]) -> int:
    """The steps in which all ranks had taken part, which some rank had completed, and which were completed
    again in a later generation."""
    completed, attempted = _read(ledger)
    everyone = max((len(ranks) for ranks in attempted.values()), default=0)
    generations = defaultdict(set)
    for step, generation in completed:
        if len(attempted[step, generation]) == everyone:
            generations[step].add(generation)
    return sum(len(times) - 1 for times in generations.values())


def lost_by_recovery(ledger: Iterable[dict[str, Any]]) -> dict[int, int]:
    """For each generation that completed steps, but the first: how many of these every rank had completed
    before."""
    completed, attempted = _read(ledger)
    everyone = max((len(ranks) for ranks in attempted.values()), default=0)
    done: set[int] = set()
    found = {}
    for generation in sorted({generation for _, generation in completed}):
        steps = {step for step, its in completed if its == generation}
        found[generation] = len(steps & done)
        done |= {step for step in steps if len(completed[step, generation]) == everyone}
    return dict([*found.items()][1:])


def lost_by_phase(lost: dict[int, int], fallen: Iterable[dict[str, Any]]) -> dict[str, dict[int, int]]:
    """Histograms of `lost_by_recovery`, by the phases of the kills that each recovery mended: steps lost ->
    how many recoveries. "forward+restore": the second kill fell before the first one was mended."""
    causes: dict[int, list[str]] = defaultdict(list)
    for blow in fallen:
        mended = min((generation for generation in lost if generation > blow["generation"]), default=None)
        if mended is not None:
            causes[mended].append(blow["phase"])
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for generation, steps in lost.items():
        found["+".join(causes[generation]) or "none"][steps] += 1
    return {phases: dict(sorted(counts.items())) for phases, counts in sorted(found.items())}


def _read(ledger: Iterable[dict[str, Any]]) -> tuple[dict[Any, set[int]], dict[Any, dict[int, set[Any]]]]:
    """By (step, generation): the ranks that completed it, and the samples that each rank was given."""
    completed: dict[Any, set[int]] = defaultdict(set)
    attempted: dict[Any, dict[int, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for line in ledger:
        if line["kind"] == "committed":
            completed[line["step"], line["generation"]].add(line["rank"])
        elif line["kind"] == "attempt":
            attempted[line["step"], line["generation"]][line["rank"]].add(tuple(line["indices"]))
    return completed, attempted
