"""Set every wait and limit of the core. Times are in s of the clock that `now` comes from."""

from __future__ import annotations

from dataclasses import dataclass

OFF, REPORT, ACT = "off", "report", "act"
POLICIES = (OFF, REPORT, ACT)
"""What administrators may choose for what is found: nothing, say it, or also do something about it."""

LOOK_GAPS: tuple[tuple[int, float], ...] = ((64, 0.0), (1_000, 0.25), (4_000, 0.5), (8_000, 1.0))
LOOK_GAP_MAX_S = 2.0
"""In a cluster of at most so many nodes, the least time (s) between two looks of all jobs at the nodes, and
of a job at snapshots that are not on all ranks; and in a larger one.

A look costs about 2 us for each rank. With one look for each agent that comes to a new leader, their work
would grow by the square of their number: 1,000 agents kept a leader busy for a minute. In a small cluster a
look costs nothing, and follows each change at once."""


def look_gap_s(nodes: int) -> float:
    """The least time (s) between two looks of all jobs at so many nodes."""
    return next((gap for most, gap in LOOK_GAPS if nodes <= most), LOOK_GAP_MAX_S)


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """How long the core waits, and from which counts on it acts. The daemon fills it from its own
    settings."""

    node_timeout_s: float = 30.0  # a node counts as lost after so long without a heartbeat
    stop_timeout_s: float = 30.0  # a survivor that is not at the barrier within this is killed
    form_timeout_s: float = 60.0  # a rank that has not built its groups and restored within this is killed
    retry_s: float = 1.0  # an order without visible effect is repeated after this
    long_retry_s: float = 5.0  # the same for orders that move gigabytes (Persist, Publish, Load)
    # After a broken collective, wait so long for news of a dead rank. Longer than the agents' process timeout
    # (5), or a rank that has stopped would be taken for a broken network.
    broken_grace_s: float = 6.0
    join_grace_s: float = 10.0  # with the minimum of nodes there, wait so long for more
    conflict_s: float = 5.0  # a node heard within this keeps its name against another launcher of that name
    plain_after_s: float = 20.0  # a script that runs so long without calling the SDK counts as plain
    final_checkpoint_timeout_s: float = 60.0  # a finished job waits so long for its last checkpoint
    provisional_after_s: float = 3.0  # a finalized checkpoint not in etcd by then is shown as provisional
    commit_wait_s: float = 15.0  # a restore waits so long for a newer checkpoint that is nearly committed
    stall_settle_s: float = 0.2  # after the first rank is past its deadline, wait so long for others to be
    # Stacks and flight records are read twice, so long apart: what ranks do meanwhile shows that they do not
    # hang.
    records_apart_s: float = 0.5
    stacks_timeout_s: float = 1.5  # how long to wait for the stack reports of a hung job
    ask_timeout_s: float = 60.0  # a checkpoint that a script asked for must have begun by then
    shrink_after_s: float = 5.0  # a job waits so long for a lost node, or another one, before it shrinks
    grow_after_s: float = 10.0  # a node must have been connected for so long before a job grows onto it
    resize_every_s: float = 30.0  # between two planned changes of a job; a failed one is retried after this
    gentle_s: float = 1.0  # once the first rank waits at a step boundary, the others have so long to come
    device_deaths: int = 3  # so many deaths on one device within the window exclude it
    device_window_s: float = 600.0  # that window
    launch_timeout_s: float = 120.0  # a launcher must have started a process within this
    # When more than this share of the nodes falls silent within one node timeout, the mass-failure guard
    # keeps them from being lost: the coordinator's own network may be at fault. 1: never.
    mass_loss_ratio: float = 0.3
    mass_loss_least: int = 4  # no guard in clusters of fewer nodes: one node of three is a third already
    probe_every_s: float = 5.0  # a silent node that has not answered a probe is probed again after this
    brake_max_s: float = 30.0  # the guard gives up silent nodes after this at the latest
    flaps_free: int = 3  # returns within the window that cost a node nothing; each further one holds it down
    flap_window_s: float = 600.0  # that window
    hold_s: float = 10.0  # the first hold-down; each further return doubles it
    hold_max_s: float = 300.0  # the longest hold-down
    lemon_score: float = 3.0  # a node whose failures weigh more than this is quarantined
    lemon_half_life_s: float = 7 * 86400.0  # after this time a failure weighs half
    quarantine_s: float = 86400.0  # a quarantine ends by itself after this
    look_again_s: float = 5.0  # how often a node that is cut from its peers dials them again
    health_every_s: float = 60.0  # health is assessed at least this often, and after every change
    lost_critical_ratio: float = 0.5  # more than this share of the nodes lost: the cluster is critical
    incidents_degraded: int = 6  # more incidents within one hour: the cluster is degraded
    incidents_critical: int = 30  # more incidents within one hour: the cluster is critical
    checkpoint_late_s: float = 3600.0  # a running job without a new checkpoint for so long is reported
    # Snapshots or checkpoints of a training job are overdue after this, or after `overdue_factor` times the
    # longest gap seen lately, whichever is longer.
    overdue_after_s: float = 30.0
    overdue_factor: float = 5.0
    # What follows from a first cause that will come again: "off" (none is looked for), "report" or "act".
    restart_policy: str = "report"
    pause_when_critical: bool = False  # while the cluster is critical, nothing new is started
    slow_rank_policy: str = "report"  # what becomes of stragglers: off, report or act
    node_risk_policy: str = "report"  # what becomes of nodes that may fail next: off, report or act
    swap_every_s: float = 1800.0  # between two swaps of a job's nodes for spare ones
    check_nodes: str = "off"  # nodes are measured before they take ranks: off, report or act
    check_timeout_s: float = 120.0  # a check without a result by then is given up
    check_again_s: float = 600.0  # a node kept from ranks by its check is checked again after this
    replace_nodes: bool = False  # the platform can replace nodes, and may
    replace_after_s: float = 60.0  # a node that has been unusable for so long is replaced
    replace_per_hour: int = 6  # at most so many; wanting more suggests a mistake of our own
    collect_retry_s: float = 60.0  # checkpoints that could not be deleted from storage are retried after this
    replace_retry_s: float = 300.0  # a node that was not replaced is asked for again after this
    forget_after_s: float = 0.0  # the record of a node lost for so long is deleted; 0: never
