"""Declare the settings of the decision core: when it gives up, waits, moves ranks and blames nodes.

Every default is the one of `CoreSettings`, so that it stands in one place only."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.timing import POLICIES, CoreSettings
from controlplane.setting import setting

_CORE = CoreSettings()


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class DecisionSettings:
    """The settings that the core decides by: `core_settings` copies each to the field of the same name."""

    node_timeout_s: float = setting(
        _CORE.node_timeout_s,
        "a node counts as lost when its agent has been silent for this long",
        unit="s",
        minimum=1,
    )
    stop_timeout_s: float = setting(
        _CORE.stop_timeout_s,
        "how long a surviving rank may take to stop its step after a failure; then it is killed",
        unit="s",
        minimum=1,
        env=True,
    )
    form_timeout_s: float = setting(
        _CORE.form_timeout_s,
        "how long a rank may take to build its process groups and restore its state; then it is killed",
        unit="s",
        minimum=1,
    )
    retry_s: float = setting(
        _CORE.retry_s, "time after which an order without visible effect is repeated", unit="s", minimum=0.1
    )
    broken_grace_s: float = setting(
        _CORE.broken_grace_s,
        "after a broken collective, how long to wait for news of a dead rank before the same ranks try again",
        unit="s",
        minimum=0,
    )
    join_grace_s: float = setting(
        _CORE.join_grace_s,
        "how long a job that has its minimum of nodes waits for more",
        unit="s",
        minimum=0,
    )
    shrink_after_s: float = setting(
        _CORE.shrink_after_s,
        "how long a job waits for a lost node, or another in its place, before it goes on with fewer",
        unit="s",
        minimum=0,
    )
    grow_after_s: float = setting(
        _CORE.grow_after_s,
        "how long a new node must have been up before a job grows onto it",
        unit="s",
        minimum=0,
    )
    resize_every_s: float = setting(
        _CORE.resize_every_s,
        "shortest time between two planned changes of a job's nodes",
        unit="s",
        minimum=0,
    )
    launch_timeout_s: float = setting(
        _CORE.launch_timeout_s,
        "how long a node may take to start a process; then its launcher counts as dead",
        unit="s",
        minimum=1,
    )
    overdue_after_s: float = setting(
        _CORE.overdue_after_s,
        "a late snapshot or checkpoint of a training job is asked for again, at the earliest after this time",
        unit="s",
        minimum=1,
    )
    mass_loss_ratio: float = setting(
        _CORE.mass_loss_ratio,
        "when more than this share of the nodes falls silent within one node timeout, the coordinator asks "
        "each node directly before it gives any up; 1: never. Clusters of fewer than 4 nodes are exempt",
        minimum=0,
    )
    brake_max_s: float = setting(
        _CORE.brake_max_s,
        "longest time that decisions wait for the answers of silent nodes (see --mass-loss-ratio)",
        unit="s",
        minimum=1,
        flag="--guard-max-s",
    )
    lemon_score: float = setting(
        _CORE.lemon_score,
        "a node whose failures add up to more than this is quarantined: it gets ranks only when no other "
        "node is free",
        minimum=0.1,
        flag="--faulty-node-score",
    )
    quarantine_s: float = setting(
        _CORE.quarantine_s, "how long a node stays quarantined", unit="s", minimum=1
    )
    slow_rank_policy: str = setting(
        _CORE.slow_rank_policy,
        "what becomes of ranks and nodes that are found slow: off does not report them; report does; act "
        "also moves the ranks of a slow node to a spare node, if there is one",
        words=POLICIES,
        env=True,
    )
    node_risk_policy: str = setting(
        _CORE.node_risk_policy,
        "what becomes of nodes that may fail next: off does not report them; report does; act also moves the "
        "ranks of such a node to a spare node ahead of time, if there is one",
        words=POLICIES,
        env=True,
    )
    swap_every_s: float = setting(
        _CORE.swap_every_s,
        "shortest time between two moves of a job off nodes (see --slow-rank-policy, --node-risk-policy)",
        unit="s",
        minimum=0,
    )
    check_nodes: str = setting(
        _CORE.check_nodes,
        "whether a node is measured before it first takes ranks, and after a failure that began on it before "
        "it takes ranks again; it waits for that. off: no; report: what is broken or slow is reported; act: "
        "such a node also takes no ranks until a later check finds it in order, or somebody releases it",
        words=POLICIES,
        env=True,
    )
    check_timeout_s: float = setting(
        _CORE.check_timeout_s,
        "a check of a node (see --check-nodes) without a result by then is given up, and the node is used",
        unit="s",
        minimum=10,
        flag="--check-nodes-timeout-s",
    )
    check_again_s: float = setting(
        _CORE.check_again_s,
        "how often a node that takes no ranks because of its check is checked again",
        unit="s",
        minimum=10,
        flag="--check-nodes-again-s",
    )
    restart_policy: str = setting(
        _CORE.restart_policy,
        "what to do with the first cause of an incident, which is looked for in the ends of all ranks' logs: "
        "off: it is not looked for; report: it is reported, and whether it will come again; act: also, a job "
        "whose cause will certainly come again is stopped with that reason",
        words=POLICIES,
        env=True,
    )
    pause_when_critical: bool = setting(
        _CORE.pause_when_critical, "start nothing new while the health of the cluster is critical"
    )
