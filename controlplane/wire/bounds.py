"""Bound every number that comes from outside or goes into etcd, by one table of fields.

Without bounds, a number fails only where some message, sentence or sum cannot hold it, and other data fails
with it. Fields of one name mean the same thing; where a record means something else, the record's name stands
before the field's (`Failure.step`). A number that has no row is an error. Orders are not checked: they come
from the leader, and older leaders leave fields out."""

from __future__ import annotations

from functools import cache
from math import isfinite
from typing import Any, NamedTuple

from controlplane.core.checkpoint.adopting import GENERATION_ADOPTED_MAX, STEP_ADOPTED_MAX
from controlplane.core.lifecycle.numeric_faults import STEP_MAX
from controlplane.core.records.words import NEVER_STEP
from controlplane.wire.shape import WireError, shapes_of


class Bound(NamedTuple):
    """The least and the most that a number may be, both included."""

    least: float
    most: float

    def refuses(self, value: float) -> bool:
        """Return whether a number is out of these bounds; NaN always is."""
        return not self.least <= value <= self.most


GENERATION_MAX = 2_000_000_000
PROFILE_STEPS_MAX = 50
"""Steps of one profile: torch keeps all of their events in memory until the last step is complete."""
PROFILE_TIMEOUT_MAX_S = 3600.0
COUNT_MAX = 1_000_000
_BYTES_MAX = 1 << 60
_TALLY_MAX = (1 << 31) - 1
_SEQUENCE_MAX = 1 << 62
_SPAN_MAX_S, _UNIX_MAX_S = 1e9, 1e11

STEP, NO_STEP = Bound(0, STEP_MAX), Bound(-1, STEP_MAX)
GENERATION = Bound(0, GENERATION_MAX)
COUNT, SOME, RANK = Bound(0, COUNT_MAX), Bound(1, COUNT_MAX), Bound(-1, COUNT_MAX)
TALLY, SEQUENCE, BYTES = Bound(0, _TALLY_MAX), Bound(0, _SEQUENCE_MAX), Bound(0, _BYTES_MAX)
SPAN = Bound(0, _SPAN_MAX_S)
AGE = Bound(-0.5, _SPAN_MAX_S)
"""An age compares the clocks of two processes, so it may be a little below 0."""
UNIX = Bound(0, _UNIX_MAX_S)
REAL = Bound(-1e15, 1e15)
"""A number of the training itself, as ranks cut it off (holdfast.telemetry.gradient_policy)."""
WINDOW = Bound(0, STEP_MAX << 1)

