"""From a verdict and the situation to a strategy: a table of ladders, one per cause, read from the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.model import Cause, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

HOPELESS = frozenset(
    {"SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "FileNotFoundError"}
)
"""Exceptions that a script which never got anywhere will raise again."""

MISUSE = "holdfast.SessionError"
"""What the session raises about the script itself, or about a state that it cannot keep."""

NODE_RESTARTS_MAX = 10
"""So often within an hour a script without the SDK is started again for a node's sake, at the least."""
HOUR_S = 3600.0

UNCOUNTED = frozenset({Cause.NODE_LOST, Cause.NODE_RESTARTED, Cause.CUT, Cause.RESIZED})
"""Causes that are never the script's doing: they do not count as repeats."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is left, and what was before, when a strategy is chosen."""

    elastic: bool  # the script speaks through the SDK
    barrier: bool  # it has come to the barrier, or completed a step, before
    exception: str  # type name, "" when none was raised
    repeats: int  # times this same failure was seen, this one included
    restarts: int  # failures survived so far
    max_restarts: int
    dead: int  # seats without a living member
    nodes_up: bool  # every node of a dead seat can be reached
    spares: bool  # a READY spare stands beside every dead seat
    shrinks: int = 0  # nodes that the job may go on with at once; 0: it waits, or lacks none
    missing: str = ""  # the nodes that it would go on without
    layout: str = ""  # what it would go on with, and why
    planned: str = ""  # the planned change that this is about: its strategy ...
    why: str = ""  # ... and its reason
    behind: bool = False  # the ranks had returned from their function, and their scripts ran on
    on_fault: str = "rollback"  # what is wanted when the numbers are wrong: rollback, stop


@dataclass(frozen=True, slots=True)
class Rung:
    """One line of a ladder: when it applies, what is done, and why."""

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
    lambda s: s.behind,
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
FAULT_AGAIN = Rung(
    lambda s: s.repeats > 1, Strategy.STOP, "the numbers are wrong again at the same step, after a roll back"
)
ROLLBACK = Rung(
    lambda s: True, Strategy.ROLLBACK, "the numbers are wrong: all ranks go back to an older state"
)

LADDERS: dict[Cause, tuple[Rung, ...]] = {
    Cause.HUNG: _COUNTED,
    Cause.FAULT: (FAULT_STOPS, FAULT_AGAIN, ROLLBACK),
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
    """The first rung of the cause's ladder that applies, with its reason."""
    for rung in LADDERS[cause]:
        if rung.applies(situation):
            fields = {name: getattr(situation, name) for name in Situation.__slots__}
            return rung.strategy, rung.reason.format(**fields)
    raise AssertionError(f"the ladder of {cause} ends without a strategy")
