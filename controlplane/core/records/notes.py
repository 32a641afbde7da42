"""Define the effects that only tell, for journal, metrics and people; and name every kind of note.

A note records a decision that no other effect shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.records.model import CheckpointRecord, Incident, JobState, Plan, Verdict


class NoteKind(StrEnum):
    """What a `Note` is about. Journals and recordings hold these values, so they never change."""

    ADOPTED = "adopted"
    BROKEN = "broken"
    CADENCE = "cadence"
    CHECKPOINT_BEGUN = "checkpoint_begun"
    CHECKPOINT_REFUSED = "checkpoint_refused"
    CHECKPOINT_WAITS = "checkpoint_waits"
    CHECKPOINTS_OVERDUE = "checkpoints_overdue"
    CHECKPOINTS_OVERDUE_NO_MORE = "checkpoints_overdue_no_more"
    SNAPSHOT_SPACING = "snapshot_spacing"
    COLLECT_FAILED = "collect_failed"
    COPY_ALTERED = "copy_altered"
    COPY_GIVEN_UP = "copy_given_up"
    COPY_REFUTED = "copy_refuted"
    CORDON_REFUSED = "cordon_refused"
    CORDONED = "cordoned"
    DCS_AVAILABLE = "dcs_available"
    DCS_UNAVAILABLE = "dcs_unavailable"
    DELETE_REFUSED = "delete_refused"
    DEVICE_EXCLUDED = "device_excluded"
    DEVICE_HEALTHY = "device_healthy"
    DEVICE_SUSPECTED = "device_suspected"
    DEVICE_UNHEALTHY = "device_unhealthy"
    DRAIN_FORCED = "drain_forced"
    DRAIN_REFUSED = "drain_refused"
    DRAIN_WAITS = "drain_waits"
    DRAINING = "draining"
    ELECTED = "elected"
    FAULT_IGNORED = "fault_ignored"
    FETCH_FAILED = "fetch_failed"
    HEALTH = "health"
    INCIDENT_OVER = "incident_over"
    INCIDENT_OVERTAKEN = "incident_overtaken"
    JOB_DELETED = "job_deleted"
    LATE_FAULT = "late_fault"
    LAUNCH_WAITS = "launch_waits"
    MARKS_UNKNOWN = "marks_unknown"
    MASS_LOSS = "mass_loss"
    MASS_LOSS_OVER = "mass_loss_over"
    MEMBER_DIED = "member_died"
    NO_PARTNER = "no_partner"
    NODE_CHECKED = "node_checked"
    NODE_CHECKING = "node_checking"
    NODE_CUT = "node_cut"
    NODE_DRAINED = "node_drained"
    NODE_FORGOTTEN = "node_forgotten"
    NODE_HEALED = "node_healed"
    NODE_HEARD_AGAIN = "node_heard_again"
    NODE_HELD = "node_held"
    NODE_LOST = "node_lost"
    NODE_RELEASED = "node_released"
    NODE_REPLACE_FAILED = "node_replace_failed"
    NODE_REPLACE_HELD = "node_replace_held"
    NODE_REPLACED = "node_replaced"
    NODE_REPLACING = "node_replacing"
    NODE_SUSPECTED = "node_suspected"
    NODE_UNCHECKED = "node_unchecked"
    NOT_QUARANTINED = "not_quarantined"
    PAUSE_REFUSED = "pause_refused"
    PAUSED = "paused"
    PAUSING = "pausing"
    PROBE_ANSWERED = "probe_answered"
    QUARANTINED = "quarantined"
    RECORDS_JUDGED = "records_judged"
    REFUSED_CHECKPOINT = "refused_checkpoint"
    REFUSED_WORD = "refused_word"
    RESIZE_DROPPED = "resize_dropped"
    RESIZE_UNSAVED = "resize_unsaved"
    RESUBMITTED = "resubmitted"
    RESUMED = "resumed"
    REVIVED = "revived"
    SCRUB_FAILED = "scrub_failed"
    SEATS_MOVED = "seats_moved"
    SLOW_BARRIER = "slow_barrier"
    SNAPSHOTS_OVERDUE = "snapshots_overdue"
    SNAPSHOTS_OVERDUE_NO_MORE = "snapshots_overdue_no_more"
    SPARE_DIED = "spare_died"
    STALLED = "stalled"
    STORE_FAILED = "store_failed"
    SUBMISSION_REFUSED = "submission_refused"
    SUPERSEDED = "superseded"
    SWAP_REFUSED = "swap_refused"
    TAKEN_UP_AGAIN = "taken_up_again"
    UNCORDONED = "uncordoned"
    UNQUARANTINED = "unquarantined"
    UNREADABLE = "unreadable"
    WRITER_REPLACED = "writer_replaced"

    # Messages of agents that came too late, or that name something unknown here; counted as dropped.
    STALE_BEAT = "stale_beat"
    STALE_BROKEN = "stale_broken"
    STALE_CHECK = "stale_check"
    STALE_COLLECTED = "stale_collected"
    STALE_ELECTION = "stale_election"
    STALE_FAULT = "stale_fault"
    STATE_CORRUPT = "state_corrupt"
    STATE_JUDGED = "state_judged"
    STATE_UNCOVERED = "state_uncovered"
    STALE_FETCHED = "stale_fetched"
    STALE_INCARNATION = "stale_incarnation"
    STALE_LOADED = "stale_loaded"
    STALE_LOOK = "stale_look"
    STALE_MIRRORED = "stale_mirrored"
    STALE_ORDER_FAILED = "stale_order_failed"
    STALE_PART = "stale_part"
    STALE_PERSIST_FAILED = "stale_persist_failed"
    STALE_PERSISTED = "stale_persisted"
    STALE_PROBE = "stale_probe"
    STALE_PUBLISHED = "stale_published"
    STALE_REPLACEMENT = "stale_replacement"
    STALE_REPORT = "stale_report"
    STALE_SCRUBBED = "stale_scrubbed"
    STALE_SNAPSHOT = "stale_snapshot"
    STALE_STACKS = "stale_stacks"
    STALE_STARTED = "stale_started"
    STALE_CAUSE = "stale_cause"
    STALE_STOP = "stale_stop"
    STALE_TICKET = "stale_ticket"
    STALE_VOUCH = "stale_vouch"
    STRAY = "stray"
    STRAY_FAULT = "stray_fault"


DROPPED = frozenset(kind for kind in NoteKind if kind.startswith(("stale_", "stray")))
"""Kinds of messages that were not acted upon."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Notify the administrators. A second alert of the same (kind, subject) replaces the first."""

    kind: str
    severity: str  # warning, critical
    subject: str
    reason: str
    resolved: bool = False
    job: str = ""  # the job it is about; "": no particular one


@dataclass(frozen=True, slots=True)
class Judged:
    """For journal, metrics and people: a verdict and its plan."""

    verdict: Verdict
    plan: Plan
    incident: int


@dataclass(frozen=True, slots=True)
class IncidentChanged:
    """For journal, metrics and people: an incident reached a phase, or closed."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class JobChanged:
    """For journal, metrics and people: a job's phase or reason changed."""

    state: JobState


@dataclass(frozen=True, slots=True)
class CheckpointChanged:
    """For journal, metrics and people: what happened to a checkpoint, and why."""

    job: str
    checkpoint: str
    # One of: started, provisional, committed, failed, skipped, bad, suspect, mirrored, unmirrored, repaired,
    # collected, adopted, refused.
    outcome: str
    reason: str
    record: CheckpointRecord | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """For the journal: a decision that no other effect shows, such as a dropped message or a suspected
    node."""

    kind: NoteKind
    subject: str
    reason: str
