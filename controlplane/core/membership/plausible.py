"""Check every message of an agent against what is known: node, member, generation and step that it names.

One row per kind of message; a kind without a row raises KeyError. A message that cannot be true is
dropped, counted and journaled, and changes nothing. One that is merely late passes here: it names what was
true, and its handler drops it. The statuses in a heartbeat are checked one by one (`status`), so that one
bad status does not discard the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.records import events as ev
from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.state.cluster_state import ClusterState

REFUSED = NoteKind.REFUSED_WORD
"""The kind under which refused messages are counted and journaled."""


@dataclass(frozen=True, slots=True)
class By:
    """How one thing that a message names is checked.

    `reason` returns why it cannot be true, "" when it can. None: the handler checks it, as `how` says."""

    how: str
    reason: Callable[[ClusterState, Any], str] | None = None


@dataclass(frozen=True, slots=True)
class EventChecks:
    """How one kind of message is checked. `what` is its name for people. A check of None: it names no such
    thing."""

    what: str
    node: By
    member: By | None = None
    generation: By | None = None
    step: By | None = None


def fits(state: ClusterState, event: Any) -> bool:
    """Whether a message of the node's current agent may be acted upon. Otherwise it is dropped and
    counted."""
    row = ROWS[type(event)]
    for by in (row.node, row.member, row.generation, row.step):
        reason = by.reason(state, event) if by is not None and by.reason is not None else ""
        if reason:
            state.drop(REFUSED, event.node, f"its word of a {row.what} is not followed: {reason}")
            return False
    return True


# ------------------------------------------------------------------ nodes


def _is_asked(asked: Callable[[Any, Any], tuple[str, ...]]) -> Callable[[ClusterState, Any], str]:
    """Make a check that the node was asked for this. Where no node was asked, the handler drops the
    message."""

    def check(state: ClusterState, event: Any) -> str:
        job = state.jobs.get(event.record.job if hasattr(event, "record") else event.job)
        nodes_asked = asked(job, event) if job is not None else ()
        if not nodes_asked or event.node in nodes_asked:
            return ""
        return f"not it was asked, but {' and '.join(filter(None, nodes_asked)) or 'nobody'}"

    return check


def _asked_for_checkpoint(job: Any, event: Any) -> tuple[str, ...]:
    """The nodes that were asked to finalize, mirror, publish or mark this checkpoint."""
    name = event.record.id if hasattr(event, "record") else event.checkpoint
    saving = job.checkpoints.savings.get(name)
    if job.checkpoints.marking is not None and job.checkpoints.marking[0] == name:
        return (job.checkpoints.marking[1],)
    return () if saving is None else (saving.node, *saving.nodes_before)


def _collects(job: Any, _event: Any) -> tuple[str, ...]:
    """The node that was asked to delete old checkpoints."""
    return (
        (job.checkpoints.collecting.node,)
        if job.checkpoints.collecting is not None and job.checkpoints.collecting.node
        else ()
    )


def _reads_again(job: Any, _event: Any) -> tuple[str, ...]:
    """The node that was asked to scrub."""
    return (job.checkpoints.scrubbing[1],) if job.checkpoints.scrubbing is not None else ()


def _has_seats(job: Any, _event: Any) -> tuple[str, ...]:
    """The nodes of the job's seats while it has an open inquiry into a hang: they may send stack reports."""
    return job.seat_nodes() if job.recovery.hang is not None else ()


# ------------------------------------------------------------------ members


def _lives_there(state: ClusterState, event: Any) -> str:
    """Check that the member belongs to this job and lives on the node that reports it."""
    job = state.jobs.get(event.job)
    return "" if job is None else _stranger(job, event.member, event.node)


def _stranger(job: Any, name: str, node: str) -> str:
    """Why this member does not live on this node; "": it does."""
    member = job.members.get(name)
    if member is not None and member.node == node:
        return ""
    where = f"lives on {member.node}" if member is not None else "is unknown here"
    return f"{name:.80} of job {job.name} {where}"


