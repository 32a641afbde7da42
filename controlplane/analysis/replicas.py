"""Word what ranks found when they compared their replicas of the state as findings.

The ranks have judged already, by majority (`holdfast.agreement.odd_replicas`); nothing is estimated here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from controlplane.analysis.live.places import Place
    from controlplane.core.records.diagnosis import ReplicasReported
    from controlplane.core.state.concerns import ReplicaDispute

KIND = "corrupt_state"
RANK_CONFIDENCE = 0.95
"""Of a rank that differs from two or more that agree: what remains is a script that treats it differently."""
BUFFERS_CONFIDENCE = 0.5
"""Of buffers: a script that changes them on one rank alone is about as likely as damaged memory."""
NOBODY_CONFIDENCE = 0.0
"""Of replicas without a majority: that they differ is certain, and nobody is blamed."""
_LOOK = Recommendation(
    "Test memory and device of this rank (ECC counters, a memory test); `holdfast drain` its node meanwhile.",
    effort=Effort.MEDIUM,
)
_UNDECIDED = Recommendation(
    "Test memory and devices of these ranks. With three replicas or more the odd one can be told.",
    effort=Effort.MEDIUM,
)


def stands(dispute: ReplicaDispute | None, agreed: ReplicasReported | None) -> bool:
    """Whether the newest that is known of the replicas is that they differ."""
    if dispute is None:
        return False
    seen = dispute.report
    return agreed is None or (agreed.generation, agreed.step) < (seen.generation, seen.step)


def findings(dispute: ReplicaDispute) -> list[Finding]:
    """One finding for each rank to blame; one about nobody where replicas have no majority."""
    seen = dispute.report
    if not seen.odd_ranks:
        ranks = ", ".join(map(str, seen.ranks))
        reason = f"they held the same, and differ in {_what(seen)}, {_since(seen)}; none has a majority"
        subject, place = f"ranks {ranks}", (("node", None), ("rank", None))
        return [_finding(seen, subject, place, reason=reason, confidence=NOBODY_CONFIDENCE, look=_UNDECIDED)]
    found = []
    for seat in dispute.odd_seats:
        others = len(seen.ranks) - len(seen.odd_ranks)
        reason = f"it differs from {others} other replicas that agree, in {_what(seen)}, {_since(seen)}"
        confidence = RANK_CONFIDENCE
        if seen.buffers:
            confidence = BUFFERS_CONFIDENCE
            reason += "; only buffers differ, which a script may change on one rank alone"
        subject = f"rank {seat.rank} ({seat.node}, device {seat.local_rank})"
        at = (("node", seat.node), ("rank", seat.rank), ("device", seat.local_rank), ("member", seat.member))
        found.append(_finding(seen, subject, at, reason=reason, confidence=confidence, look=_LOOK))
    return found


def _finding(
    seen: ReplicasReported,
    subject: str,
    place: Place,
    *,
    reason: str,
    confidence: float,
    look: Recommendation,
) -> Finding:
    """`first_step`: the first step that may have been computed with damaged state."""
    digests = [each.partition(": ") for each in seen.digests]
    return Finding(
        KIND,
        Level.DEGRADED if seen.buffers else Level.CRITICAL,
        subject,
        reason,
        place=place,
        confidence=confidence,
        evidence=(
            ("agreed_step", seen.agreed_step),
            ("found_step", seen.step),
            ("replicas_count", len(seen.ranks)),
            ("tensors", ", ".join(seen.tensors)),
            *((f"digest_{who.replace(' ', '_')}", digest) for who, _, digest in digests),
        ),
        recommendations=(
            look,
            Recommendation(
                f"Trust no snapshot or checkpoint of more than {seen.agreed_step} steps: gradients have "
                "carried the damage to all ranks. `--on-corrupt-state act` goes back by itself.",
                effort=Effort.LOW,
            ),
        ),
        first_step=seen.agreed_step,
    )


def _what(seen: ReplicasReported) -> str:
    names = ", ".join(seen.tensors) or "their state"
    return f"{names} and {seen.more} more" if seen.more else names


def _since(seen: ReplicasReported) -> str:
    return f"seen with {seen.step} steps completed; with {seen.agreed_step} all held the same"
