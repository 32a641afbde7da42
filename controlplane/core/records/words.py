"""The fixed words of the house: phases, causes, strategies, tiers. What each means stands beside it."""

from __future__ import annotations

from enum import StrEnum

NO_STEP = -1
"""Means: no state held, no step known."""

NO_RANK = -1
"""Means: not part of a generation (a spare, or a member not yet placed)."""


class MemberPhase(StrEnum):
    """Where one member (one rank process, one life) stands, as its agent reports it."""

    LAUNCHED = "launched"  # ordered by the coordinator; the agent has not confirmed it yet
    WARM = "warm"  # an interpreter that has imported torch and waits for a script
    STARTING = "starting"  # runs the script; the SDK has not spoken (a plain script stays here)
    READY = "ready"  # the SDK waits at the barrier for a generation; `held_step` says with what state
    FORMING = "forming"  # was told of a generation: builds groups, restores state
    RUNNING = "running"  # trains in `generation`
    FINISHED = "finished"  # its train() returned; it waits for the others
    RAISED = "raised"  # the script raised; the process is about to end
    EXITED = "exited"  # the process is gone


ASKED = (MemberPhase.LAUNCHED, MemberPhase.WARM)
"""Its script has been ordered, and does not run yet."""

GONE = (MemberPhase.RAISED, MemberPhase.EXITED)
"""Its script is over."""

IN_GENERATION = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
"""It has left the barrier with others."""


class JobPhase(StrEnum):
    """Where a job stands."""

    PENDING = "pending"  # waits for nodes
    LAUNCHING = "launching"  # members are starting; no process group yet
    RUNNING = "running"
    STOPPING = "stopping"  # a generation is broken: survivors stop, replacements start
    LOADING = "loading"  # a checkpoint is being fetched and verified
    STORING = "storing"  # the next generation is on its way into etcd
    FORMING = "forming"  # members were told; groups and state are being built
    LEAVING = "leaving"  # every rank's function has returned: their scripts run on behind it
    PARKED = "parked"  # cannot go on by itself now; `reason` says what is missing
    PAUSED = "paused"  # people want it so: every rank holds its state at the barrier
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"  # people ended it


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
"""Which phase may follow which. A job that is submitted again after its end is a new `Job`; a new leader
begins with what etcd holds. `ClusterState.set_phase` holds it."""


class Role(StrEnum):
    """What a launched process is for."""

    RANK = "rank"
    SPARE = "spare"


class Scope(StrEnum):
    """The extent of a failure."""

    RANK = "rank"
    DEVICE = "device"
    NODE = "node"
    JOB = "job"  # every rank at once


class Cause(StrEnum):
    """Why something was judged dead or broken."""

    SIGNALED = "signaled"  # killed by a signal (SIGKILL, SIGSEGV, the OOM killer)
    EXITED = "exited"  # ended by itself with a code other than 0, or too early with 0
    RAISED = "raised"  # an exception left the user's script
    SILENT = "silent"  # no beat within the process timeout (stopped, wedged, or its gate broken)
    STUCK = "stuck"  # did not stop, form or restore within its deadline
    DEVICE = "device"  # a device sensor said so
    NODE_LOST = "node_lost"  # the agent's stream broke and did not return in time
    NODE_RESTARTED = "node_restarted"  # the node came back without its members
    BROKEN = "broken"  # a collective failed here: suspicion of a peer, not of this member
    LAUNCH_FAILED = "launch_failed"  # the process could not be started at all
    HUNG = "hung"  # beats, but gets no further: past its deadline, and the others wait for it
    FAULT = "fault"  # the numbers are wrong: NaN or Inf, or the script says so
    RESIZED = "resized"  # nothing failed: the job is to have other places
    CUT = "cut"  # other nodes of the generation and this one do not reach each other


class Strategy(StrEnum):
    """How a job gets past a failure."""

    SPARE = "spare"  # a warm spare takes the dead rank, survivors re-form in place
    RESPAWN = "respawn"  # a new process is started in the same place, survivors wait for it
    RELAUNCH = "relaunch"  # every rank is started again (scripts that know nothing of Holdfast)
    AWAIT_NODE = "await_node"  # a node's ranks wait for a node with room; survivors hold their state
    SHRINK = "shrink"  # the job goes on with fewer nodes; grows back when nodes are there
    GROW = "grow"  # nodes that stand ready join at a step boundary
    MOVE = "move"  # ranks change their places at a step boundary
    PAUSE = "pause"  # every rank stops at a step boundary and holds its state, until people let them go on
    REFORM = "reform"  # nobody died: the same members re-form (a broken connection)
    ROLLBACK = "rollback"  # the state is not to be trusted: the same members go back to an older one
    STOP = "stop"  # going on would loop or is not allowed: the job ends with the reason


class Tier(StrEnum):
    """Where the state of a generation's first step comes from, nearest first."""

    FRESH = "fresh"  # nothing to restore: step 0 as the script built it
    DONOR = "donor"  # a living rank
    MEMORY = "memory"  # a snapshot in an agent's shared memory
    PEER = "peer"  # a copy of a snapshot that another node's agent keeps
    CHECKPOINT = "checkpoint"  # a committed checkpoint on storage


ON_NAN = ("rollback", "stop", "ignore")
"""What JobSpec.on_nan may be."""


OFF_WIRE = {"wire": False}
"""Metadata of a field that the shell fills, and no message carries. Such fields come last."""


WHOLE_STATE = "all"
"""The shard of replicated state: every rank holds all of it."""