def _took_part(state: ClusterState, event: Any) -> str:
    """Check the same as `_lives_there`, and if the message is about the current generation, that the member
    has a seat in it."""
    job = state.jobs.get(event.job)
    reason = _lives_there(state, event)
    if reason or job is None or job.generation is None or event.generation != job.generation.number:
        return reason
    if job.sat_in(job.generation, event.member):
        return ""
    return f"{event.member} has no seat in generation {event.generation} of job {job.name}"


def _or_unknown(check: Callable[[ClusterState, Any], str]) -> Callable[[ClusterState, Any], str]:
    """Make the same check pass for an unknown member: its message is late, and its handler drops it."""

    def ask(state: ClusterState, event: Any) -> str:
        job = state.jobs.get(event.job)
        return check(state, event) if job is not None and event.member in job.members else ""

    return ask


def _holds_the_shard(state: ClusterState, event: ev.PartPersisted) -> str:
    """Check that the member held the checkpoint's state on that node when the checkpoint began."""
    job, part = state.jobs.get(event.part.job), event.part
    saving = job.checkpoints.savings.get(part.checkpoint) if job is not None else None
    if saving is None or any((h.member, h.node) == (part.member, event.node) for h in saving.holders):
        return ""
    return f"{part.member:.80} on that node is nobody who holds checkpoint {part.checkpoint}"


def _ranks_of_its_own(state: ClusterState, event: ev.StacksCollected) -> str:
    """Check that each rank in the report lives on that node and has the rank number that it is reported
    with."""
    job = state.jobs.get(event.job)
    for report in event.ranks if job is not None and job.recovery.hang is not None else ():
        if reason := _stranger(job, report.member, event.node):
            return reason
        if job is not None and job.members[report.member].rank != report.rank:
            return f"{report.member} is rank {job.members[report.member].rank}, not {report.rank}"
    return ""


# ------------------------------------------------------------------ generations and steps


def _was_given(state: ClusterState, event: Any) -> str:
    """Check that the job has given this number to a generation."""
    job = state.jobs.get(event.job)
    if job is None or event.generation <= job.generations.number:
        return ""
    return f"job {job.name} has no generation {event.generation}: the newest is {job.generations.number}"


def _is_looked_at(state: ClusterState, event: ev.StacksCollected) -> str:
    """Check that it is the generation whose hang is being inquired into."""
    job = state.jobs.get(event.job)
    if job is None or job.recovery.hang is None or job.recovery.hang.generation == event.generation:
        return ""
    return f"generation {job.recovery.hang.generation} is looked at, not {event.generation}"


def _from_its_start(state: ClusterState, event: Any) -> str:
    """Check a message about the current generation: its step is not before the one with which the generation
    began."""
    job = state.jobs.get(event.job)
    if job is None or job.generation is None or event.generation != job.generation.number:
        return ""
    first = job.generation.resume.step
    if event.step >= first:
        return ""
    return f"generation {event.generation} began at step {first}, and it names step {event.step}"


# ------------------------------------------------------------------ statuses


def status(state: ClusterState, job: Any, of: Any) -> str:
    """Why this status of a member cannot be true; "": it can. Runs for every rank in every heartbeat."""
    top = job.generations.number
    if (
        of.generation > top
        or of.snapshot_generation > top
        or of.held_generation > top
        or of.former_generation > top
    ):
        newest = max(of.generation, of.snapshot_generation, of.held_generation, of.former_generation)
        return f"job {job.name} has no generation {newest}: the newest is {top}"
    return "" if of.member in job.members else _invented(state, of.member)


def _invented(state: ClusterState, name: str) -> str:
    """Why this name cannot exist yet: its number was not given out, and a later member would get the same
    name."""
    number = name.rpartition(".")[2]
    if not (number.isascii() and number.isdigit()):
        return ""
    return "" if int(number[:20]) < state.next_number else f"nobody has been given the name {name:.80} yet"


