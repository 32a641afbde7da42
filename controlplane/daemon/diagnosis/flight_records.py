"""Have the flight records of a hung or broken generation judged, and report the culprits as findings.

The core gives the records away and waits for the verdict. The analysis is that of `holdfast doctor
--flight-recorder`; it runs in a thread, so that the leader's loop goes on. What is left out of the findings,
not of the core's answer: ranks that are within their own deadline, because slow is not hung.

Of a hang the records are read twice, because the ranks are read at different moments: of two that only are
slow, the one that was read first seems to lack what the other one has completed since. The first reading is
judged. All that it shows of other ranks had happened before the second reading began. So a rank that has not
called, or not completed, what others have, and shows the same again, still lacks it then. Who waits for whom
in a cycle, or for a rank without records, is only true if no rank has moved meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from typing import TYPE_CHECKING

from controlplane.background_tasks import BackgroundTasks
from controlplane.core.records.diagnosis import BlamedByRecords, RecordsJudged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from controlplane.analysis.flight_records.diagnosis import FlightDiagnosis
    from controlplane.analysis.flight_records.records import DumpFolder
    from controlplane.core.records.effects import JudgeRecords
    from controlplane.core.records.model import Standing
    from controlplane.core.state.findings import Finding

log = logging.getLogger(__name__)
_THREAD = re.compile(
    r"^thread (?P<thread>\d{1,9}) \([^\n]{0,64}\) (?P<state>[A-Z] \([^\n]{1,120})", re.MULTILINE
)
"""A line of `holdfast.ipc.traces.native`. The main thread has the lowest number."""

DIFFERENCES = ("other_collective", "other_shape", "other_dtype")
"""What two records show whenever they were read: ranks called something else as the same operation."""
MISMATCHES = (*DIFFERENCES, "other_order")
"""What counts after a break. That a rank has not come where others were proves nothing then: it was a little
later, and the break has ended its step."""
PROVED_BY_ITSELF = ("not_arrived", "unfinished")
"""What a rank's own second reading proves, where its first one is sure of it."""
SURE_MIN = 0.6
"""Above this, the first reading rests on what the rank and one other show, not on who else is missing."""
BREAK_CONFIDENCE_MIN = 0.9
"""After a break only differences between what ranks called count, not cycles of waiting (0.8)."""


class FlightJudging:
    """The judgements of one leader term.

    `post` gives the core an event; `report(job, findings)` opens findings at once."""

    def __init__(
        self,
        post: Callable[[RecordsJudged], None],
        report: Callable[[str, Sequence[Finding]], Awaitable[None]],
    ) -> None:
        self._post, self._report = post, report
        self._tasks = BackgroundTasks()

    def judge(self, effect: JudgeRecords) -> None:
        """Judge soon; answered by RecordsJudged in any case."""
        self._tasks.begin(self._judge(effect))

    async def close(self) -> None:
        """Cancel every judgement."""
        await self._tasks.close()

    async def _judge(self, effect: JudgeRecords) -> None:
        try:
            found = await asyncio.to_thread(diagnosed, effect)
        except Exception as error:
            log.exception("the flight records of job %s could not be judged", effect.job)
            trouble = f"{type(error).__name__}: {error}"[:200]
            self._post(RecordsJudged(effect.job, effect.generation, effect.round, (), trouble))
            return
        blamed = tuple(
            BlamedByRecords(each.rank, each.kind, each.confidence, each.reason) for each in found.culprits
        )
        self._post(RecordsJudged(effect.job, effect.generation, effect.round, blamed))
        await self._report(effect.job, findings(effect, found))


def diagnosed(effect: JudgeRecords) -> FlightDiagnosis:
    """What the analysis of flight records says, as far as it is proved. It is imported here: a standby that
    takes over need not wait for it."""
    from controlplane.analysis.flight_records.diagnosis import diagnose

    folder = _read(effect.ranks)
    found, still = diagnose(folder), _still(folder, _read(effect.again))

    def counts(rank: object, kind: str, confidence: float) -> bool:
        if effect.broke:
            return kind in MISMATCHES and confidence >= BREAK_CONFIDENCE_MIN
        if kind in PROVED_BY_ITSELF and confidence > SURE_MIN:
            return rank in still
        return kind in DIFFERENCES or len(still) == len(folder.dumps)

    return dataclasses.replace(
        found,
        culprits=tuple(each for each in found.culprits if counts(each.rank, each.kind, each.confidence)),
        findings=tuple(
            each
            for each in found.findings
            if counts(dict(each.place).get("rank"), each.kind, each.confidence)
        ),
    )


def _read(ranks: Sequence[Standing]) -> DumpFolder:
    """The records in these reports, and why others are missing."""
    from controlplane.analysis.flight_records.fields import DumpError
    from controlplane.analysis.flight_records.packed import unpack
    from controlplane.analysis.flight_records.records import DumpFolder, Gap, MissingDump

    dumps, missing = [], []
    for rank in sorted(ranks, key=lambda each: each.rank):
        if not rank.flight_record:
            missing.append(MissingDump(rank.rank, Gap.ABSENT, _why_absent(rank)))
            continue
        try:
            dumps.append(unpack(rank.rank, rank.flight_record))
        except DumpError as error:
            missing.append(MissingDump(rank.rank, Gap.UNREADABLE, str(error)))
    return DumpFolder(tuple(dumps), tuple(missing))


def _still(earlier: DumpFolder, later: DumpFolder) -> frozenset[int]:
    """The ranks that have called and ended nothing between the two readings of their records."""
    from controlplane.analysis.flight_records.standing import moved

    again = {dump.rank: dump for dump in later.dumps}
    return frozenset(
        dump.rank for dump in earlier.dumps if dump.rank in again and not moved(dump, again[dump.rank])
    )


def _why_absent(rank: Standing) -> str:
    if rank.silent_s > 0:
        return f"its interpreter has not answered for {rank.silent_s:.1f} s"
    return "it has sent none: it did not answer in time, has left, or does not use the SDK"


def kernel_state(stacks: str) -> str:
    """What the kernel shows of a process's main thread, of a stack report: running, sleeping, stopped,
    uninterruptible, and what it sleeps in; "": not known."""
    threads = {int(match["thread"]): match["state"] for match in _THREAD.finditer(stacks)}
    return threads[min(threads)] if threads else ""


def findings(effect: JudgeRecords, found: FlightDiagnosis) -> list[Finding]:
    """The findings about ranks, with what their stacks show."""
    standings = {each.rank: each for each in effect.ranks}
    kept = []
    for each in found.findings:
        rank = dict(each.place).get("rank")
        standing = standings.get(rank) if isinstance(rank, int) else None
        if standing is None:
            continue
        if not effect.broke and not standing.stalled and not standing.silent_s:
            continue
        told: dict[str, float | str] = {
            "generation": float(effect.generation),
            "doing": standing.activity,
            "stack_top": "".join(standing.frames[:1]),
            "kernel_state": kernel_state(standing.stacks),
        }
        more = tuple((name, value) for name, value in told.items() if value != "")
        kept.append(dataclasses.replace(each, evidence=(*each.evidence, *more), first_step=standing.step))
    return kept
