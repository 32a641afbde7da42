"""Define the fixed vocabulary: phases, causes, strategies, tiers. Each value is explained beside it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

NO_STEP = -1
"""No state is held, or no step is known."""

NEVER_STEP = 1 << 60
"""A step that no job reaches."""

NO_RANK = -1
"""Not a rank of a generation: a spare, or a member without a seat."""

AHEAD_MAX_S = 86_400.0
"""How far a node's clock may be ahead of a leader's. An incarnation is the time (ns) at which its agent
started, and a newer one always wins: one from the far future would bar all later agents of the node."""


class MemberPhase(StrEnum):
    """Where one member stands, as its agent reports it. A member is one process; a restart is a new
    member."""

    LAUNCHED = "launched"  # the coordinator has ordered it, its agent has not confirmed it yet
    WARM = "warm"  # an interpreter that has imported torch and waits for a script
    STARTING = "starting"  # runs the script, which has not called the SDK (a plain script stays here)
    READY = "ready"  # waits at the barrier for a generation; `held_step` is its clean step
    FORMING = "forming"  # was given a generation: builds its groups, restores its state
    RUNNING = "running"  # trains in `generation`
    FINISHED = "finished"  # its elastic function has returned; it waits for the other ranks
    RAISED = "raised"  # the script raised an exception; the process is about to end
    EXITED = "exited"  # the process has ended


ASKED = (MemberPhase.LAUNCHED, MemberPhase.WARM)
"""Phases in which a script has been ordered and does not run yet."""

GONE = (MemberPhase.RAISED, MemberPhase.EXITED)
"""Phases in which the script is over."""

IN_GENERATION = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
"""Phases of a member that has left the barrier together with the other ranks."""


class JobPhase(StrEnum):
    """Where a job stands. `TRANSITIONS` says which phase may follow which."""

    PENDING = "pending"  # waits for nodes
    LAUNCHING = "launching"  # members are starting; no process group exists yet
    RUNNING = "running"  # trains
    STOPPING = "stopping"  # a generation is broken: survivors stop, replacements start
    LOADING = "loading"  # the restore point is chosen; state is brought to the nodes that need it
    STORING = "storing"  # the next generation is being written to etcd
    FORMING = "forming"  # ranks have the generation: they build groups and restore state
    LEAVING = "leaving"  # every rank's function has returned; what the scripts do afterwards still runs
    PARKED = "parked"  # cannot continue now; `reason` says what is missing
    PAUSED = "paused"  # people paused it: every rank holds its state at the barrier
    FINISHED = "finished"
    FAILED = "failed"  # ended by a failure that no strategy could resolve
    STOPPED = "stopped"  # ended by people


_ENDS = (JobPhase.FAILED, JobPhase.STOPPED)

TRANSITIONS: dict[JobPhase, frozenset[JobPhase]] = {
    JobPhase.PENDING: frozenset((JobPhase.STORING, *_ENDS)),
    JobPhase.LAUNCHING: frozenset((JobPhase.RUNNING, JobPhase.LOADING, JobPhase.STOPPING, *_ENDS)),
    JobPhase.RUNNING: frozenset(
        (
            *(JobPhase.LAUNCHING, JobPhase.FORMING, JobPhase.STOPPING),
            *(JobPhase.LEAVING, JobPhase.FINISHED, *_ENDS),
        )
    ),
    JobPhase.STOPPING: frozenset(
        (JobPhase.LOADING, JobPhase.STORING, JobPhase.PARKED, JobPhase.PAUSED, *_ENDS)
    ),
    JobPhase.LOADING: frozenset((JobPhase.STORING, JobPhase.STOPPING, *_ENDS)),
    JobPhase.STORING: frozenset((JobPhase.LAUNCHING, JobPhase.FORMING, JobPhase.STOPPING, *_ENDS)),
    JobPhase.FORMING: frozenset(
        (JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.LEAVING, JobPhase.FINISHED, *_ENDS)
    ),
    JobPhase.LEAVING: frozenset((JobPhase.LOADING, JobPhase.STOPPING, JobPhase.FINISHED, *_ENDS)),
    JobPhase.PARKED: frozenset((JobPhase.STOPPING, JobPhase.STORING, *_ENDS)),
    JobPhase.PAUSED: frozenset((JobPhase.STOPPING, *_ENDS)),
    JobPhase.FINISHED: frozenset(),
    JobPhase.FAILED: frozenset(),
    JobPhase.STOPPED: frozenset(),
}
"""Which phase may follow which. `ClusterState.set_phase` asserts it.