BOUNDS: dict[str, Bound | tuple[Bound | None, Bound]] = {
    # steps and generations
    "step": STEP,
    "Failure.step": NO_STEP,
    "MemberStatus.step": NO_STEP,
    "PeerCopy.step": NO_STEP,
    "RankEnded.step": NO_STEP,
    "began_step": NO_STEP,
    "Snapshot.rank": COUNT,
    "Release.step": NO_STEP,
    "Standing.step": NO_STEP,
    "held_step": NO_STEP,
    "ended_step": NO_STEP,
    "snapshot_step": NO_STEP,
    "snapshot_before": NO_STEP,
    "StepBeat.steps": NO_STEP,
    "snapshot_steps": NO_STEP,
    "snapshots_before": NO_STEP,
    "former_step": NO_STEP,
    "agreed_step": STEP,
    "void_step": NO_STEP,
    "kept_from": Bound(0, NEVER_STEP),
    "last_step": STEP,
    "versions": (RANK, STEP),
    "first": WINDOW,
    "end": WINDOW,
    "generation": GENERATION,
    "held_generation": GENERATION,
    "snapshot_generation": GENERATION,
    "former_generation": GENERATION,
    "number": GENERATION,
    "cut_at": GENERATION,
    "born": GENERATION,
    # who and how many
    "rank": RANK,
    "local_rank": RANK,
    "share": COUNT,
    "shares": COUNT,
    "slots": COUNT,
    "port": Bound(0, 65_535),
    "pid": TALLY,
    "exit_code": Bound(-(1 << 31), (1 << 31) - 1),
    "signal": Bound(0, 65_535),
    "tries": COUNT,
    "oom_kills": TALLY,
    "odd_ranks": RANK,
    "more": COUNT,
    "failed": COUNT,
    "repaired": Bound(0, 1 << 40),
    "restarts": TALLY,
    "incidents": TALLY,
    "planned": TALLY,
    "failures_seen": (None, TALLY),
    "causes": (None, TALLY),
    "incarnation": Bound(1, _SEQUENCE_MAX),
    "seq": SEQUENCE,
    "like": SEQUENCE,
    "round": SEQUENCE,
    "BeatsTaken.number": SEQUENCE,
    "sequence": Bound(-1, _SEQUENCE_MAX),
    "ended": Bound(-1, _SEQUENCE_MAX),
    "term": SEQUENCE,
    # bytes
    "bytes": BYTES,
    "bytes_freed": BYTES,
    "bytes_max": BYTES,
    "bytes_total": BYTES,
    "bytes_written": BYTES,
    "state_bytes": BYTES,
    "data_bytes": BYTES,
    "header_bytes": Bound(0, 1 << 30),
    "skipped_bytes": BYTES,
    # times
    "age_s": AGE,
    "stalled_s": AGE,
    "since_s": AGE,
    "silent_s": AGE,
    "stall_s": AGE,
    "form_s": AGE,
    "restore_s": AGE,
    "first_step_s": AGE,
    "deadline_s": SPAN,
    "process_timeout_s": SPAN,
    "fence_after_s": SPAN,
    "orphan_timeout_s": SPAN,
    "at_s": UNIX,
    "until_s": UNIX,
    "drain_by_s": UNIX,
    "score": SPAN,
    # how steps were spent
    "span_s": SPAN,
    "ranks": RANK,
    "shift": COUNT,
    "generations": GENERATION,
    "steps": COUNT,
    "last_steps": NO_STEP,
    "end_steps": STEP,
    "at_steps": STEP,
    "covered": COUNT,
    **dict.fromkeys(
        (
            *("usual_s", "wall_s", "data_s", "forward_s", "backward_s", "communication_s"),
            *("optimizer_s", "snapshot_s", "other_s", "cpu_s", "longest_s"),
            *("watched_s", "ran_s", "queued_s", "throttled_s"),
            *("compile_s", "evaluate_s", "checkpoint_s"),
        ),
        SPAN,
    ),
    "cpu_limits": Bound(-1, COUNT_MAX),
    "samples": BYTES,
    "tokens": BYTES,
    "flops": Bound(0, 1e30),
    "memory_bytes": BYTES,
    "memory_peak_bytes": BYTES,
    "memory_limit_bytes": BYTES,
    "memory_reserved_bytes": BYTES,
    "free_bytes": BYTES,
    "memory_free_bytes": BYTES,
    "disk_free_bytes": BYTES,
    "cpu_waiting": Bound(-1, _SPAN_MAX_S),  # it is only shown
    "total_bytes": BYTES,
    "device_used": Bound(-1, _SPAN_MAX_S),  # the diagnosis leaves out what is no share
    "token_flops": Bound(0, 1e30),
    "peak_flops": Bound(0, 1e30),
    # gradients and losses
    "parameters": BYTES,
    "numel": BYTES,
    "zeros": BYTES,
    "nans": BYTES,
    "infs": BYTES,
    "vanishing": BYTES,
    "skipped": STEP,
    "local_bad": RANK,
    **dict.fromkeys(("norm", "local_norm", "mean", "deviation", "least", "most", "usual", "loss"), REAL),
    # profiles
    "calls": BYTES,
    "device_s": SPAN,
    "timeout_s": SPAN,
    "first_step": NO_STEP,
    # probes of links
    "rtt_s": SPAN,
    "bytes_per_s": Bound(0, 1e15),
    "slot_s": SPAN,
    "write_s": SPAN,
    "read_s": SPAN,
    "bytes_read": BYTES,
    "burst_s": SPAN,
    "begins_s": SPAN,
    "block_s": SPAN,
    "rtt_waited_s": SPAN,
    "waited_s": SPAN,
    "pressure": SPAN,  # the diagnosis leaves out what is no share
    # logs of ranks
    "gone_bytes": BYTES,
    "from_bytes": BYTES,
    # checks of nodes
    "value": Bound(-1e30, 1e30),  # the analysis leaves out what no node can have
    "DeviceSign.value": Bound(0, 1e12),
    "crowded": SPAN,
    "within": Bound(0, 1e30),
    "load": SPAN,
    "confidence": Bound(0, 1),
    "seconds": SPAN,
    "fresh_s": SPAN,
    # what people ask for
    "nnodes_min": SOME,
    "nnodes_max": SOME,
    "nproc_per_node": SOME,
    "spares_per_node": COUNT,
    "max_restarts": COUNT,
    "snapshot_every": SOME,
    "checkpoint_every": SOME,
    "full_every": SOME,
    "keep_last": COUNT,
    "keep_every": COUNT,
    "replicas": COUNT,
    "replica_nodes": SOME,
    "nan_skip_window": COUNT,
    "check_replicas_every": COUNT,
    "tensor_parallel": SOME,
    "pipeline_parallel": SOME,
    "context_parallel": SOME,
    "checkpoint_every_s": COUNT,
    "scrub_every_s": COUNT,
    "AdoptRequest.step": Bound(0, STEP_ADOPTED_MAX),
    "AdoptRequest.generation": Bound(1, GENERATION_ADOPTED_MAX),
    "DrainRequest.deadline_s": Bound(0, 7 * 86_400),
    "EventsRequest.after": SEQUENCE,
    "MuteRequest.for_s": Bound(0, 366 * 86_400),
    "ListLogsRequest.ranks": Bound(0, COUNT_MAX),
    "ProfileRequest.ranks": Bound(0, COUNT_MAX),
    "ProfileRequest.steps": Bound(1, PROFILE_STEPS_MAX),
    "ProfileRequest.timeout_s": Bound(1, PROFILE_TIMEOUT_MAX_S),
    "ReadLogRequest.end_bytes": Bound(-1, _BYTES_MAX),
    "ReadLogRequest.tail": Bound(-1, _TALLY_MAX),
    "ReadLogRequest.since_s": UNIX,
    "StacksRequest.ranks": Bound(0, COUNT_MAX),
    "Hello.protocol_version": TALLY,
    "Hello.term_seen": SEQUENCE,
}
"""By `field` or `Record.field`. A field of pairs has two bounds; None where that half is no number."""


