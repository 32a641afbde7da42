"""The core's settings: every span it waits, in s of the clock that `now` comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """How long the core waits for what. The shell fills it from its own settings."""

    node_timeout_s: float = 30.0  # a node silent, or whose stream stayed broken, for so long is lost
    stop_timeout_s: float = 30.0  # a survivor that does not come to the barrier within this is killed
    form_timeout_s: float = 60.0  # a member that does not form and restore within this is killed
    retry_s: float = 1.0  # an order whose effect is not seen is repeated after this
    long_retry_s: float = 5.0  # the same for orders that move gigabytes (Persist, Publish, Load)
    broken_grace_s: float = 6.0  # a broken collective waits so long for a dead member to show up;
    # more than the agents' process timeout (5), or a silent peer would be taken for a broken wire
    join_grace_s: float = 10.0  # with the minimum of nodes there, wait so long for more
    conflict_s: float = 5.0  # a node heard of within this keeps its name against another launcher
    plain_after_s: float = 20.0  # a script that runs so long without the SDK is taken for a plain one
    final_checkpoint_timeout_s: float = 60.0  # a finished job waits so long for its last checkpoint
    provisional_after_s: float = 3.0  # a sealed checkpoint that etcd has not taken by then is told as such
    commit_wait_s: float = 15.0  # a state is not chosen for so long while a newer checkpoint is nearly there
    ask_timeout_s: float = 60.0  # a checkpoint that a script asked for must have begun by then
