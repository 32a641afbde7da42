"""Choose the strategy for a verdict: one ladder of rungs per cause, read from the top.

A rung is a condition on the situation, a strategy, and the reason that people are shown. The first rung whose
condition holds decides, so the order of a ladder is its policy: rungs that end the job stand before those
that go on, and the last one always applies. `lifecycle.incidents` fills in the situation. The module is pure:
it reads the situation and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.failures.blame import CORRUPT_STATE
from controlplane.core.records.model import Cause, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

HOPELESS = frozenset(
    {"SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "FileNotFoundError"}
)
"""Types of exceptions that a script will raise at every start, if it raised them before its first barrier."""

MISUSE = "holdfast.SessionError"
"""The type that the session raises when a script misuses it, or has state that it cannot keep."""

NODE_RESTARTS_MAX = 10
"""How often within one hour a plain script is started again because a node restarted; a larger
--max-restarts replaces it. A job with the SDK has no such limit."""
HOUR_S = 3600.0

UNCOUNTED = frozenset({Cause.NODE_LOST, Cause.NODE_RESTARTED, Cause.CUT, Cause.RESIZED})
"""Causes that never lie in the script: such failures are not counted as repeats of one another.
Restarted nodes have a count of their own, within one hour (NODE_RESTARTS_MAX)."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts about a job from which its strategy is chosen.

    A rung's reason may name any field in braces; `choose` fills in its value."""

    elastic: bool  # the script uses the SDK; False while all ranks are started again, unless `after_return`
    barrier: bool  # some rank has reached the barrier, or a step has been completed, before now
    exception: str  # type of the first failure's exception; "" when none was raised
    repeats: int  # how often this same failure was seen, this time included
    restarts: int  # failures that the job has survived
    max_restarts: int  # the job's --max-restarts
    dead: int  # number of seats whose member is dead
    nodes_up: bool  # every dead seat's node is up and may take the job's ranks
    spares: bool  # each dead seat has a READY spare on its node
    shrinks: int = 0  # number of nodes the job may go on with now; 0: it does not shrink (yet)
    missing: str = ""  # names of the nodes that a shrunken job would do without
    layout: str = ""  # the layout of the shrunken job, and why that one; "" when `shrinks` is 0
    planned: str = ""  # strategy of the planned change that this incident is; "": it is a failure
    why: str = ""  # reason of that planned change; "" without one
    after_return: bool = False  # the elastic function had returned, and the scripts ran on after it
    on_fault: str = "rollback"  # policy for the newest numeric anomaly: rollback or stop


@dataclass(frozen=True, slots=True)
class Rung:
    """One line of a ladder: the condition, the strategy that follows, and the reason as people read it."""

    applies: Callable[[Situation], bool]
    strategy: Strategy
    reason: str


HOPELESS_START = Rung(
    lambda s: not s.barrier and s.exception in HOPELESS,
    Strategy.STOP,
    "the script cannot go on: {exception} will not heal by starting it again",
)
CANNOT_START = Rung(lambda s: not s.barrier, Strategy.STOP, "the script could not be started")
MISUSED = Rung(
    lambda s: s.exception == MISUSE,
    Strategy.STOP,
    "the session cannot be used so: starting it again would raise it again",
)
UNBORN = Rung(
    lambda s: s.elastic and not s.barrier,
    Strategy.STOP,
    "{exception} before the script first came to the barrier: starting it again would raise it again",
)
REPEATED = Rung(
    lambda s: s.elastic and s.repeats > s.max_restarts,
    Strategy.STOP,
    "the same failure at the same step {repeats} times, --max-restarts is {max_restarts}",
)
PLAIN_SPENT = Rung(
    lambda s: not s.elastic and s.restarts >= s.max_restarts,
    Strategy.STOP,
    "{restarts} restarts are spent, --max-restarts is {max_restarts}",
)
PLAIN = Rung(
    lambda s: not s.elastic,
    Strategy.RELAUNCH,
    "the script does not use the SDK: every rank is started again",
)
REFORM = Rung(lambda s: s.dead == 0, Strategy.REFORM, "nobody died: the same members re-form")
BEHIND = Rung(
    lambda s: s.after_return,
    Strategy.RELAUNCH,
    "the training is over: every rank's script is run again from the final state, and what follows it",
)
SHRINK = Rung(
    lambda s: not s.nodes_up and s.shrinks > 0,
    Strategy.SHRINK,
    "no node has room for the ranks of {missing}: the job goes on with {shrinks} nodes, and grows back; "
    "{layout}",
)
AWAIT_NODE = Rung(
    lambda s: not s.nodes_up,
    Strategy.AWAIT_NODE,
    "a node is away: survivors hold their state until it, or another with room, is there",
)
SPARE = Rung(lambda s: s.spares, Strategy.SPARE, "a warm spare takes each dead rank, survivors stay")
RESPAWN = Rung(lambda s: True, Strategy.RESPAWN, "no spare is ready: a new process is started in its place")