def of(record: str, field: str) -> Bound | tuple[Bound | None, Bound]:
    """Return the bounds of a record's number, or of both halves of its pairs. KeyError without a row."""
    found = BOUNDS.get(f"{record}.{field}") or BOUNDS.get(field)
    if found is None:
        raise KeyError(f"{record}.{field} has no bounds: give it a row in controlplane/wire/bounds.py")
    return found


def beyond(record: str, field: str, value: Any) -> str:
    """Return why a number, or a pair, is out of bounds; "" when it is not."""
    bounds = of(record, field)
    pairs = ((bounds, value),) if isinstance(bounds, Bound) else tuple(zip(bounds, value, strict=True))
    for bound, number in pairs:
        if bound is not None and bound.refuses(number):
            least, most = _number_text(bound.least), _number_text(bound.most)
            return f"{record}.{field} {number} is invalid: give {least} to {most}"
    return ""


def _number_text(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


def check(record: Any) -> None:
    """Raise WireError that names the field when a number in a record is out of bounds."""
    kind: Any = type(record)
    plan = _plan(kind)
    for name, least, most in plan.numbers:
        value = getattr(record, name)
        if not (value is None or least <= value <= most):
            raise WireError(beyond(kind.__name__, name, value))
    for name, least, most in plan.columns:
        column = getattr(record, name)
        if column and not (least <= min(column) and max(column) <= most and isfinite(sum(column))):
            raise WireError(
                f"{kind.__name__}.{name}: every value must be {_number_text(least)} to {_number_text(most)}"
            )
    for name in plan.pairs:
        for pair in getattr(record, name):
            if reason := beyond(kind.__name__, name, pair):
                raise WireError(reason)
    for name, many in plan.records:
        value = getattr(record, name)
        for each in value if many else () if value is None else (value,):
            check(each)


def check_columns(record: Any) -> None:
    """Raise WireError if the columns of a record (its tuples) have different lengths. Those that have a
    default may be empty: an older version does not send them."""
    columns = {
        shape.name: len(getattr(record, shape.name))
        for shape in shapes_of(type(record))
        if shape.many and (shape.required or getattr(record, shape.name))
    }
    if len(set(columns.values())) > 1:
        raise WireError(f"{type(record).__name__}: its columns have different lengths: {columns}")


class _Plan(NamedTuple):
    numbers: tuple[tuple[str, float, float], ...]
    columns: tuple[tuple[str, float, float], ...]  # of numbers
    pairs: tuple[str, ...]
    records: tuple[tuple[str, bool], ...]  # the field, and whether it holds several


@cache
def _plan(kind: Any) -> _Plan:
    """Return which fields are numbers, and which hold records. Raises KeyError on a number without bounds."""
    numbers: list[tuple[str, float, float]] = []
    columns: list[tuple[str, float, float]] = []
    pairs, records = [], []
    for shape in shapes_of(kind):
        if shape.is_record:
            records.append((shape.name, shape.many))
        elif shape.is_pair and _COUNTS.intersection(shape.kind):
            of(kind.__name__, shape.name)
            pairs.append(shape.name)
        elif shape.kind in (int, float):
            bound = of(kind.__name__, shape.name)
            if not isinstance(bound, Bound):
                raise TypeError(f"{kind.__name__}.{shape.name} is one number, and has the bounds of a pair")
            (columns if shape.many else numbers).append((shape.name, *bound))
    return _Plan(tuple(numbers), tuple(columns), tuple(pairs), tuple(records))


_COUNTS = {int, float}
