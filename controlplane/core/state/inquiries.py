"""Define what is being asked of a job's nodes: stack reports of their ranks, and which peers they reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.records.model import Standing

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import BlamedByRecords, NodeResources, RecordsJudged
    from controlplane.core.records.model import JobPhase, PeerSight


@dataclass(slots=True)
class SecondReading:
    """The second reading of the ranks of a generation that may hang; times in s."""

    begin_at: float  # it is ordered then
    round: int = 0  # of the orders that are out; 0: none is
    until: float = 0.0  # answers are waited for until then
    # Node -> stack reports of its ranks.
    answers: dict[str, tuple[Standing, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class HangInquiry:
    """The inquiry into a generation in which a rank is past its deadline; times in s."""

    generation: int
    begin_at: float  # stack reports are ordered then
    round: int = 0  # of the orders that are out; 0: none is
    until: float = 0.0  # answers are waited for until then
    # Node -> stack reports of its ranks.
    answers: dict[str, tuple[Standing, ...]] = field(default_factory=dict)
    second: SecondReading | None = None  # None: the first one proves nothing against anybody, so far
    records_by: float = 0.0  # the judgement of flight records is waited for until then; 0: not asked for
    records: RecordsJudged | None = None
    # Members past their deadline at the last round, in which no rank could be blamed yet.
    judged: tuple[str, ...] = ()


@dataclass(slots=True)
class BreakInquiry:
    """The inquiry into what the ranks of a generation called before it broke."""

    incident: int  # the number of the incident that it is part of
    generation: int
    round: int
    until: float  # answers are waited for until then
    # Node -> reports of its ranks.
    answers: dict[str, tuple[Standing, ...]] = field(default_factory=dict)
    asked: bool = False  # the records were given away to be judged
    judged: bool = False  # the verdict was taken, or there were no records
    blamed: tuple[BlamedByRecords, ...] = ()

    def standing_of(self, rank: int) -> tuple[str, Standing] | None:
        """The node that sent this rank's records, and its report; None: none did."""
        rows = ((node, each) for node, ranks in self.answers.items() for each in ranks)
        return next(((node, each) for node, each in rows if each.rank == rank), None)


@dataclass(slots=True)
class BarrierInquiry:
    """What is asked about the ranks that are late at a barrier."""

    generation: int
    phase: JobPhase  # stopping: they are still inside the generation; forming: they are not in it yet
    round: int
    late: tuple[str, ...]  # the members
    nodes: tuple[str, ...]  # that were asked
    # Node -> stack reports of its ranks.
    answers: dict[str, tuple[Standing, ...]] = field(default_factory=dict)
    resources: dict[str, NodeResources | None] = field(default_factory=dict)


@dataclass(slots=True)
class PeerDialRound:
    """One round in which the nodes of a generation dial each other."""

    round: int
    generation: int
    asked: tuple[str, ...]  # in rank order
    # Node -> what it found, by the node that it dialled.
    answers: dict[str, dict[str, PeerSight]] = field(default_factory=dict)
    judged: bool = False  # the answers were acted upon

    @property
    def complete(self) -> bool:
        """Whether all nodes have answered."""
        return all(node in self.answers for node in self.asked)
