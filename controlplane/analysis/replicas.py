"""Word what ranks found when they compared their replicas of the state as findings.

The ranks have judged who differs, by majority (`holdfast.agreement.odd_replicas`), and the core what a replay
of the step says of the cause (`failures.step_replays`); nothing is estimated here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import step_replays
from controlplane.core.records.evidence import Origin
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation
from holdfast.ipc.messages.replicas import DIFFER

if TYPE_CHECKING:
    from controlplane.analysis.live.places import Place
    from controlplane.core.records.evidence import ReplayAnswer, ReplayPass, ReplicasReported
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
_SCRIPT = Recommendation(
    "Look for what the script does on one rank alone (a condition on the rank, state of its own); or declare "
    "the difference with track(..., per_rank=True).",
    effort=Effort.MEDIUM,
)
_REPLACE = Recommendation(
    "Keep the device out of use until it is tested: its rank's program, run again twice, is right "
    "(`--on-corrupt-state act` has moved the rank, if there was another device).",
    effort=Effort.MEDIUM,
)
_REDUCTION = Recommendation(
    "Test the links and network cards of these ranks' nodes, and the memory of their devices: the damage "
    "came with the reduction of gradients (the network, or buckets in memory), not with the state.",
    effort=Effort.MEDIUM,
)
_EQUAL = Recommendation(
    "Nothing has to be taken back: parameters and optimizer are equal. If it is the script that changes "
    "gradients on one rank alone, this is said once only.",
    effort=Effort.LOW,
)
_UNDECIDED = Recommendation(
    "Test memory and devices of these ranks. With three replicas or more the odd one can be told.",
    effort=Effort.MEDIUM,
)
_EACH = Recommendation(
    "Test memory and devices of these ranks, and the links between them: one of them is damaged.",
    effort=Effort.MEDIUM,
)


def stands(dispute: ReplicaDispute | None, agreed: ReplicasReported | None) -> bool:
    """Whether the newest that is known of the replicas is that they differ."""
    if dispute is None:
        return False
    seen = dispute.report
    return agreed is None or (agreed.generation, agreed.step) < (seen.generation, seen.step)


def findings(dispute: ReplicaDispute) -> list[Finding]:
    """One finding for each rank to blame; one about nobody where replicas have no majority, and no replay
    has shown which one is right, or where several ranks of one replica differ together."""
    seen, answer = dispute.report, dispute.answer
    if not dispute.odd_seats:
        return [_one_of(seen, answer) if seen.odd_ranks else _undecided(seen, answer)]
    found = []
    for seat in dispute.odd_seats:
        others = len(seen.ranks) - len(seen.odd_ranks)
        reason = f"it differs from {others} other replicas that agree, in {_what(seen)}, {_since(seen)}"
        confidence = RANK_CONFIDENCE
        if seen.buffers:
            confidence = BUFFERS_CONFIDENCE
        if seen.buffers and seen.gradients != DIFFER:
            reason += "; only buffers differ, which a script may change on one rank alone"
        reason += _order(seen)
        subject = f"rank {seat.rank} ({seat.node}, device {seat.local_rank})"
        at = (("node", seat.node), ("rank", seat.rank), ("device", seat.local_rank), ("member", seat.member))
        found.append(_finding(seen, answer, subject, at, reason=reason, confidence=confidence))
    return found


def _one_of(seen: ReplicasReported, answer: ReplayAnswer) -> Finding:
    """Ranks that hold different parts of one replica are odd together."""
    ranks, others = ", ".join(map(str, seen.odd_ranks)), len(seen.ranks) - len(seen.odd_ranks)
    reason = (
        f"ranks {ranks} differ from {others} others that agree, in {_what(seen)}, {_since(seen)}. They hold "
        "parts of one replica, and what one of them computes is in the others' state after a step: damage to "
        "one is enough, and to which one is not known"
    )
    subject, place = f"one of ranks {ranks}", (("node", None), ("rank", None))
    return _finding(seen, answer, subject, place, reason=reason + _order(seen), confidence=NOBODY_CONFIDENCE)


def _undecided(seen: ReplicasReported, answer: ReplayAnswer) -> Finding:
    ranks = ", ".join(map(str, seen.ranks))
    reason = f"they held the same, and differ in {_what(seen)}, {_since(seen)}; none has a majority"
    reason += _order(seen)
    subject, place = f"ranks {ranks}", (("node", None), ("rank", None))
    if answer.origin is Origin.HARDWARE and answer.ranks:
        wrong = ", ".join(map(str, answer.ranks))
        reason += f"; rank {wrong} does not hold what the steps give when they run again"
    return _finding(seen, answer, subject, place, reason=reason, confidence=NOBODY_CONFIDENCE)


def _finding(
    seen: ReplicasReported,
    answer: ReplayAnswer,
    subject: str,
    place: Place,
    *,
    reason: str,
    confidence: float,
) -> Finding:
    """`first_step`: the first step that may have been computed with damaged state."""
    digests = [each.partition(": ") for each in seen.digests]
    words = step_replays.WORDS.get(answer.why, answer.why)
    named = dict(place)["rank"] is not None
    look = _LOOK if named else _EACH if seen.odd_ranks else _UNDECIDED
    if seen.gradients == DIFFER:
        look = _REDUCTION
    return Finding(
        KIND,
        Level.DEGRADED if seen.buffers else Level.CRITICAL,
        subject,
        f"{reason}. Cause: {answer.origin}: {words}",
        place=place,
        confidence=confidence,
        evidence=(
            ("agreed_step", seen.agreed_step),
            ("found_step", seen.step),
            ("replicas_count", len(seen.ranks)),
            ("tensors", ", ".join(seen.tensors)),
            *((("came_first", _came_first(seen)),) if seen.gradients else ()),
            ("cause", answer.origin.value),
            ("cause_reason", answer.why),
            *((f"digest_{who.replace(' ', '_')}", digest) for who, _, digest in digests),
            *((f"replay_{number}", _passed(each)) for number, each in enumerate(seen.passes)),
        ),
        recommendations=(
            {Origin.HARDWARE: _REPLACE, Origin.SOFTWARE: _SCRIPT}.get(answer.origin, look),
            _EQUAL
            if seen.buffers and seen.gradients == DIFFER
            else Recommendation(
                f"Trust no snapshot or checkpoint of more than {seen.agreed_step} steps: gradients have "
                "carried the damage to all ranks. `--on-corrupt-state act` goes back by itself.",
                effort=Effort.LOW,
            ),
        ),
        first_step=seen.agreed_step,
    )


def _came_first(seen: ReplicasReported) -> str:
    """What was damaged first. Gradients are looked at in the step before a check only: what the steps between
    two checks did is not known."""
    if seen.gradients == DIFFER:
        return "gradients"
    return "state" if seen.step - seen.agreed_step <= 1 else "unknown"


def _order(seen: ReplicasReported) -> str:
    """What `_came_first` means, as the end of a sentence."""
    if not seen.gradients:
        return ""
    if seen.gradients == DIFFER:
        after = "; the state is equal" if seen.buffers else ", and the state follows"
        return f". The gradients differed first: after they were reduced, before the optimizer's{after}"
    if seen.step - seen.agreed_step <= 1:
        return (
            ". The gradients were equal after they were reduced: the damage came later, in memory or with "
            "the optimizer"
        )
    return (
        ". The newest gradients were equal after they were reduced: what came first in the steps since is "
        "not known (`--check-replicas-every 1` tells it)"
    )


def _passed(found: ReplayPass) -> str:
    """One pass of a replay in words: `again: all 3fa1`, `exchanged by 1: all 3fa1, but rank 2: 77c0`."""
    shift = f" by {found.shift}" if found.shift else ""
    others = ", ".join(f"rank {r}: {d}" for r, d in zip(found.ranks, found.digests, strict=False))
    return f"{found.kind}{shift}: all {found.common}" + (f", but {others}" if others else "")


def _what(seen: ReplicasReported) -> str:
    names = ", ".join(seen.tensors) or "their state"
    return f"{names} and {seen.more} more" if seen.more else names


def _since(seen: ReplicasReported) -> str:
    return f"seen with {seen.step} steps completed; with {seen.agreed_step} all held the same"
