"""Choose which parts of which logs answer a question about ranks. Pure.

A rank may have had several processes, on several nodes, and a process several ranks one after the other. A
log belongs to a process; its marks say from which byte on the process had which rank, in which
generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.logs import NO_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controlplane.core.records.logs import LogFile


@dataclass(frozen=True, slots=True)
class LogStint:
    """For how long one process had one rank: the bytes of its log from then on, and its generations."""

    node: str
    member: str
    rank: int
    from_bytes: int
    end_bytes: int  # NO_END: to the end of the log
    generation: int  # the last of them
    at_s: float  # when it got the rank (Unix time)
    alive: bool
    begin_bytes: int  # where the output of this process begins


def stints(node: str, file: LogFile) -> list[LogStint]:
    """Cut a log where the rank of its process changed, or its generation."""
    ends = [mark.from_bytes for mark in file.marks[1:]]
    return [
        LogStint(
            node,
            file.member,
            mark.rank,
            mark.from_bytes,
            end,
            mark.generation,
            mark.at_s,
            file.alive,
            file.marks[0].from_bytes,
        )
        for mark, end in zip(file.marks, [*ends, NO_END], strict=True)
    ]


def current(found: Iterable[LogStint], rank: int) -> LogStint | None:
    """The process that has this rank, or had it last: all that it has written."""
    mine = [stint for stint in found if stint.rank == rank]
    last = max(mine, key=_age, default=None)
    return None if last is None else _whole(last, mine)


def previous(found: Iterable[LogStint], rank: int) -> LogStint | None:
    """The process that had this rank before the one that has it now."""
    mine = [stint for stint in found if stint.rank == rank]
    last = max(mine, key=_age, default=None)
    before = [stint for stint in mine if last is not None and stint.member != last.member]
    former = max(before, key=_age, default=None)
    return None if former is None else _whole(former, before)


def in_generation(found: Iterable[LogStint], rank: int, generation: int) -> LogStint | None:
    """What was written as this rank of this generation."""
    mine = [stint for stint in found if (stint.rank, stint.generation) == (rank, generation)]
    return max(mine, key=lambda stint: stint.at_s, default=None)


def ranks_of(found: Iterable[LogStint]) -> list[int]:
    """The ranks that some log is of."""
    return sorted({stint.rank for stint in found if stint.rank >= 0})


def generations_of(found: Iterable[LogStint], rank: int) -> list[int]:
    """The generations of which some log has this rank."""
    return sorted({stint.generation for stint in found if stint.rank == rank and stint.generation > 0})


def gone(files: Mapping[str, LogFile], stint: LogStint) -> int:
    """How many bytes of what was chosen are not kept any more."""
    file = files[stint.member]
    end = file.bytes if stint.end_bytes == NO_END else stint.end_bytes
    return max(0, min(file.gone_bytes, end) - stint.from_bytes)


def _age(stint: LogStint) -> tuple[int, float]:
    return stint.generation, stint.at_s


def _whole(last: LogStint, mine: Sequence[LogStint]) -> LogStint:
    """All that this process has written up to the end of this stint, also before it had the rank."""
    ends = [each.end_bytes for each in mine if each.member == last.member]
    end = NO_END if NO_END in ends else max(ends)
    return LogStint(
        last.node,
        last.member,
        last.rank,
        last.begin_bytes,
        end,
        last.generation,
        last.at_s,
        last.alive,
        last.begin_bytes,
    )