_STREAM = By("the agent that speaks for its node now, by its incarnation")
_HELLO = By("its certificate; its incarnation is newer than the last, and not of the future: nodes.joined")
_STATUSES = By("each status by itself: members.observe and `status`")
_ORDERED = By("it answers an order that waits: loading")
_BOUNDS = By("only within its bounds: it is shown and told, and decides nothing")
_HERE = By("it lives there; who is unknown is answered, and no more: asking", _or_unknown(_lives_there))
_SEATED = By("it is of the job, lives there, and has a seat in the generation of now", _took_part)
_SEATED_THEN = By("the same; who is gone has no say: its handler", _or_unknown(_took_part))
_VOUCHED = By("it lives there: vouching.vouched")
_ANY_STEP = By("any: it may be of a generation before, and says nothing of where the ranks are")
_GIVEN = By("the job has given that number to a generation", _was_given)
_LASTS = By("not before the step with which the generation of now began", _from_its_start)
_CHECKPOINT_NODE = By(
    "it was asked to seal, mirror or publish this checkpoint", _is_asked(_asked_for_checkpoint)
)
_FITS_PART = By("what was ordered: commit.refuse_part")
_FITS_RECORD = By("what was ordered: commit.refuse")

ROWS: dict[type, EventChecks] = {
    ev.NodeJoined: EventChecks("hello", _HELLO, _STATUSES, _STATUSES, _STATUSES),
    ev.NodeBeat: EventChecks("beat", _STREAM, _STATUSES, _STATUSES, _STATUSES),
    ev.StepBeat: EventChecks("short beat", _STREAM, _STATUSES, _STATUSES, _STATUSES),
    ev.MemberReport: EventChecks("report", _STREAM, _STATUSES, _STATUSES, _STATUSES),
    ev.DeviceReport: EventChecks("device", _STREAM),
    ev.MemberStarted: EventChecks("start", _STREAM, _SEATED_THEN, _GIVEN, _LASTS),
    ev.SnapshotReady: EventChecks("snapshot", _STREAM, _SEATED_THEN, _GIVEN, _LASTS),
    ev.SnapshotVouched: EventChecks("vouched snapshot", _STREAM, _VOUCHED, _GIVEN, _ANY_STEP),
    ev.PartPersisted: EventChecks(
        "persisted part", _STREAM, By("it holds the shard there", _holds_the_shard), _FITS_PART, _FITS_PART
    ),
    ev.Persisted: EventChecks("sealed checkpoint", _CHECKPOINT_NODE, None, _FITS_RECORD, _FITS_RECORD),
    ev.PersistFailed: EventChecks("failed checkpoint", By("it was asked for a part, or to seal: saving")),
    ev.Published: EventChecks("published checkpoint", _CHECKPOINT_NODE),
    ev.Mirrored: EventChecks("mirrored checkpoint", _CHECKPOINT_NODE),
    ev.Collected: EventChecks("collection", By("it was asked to collect", _is_asked(_collects))),
    ev.Scrubbed: EventChecks("scrub", By("it was asked to read it again", _is_asked(_reads_again))),
    ev.CheckpointAsked: EventChecks("asked checkpoint", _STREAM, _HERE, _GIVEN, _LASTS),
    ev.Fetched: EventChecks("fetched copy", _ORDERED, _ORDERED, None, _ORDERED),
    ev.Loaded: EventChecks("loaded checkpoint", _ORDERED, _ORDERED),
    ev.OrderFailed: EventChecks(
        "failed order", _STREAM, By("it lives there: members.order_failed"), None, _BOUNDS
    ),
    ev.PeersLooked: EventChecks("look at peers", By("it was asked in this round: network.looked")),
    ev.NodeChecked: EventChecks("check of a node", By("it was asked in this round: node_checks.answered")),
    ev.NodeLeaving: EventChecks("leave", _STREAM),
    ev.StacksCollected: EventChecks(
        "look at stacks",
        By("the job has seats there", _is_asked(_has_seats)),
        By("each rank lives there, and is told as what it is", _ranks_of_its_own),
        By("the one that is looked at", _is_looked_at),
        _BOUNDS,
    ),
    ev.UserFault: EventChecks("fault", _STREAM, _SEATED, _GIVEN, _LASTS),
    ev.ReplicasReported: EventChecks("comparison of replicas", _STREAM, _SEATED, _GIVEN, _LASTS),
}