GROW, MOVE, LEAVE, PAUSE = (
    Rung(lambda s, strategy=strategy: s.dead == 0 and s.planned == strategy, strategy, "{why}")  # type: ignore[misc]
    for strategy in (Strategy.GROW, Strategy.MOVE, Strategy.SHRINK, Strategy.PAUSE)
)

PLAIN_GROW = Rung(
    lambda s: not s.elastic and s.dead == 0 and s.planned == Strategy.GROW,
    Strategy.RELAUNCH,
    "{why}; the script does not use the SDK: every rank is started again",
)

NODE_SPENT = Rung(
    lambda s: not s.elastic and s.repeats > max(s.max_restarts, NODE_RESTARTS_MAX),
    Strategy.STOP,
    "its nodes came back without its ranks {repeats} times within an hour",
)

_PLACES = (PLAIN, BEHIND, REFORM, SHRINK, AWAIT_NODE, SPARE, RESPAWN)
_COUNTED = (PLAIN_SPENT, REPEATED, *_PLACES)

FAULT_STOPS = Rung(
    lambda s: s.on_fault == "stop", Strategy.STOP, "the numbers are wrong, and the policy is to stop"
)
CORRUPTING = Rung(
    lambda s: s.exception == CORRUPT_STATE and s.on_fault == "stop",
    Strategy.STOP,
    "the script itself makes replicas of the state differ: going back would do it again",
)
CORRUPT_AGAIN = Rung(
    lambda s: s.exception == CORRUPT_STATE and s.repeats > s.max_restarts,
    Strategy.STOP,
    "replicas differ at the same step {repeats} times, --max-restarts is {max_restarts}: more likely the "
    "script's own doing than damaged memory",
)
CORRUPT = Rung(
    lambda s: s.exception == CORRUPT_STATE,
    Strategy.ROLLBACK,
    "replicas of the state differ: all ranks go back to what they held alike",
)
FAULT_AGAIN = Rung(
    lambda s: s.repeats > 1, Strategy.STOP, "the numbers are wrong again at the same step, after a roll back"
)
ROLLBACK = Rung(
    lambda s: True, Strategy.ROLLBACK, "the numbers are wrong: all ranks go back to an older state"
)

LADDERS: dict[Cause, tuple[Rung, ...]] = {
    Cause.HUNG: _COUNTED,
    Cause.FAULT: (CORRUPTING, FAULT_STOPS, CORRUPT_AGAIN, CORRUPT, FAULT_AGAIN, ROLLBACK),
    Cause.SIGNALED: _COUNTED,
    Cause.EXITED: (HOPELESS_START, *_COUNTED),
    Cause.RAISED: (MISUSED, HOPELESS_START, UNBORN, *_COUNTED),
    Cause.SILENT: _COUNTED,
    Cause.STUCK: _COUNTED,
    Cause.DEVICE: _COUNTED,
    Cause.BROKEN: _COUNTED,
    Cause.NODE_LOST: _PLACES,
    Cause.NODE_RESTARTED: (NODE_SPENT, *_PLACES),
    Cause.CUT: _PLACES,
    Cause.RESIZED: (PLAIN_GROW, GROW, MOVE, LEAVE, PAUSE, *_PLACES),
    Cause.LAUNCH_FAILED: (CANNOT_START, *_COUNTED),
}


def choose(cause: Cause, situation: Situation) -> tuple[Strategy, str]:
    """Return the strategy and the reason of the first rung that applies in the ladder of `cause`."""
    for rung in LADDERS[cause]:
        if rung.applies(situation):
            fields = {name: getattr(situation, name) for name in Situation.__slots__}
            return rung.strategy, rung.reason.format(**fields)
    raise AssertionError(f"the ladder of {cause} ends without a strategy")
