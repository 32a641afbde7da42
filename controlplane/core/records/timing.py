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
    stall_settle_s: float = 0.2  # after the first rank past its deadline, others have so long to say the same
    stacks_timeout_s: float = 1.5  # for where every rank of a hung job stands
    ask_timeout_s: float = 60.0  # a checkpoint that a script asked for must have begun by then
    shrink_after_s: float = 5.0  # a job waits so long for a lost node, or another, before it shrinks
    grow_after_s: float = 10.0  # a node must have stood for so long before a job grows onto it
    resize_every_s: float = 30.0  # two planned changes of a job's size are so far apart, or a failed one is
    # tried again after it
    gentle_s: float = 1.0  # once the first rank waits at a step boundary, the others have so long to come
    device_deaths: int = 3  # so many deaths on one device within the window exclude it
    device_window_s: float = 600.0
    launch_timeout_s: float = 120.0  # a launcher that has not started a process by then is silent
    mass_loss_ratio: float = 0.3  # more of the nodes gone within one node timeout: we are suspect; 1: never
    mass_loss_least: int = 4  # clusters of fewer nodes know no mass loss: one of three is a third
    probe_every_s: float = 5.0  # a silent node that has not answered a probe is asked again
    brake_max_s: float = 30.0  # decisions are paused for so long at the most
    flaps_free: int = 3  # a node may break and return so often within the window before it is held down
    flap_window_s: float = 600.0
    hold_s: float = 10.0  # the first hold-down; each further return doubles it
    hold_max_s: float = 300.0
    lemon_score: float = 3.0  # a node whose failures weigh more is quarantined
    lemon_half_life_s: float = 7 * 86400.0  # after so long a failure weighs half
    quarantine_s: float = 86400.0  # a quarantine ends by itself after this
    look_again_s: float = 5.0  # a node cut from its peers is asked again whether it reaches them
    health_every_s: float = 60.0  # health is looked at so often, and when something changes
    lost_critical_ratio: float = 0.5  # more of the nodes lost: the cluster is critical
    incidents_degraded: int = 6  # more incidents within one hour: the cluster is degraded
    incidents_critical: int = 30
    checkpoint_late_s: float = 3600.0  # a running job without a newer checkpoint for so long is told of
    overdue_after_s: float = 30.0  # snapshots or checkpoints of a training job are overdue after this at
    overdue_factor: float = 5.0  # least, and after so many times as long as they were seen to take
    pause_when_critical: bool = False  # a critical cluster starts nothing new
    replace_nodes: bool = False  # the shell can have nodes replaced
    replace_after_s: float = 60.0  # a node that will not do for so long is replaced
    replace_per_hour: int = 6  # more would be our own mistake
    collect_retry_s: float = 60.0  # what could not be taken off the storage is tried again after this
    replace_retry_s: float = 300.0  # one that was not taken away is tried again after this
    forget_after_s: float = 0.0  # a node lost for so long is forgotten; 0: never
