"""Count how often the first cause of an incident is named rightly from made-up ends of processes.

`python -m benchmarks.diagnosis.incident_scores --seeds 12 --first 4000`: the table of
docs/diagnosis/accuracy.md. The jobs are those of `failure_logs`; each rank's log is cut to what an agent
sends, its process ends a moment after its last line, by its node's clock, and heartbeats tell the clocks
apart."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from agent.daemon.rank_ends import TEXT_BYTES
from benchmarks.diagnosis.failure_logs import BEGIN, PLANTS
from controlplane.analysis.incident_causes.beats import BeatClocks
from controlplane.analysis.incident_causes.incident import IncidentEnds, judged
from controlplane.core.records.diagnosis import CauseFound, RankEnded

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ("incidents", "rank", "undecided", "wrong rank", "cause", "line", "restart")
LEFT_OUT = ("a second attempt in one file",)
"""A process that is started again has a log of its own."""
_RAISED: tuple[int | None, int | None] = (1, None)
_CODES: dict[str, tuple[int | None, int | None]] = {
    "killed": (None, 9),
    "segfault": (None, 11),
    "bus_error": (None, 7),
    "aborted": (None, 6),
}


@dataclass(frozen=True, slots=True)
class MadeIncident:
    """An incident and the truth. `rank`: None when several failed alike at once."""

    known: IncidentEnds
    rank: int | None
    causes: tuple[str, ...]
    restart: bool
    place: tuple[str, int] | None


def made(plant: str, seed: int) -> MadeIncident:
    """The incident of this seed. The same seed always gives the same incident."""
    random = Random(f"{plant} {seed}")
    make, kind = PLANTS[plant]
    job, rank, ending, place = make(kind, random)
    ends = [_end(job, each, rank, ending, random) for each in range(job.world)]
    ends.sort(key=lambda end: end.at_s)
    clocks = BeatClocks()
    for node, ahead_s in enumerate(job.clocks_s):
        for beat in range(32):
            delay_s = random.expovariate(1 / 0.002)
            clocks.heard(f"n{node}", 1e9 + beat + ahead_s, 1e9 + beat + delay_s)
    known = IncidentEnds("made", 1, ends, (), {}, clocks.offsets())
    restart = ending.restart and rank is not None
    return MadeIncident(known, rank, ending.causes, restart, place if ending.source else None)


def _end(job: Any, rank: int, first: int | None, ending: Any, random: Random) -> RankEnded:
    lines = job.lines.get(rank, [])
    text = "\n".join(job.tag(rank) + line if not line.startswith("[rank") else line for _, line in lines)
    ended = max((at for at, _ in lines if at is not None), default=job.local(rank, BEGIN))
    ended += timedelta(seconds=random.uniform(0.05, 3.0))
    code, number = _CODES.get(ending.causes[0], _RAISED) if first == rank else _RAISED
    cut = text.encode(errors="replace")[-TEXT_BYTES:].decode(errors="replace")
    return RankEnded(
        node=f"n{job.node(rank)}", incarnation=1, job="made", member=f"made.{rank}", rank=rank,
        exit_code=code, signal=number, at_s=ended.timestamp(), log=f"{rank}.log", text=cut,
        skipped_bytes=max(0, len(text) - TEXT_BYTES), oom_kills=0,
    )  # fmt: skip


def score(case: MadeIncident, said: CauseFound | None) -> Counter[str]:
    """Which parts of an answer are right."""
    rank = said.rank if said is not None and said.rank >= 0 else None
    right = said is not None and (rank == case.rank or case.rank is None)
    place = said is not None and (case.place is None or (said.file, said.line) == case.place)
    return Counter({
        "incidents": 1, "rank": int(right), "undecided": int(not right and rank is None),
        "wrong rank": int(not right and rank is not None),
        "cause": int(said is not None and said.cause in case.causes), "line": int(place),
        "restart": int(said is not None and said.restart == case.restart),
    })  # fmt: skip


def rows(seeds: Iterable[int]) -> list[tuple[str, Counter[str]]]:
    """The scores of each kind of incident, and those of all."""
    found: list[tuple[str, Counter[str]]] = []
    for plant in (each for each in PLANTS if each not in LEFT_OUT):
        counts: Counter[str] = Counter()
        for seed in seeds:
            case = made(plant, seed)
            answer = judged(case.known)
            counts += score(case, answer.cause if answer is not None else None)
        found.append((plant, counts))
    return [*found, ("all", sum((counts for _, counts in found), Counter()))]


def wrong(seeds: Iterable[int]) -> Iterable[str]:
    """The incidents of which something is said wrongly."""
    for plant in (each for each in PLANTS if each not in LEFT_OUT):
        for seed in seeds:
            case = made(plant, seed)
            answer = judged(case.known)
            said = answer.cause if answer is not None else None
            counts = score(case, said)
            if not all(counts[name] for name in ("rank", "cause", "line", "restart")):
                yield f"{plant} {seed}: rank {case.rank} {case.causes} {case.place} {case.restart}\n  {said}"


def main() -> None:
    """Print the table, or the incidents that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="incidents per kind (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--wrong", action="store_true", help="print what is wrong in place of the table")
    values = parser.parse_args()
    seeds = range(values.first, values.first + values.seeds)
    if values.wrong:
        print("\n".join(wrong(seeds)))
        return
    print("| planted | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 1) + "|")
    for plant, counts in rows(seeds):
        print(f"| {plant} | " + " | ".join(str(counts[name]) for name in COLUMNS) + " |")


if __name__ == "__main__":
    main()