Two changes are no transitions: a job that is submitted again after its end is a new `Job`, and a new
leader starts from the phase that etcd holds."""


class Role(StrEnum):
    """What a process was launched as."""

    RANK = "rank"
    SPARE = "spare"


class Scope(StrEnum):
    """The extent of a failure."""

    RANK = "rank"
    DEVICE = "device"
    NODE = "node"
    JOB = "job"  # every rank at once, or a failure without a dead rank


class Cause(StrEnum):
    """Why something was judged dead or broken."""

    SIGNALED = "signaled"  # killed by a signal (SIGKILL, SIGSEGV, the OOM killer)
    EXITED = "exited"  # ended with an exit code other than 0, or with 0 too early
    RAISED = "raised"  # the user's script raised an exception
    SILENT = "silent"  # no heartbeat within the process timeout (stopped, wedged), or never started
    STUCK = "stuck"  # did not stop, form or restore within its deadline
    DEVICE = "device"  # a device sensor reported a fault
    NODE_LOST = "node_lost"  # the agent fell silent, or its stream broke, and it did not return in time
    NODE_RESTARTED = "node_restarted"  # the node came back without its members
    BROKEN = "broken"  # a collective failed on this rank: it suspects a peer
    LAUNCH_FAILED = "launch_failed"  # the process could not be started at all
    HUNG = "hung"  # sends heartbeats but makes no progress, and the other ranks wait for it
    FAULT = "fault"  # a numeric anomaly: NaN or Inf, or the script reported wrong numbers
    RESIZED = "resized"  # nothing failed: a planned change of the job's places
    CUT = "cut"  # this node and other nodes of the generation do not reach each other


class Strategy(StrEnum):
    """How an incident is resolved."""

    SPARE = "spare"  # warm spares take the ranks of the dead; survivors keep their processes
    RESPAWN = "respawn"  # a new process starts in the same place; survivors wait for it
    RELAUNCH = "relaunch"  # all ranks are started again (scripts without the SDK)
    AWAIT_NODE = "await_node"  # a node's ranks wait for a node with capacity; survivors hold their state
    SHRINK = "shrink"  # the job continues on fewer nodes, and grows again when there are more
    GROW = "grow"  # connected, idle nodes join at a step boundary
    MOVE = "move"  # ranks change their places at a step boundary
    PAUSE = "pause"  # every rank stops at a step boundary and holds its state until people resume
    REFORM = "reform"  # no rank died: the same members form again (a broken connection)
    ROLLBACK = "rollback"  # the state is not trusted: the same members go back to an older one
    STOP = "stop"  # a retry would loop or is not allowed: the job ends with the reason


class Tier(StrEnum):
    """Where the state of a generation's first step comes from, nearest first."""

    FRESH = "fresh"  # nothing to restore: step 0, as the script built it
    DONOR = "donor"  # a living rank
    MEMORY = "memory"  # a snapshot in shared memory of the rank's own node
    PEER = "peer"  # a replica of a snapshot in another node's memory
    CHECKPOINT = "checkpoint"  # a committed checkpoint on storage


ON_NAN = ("rollback", "stop", "ignore")
"""The values that JobSpec.on_nan may have."""


ON_CORRUPT_STATE = ("", "act")
"""The values that JobSpec.on_corrupt_state may have; "" stands for `report`."""


GIB = 2.0**30
"""Bytes are told in GiB."""

NAMED_MAX = 8
"""Names, or ranks, that a sentence holds at most."""


def some_of(names: Collection[object]) -> str:
    """Names, or ranks, for a sentence: so many at most, and how many more there are."""
    more = len(names) - NAMED_MAX
    shown = ", ".join(map(str, [*names][:NAMED_MAX]))
    return f"{shown} and {more} more" if more > 0 else shown


_SHOWN = {Cause.SIGNALED.value: "killed"}


def in_words(cause: str) -> str:
    """A cause, or another code of this module, as people are shown it. Programs read the code itself."""
    return _SHOWN.get(cause, cause.replace("_", " "))


OFF_WIRE = {"wire": False}
"""Metadata of a field that the receiving daemon fills and no message carries. Such fields come last in
their record."""


WHOLE_STATE = "all"
"""The shard id of replicated state: every rank holds all of it."""
