"""Define a simulated cluster: its sizes, its layout, and the cost of each part of a recovery."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.simulation.failures import FailureInputError

NET_S = 0.002
"""Time (s) of one message on the network."""
ETCD_S = 0.005
"""Time (s) of one etcd transaction."""

_SHARES = (("detect_s", 0.25), ("stop_s", 0.2), ("form_s", 0.2), ("restore_s", 0.35))
"""Shares of a recovery's time, by part."""


@dataclass(frozen=True, slots=True)
class RecoveryCosts:
    """The parts of a recovery, in s."""

    detect_s: float  # from the failure until the core notices it
    stop_s: float  # a survivor, from the Interrupt to the barrier
    form_s: float  # building the process groups
    restore_s: float  # putting the state in place
    spawn_s: float  # a replacement, from its launch order to the barrier

    @property
    def total_s(self) -> float:
        """Time (s) from the failure until training goes on, when a replacement is at hand."""
        return self.detect_s + max(self.stop_s, self.spawn_s) + self.form_s + self.restore_s


def split(recovery_s: float) -> RecoveryCosts:
    """Divide a recovery of `recovery_s` in all into its parts, by the shares that published ones have.

    Raises FailureInputError when it is too short."""
    if recovery_s < 0.1:
        raise FailureInputError(f"--recovery-s {recovery_s:g} is too short: give 0.1 or more")
    # Messages and etcd transactions take time of their own; only the rest is divided.
    rest = recovery_s - 2 * ETCD_S - 6 * NET_S
    parts = {name: share * rest for name, share in _SHARES}
    return RecoveryCosts(**parts, spawn_s=parts["stop_s"])


@dataclass(frozen=True, slots=True)
class Setup:
    """One simulated cluster and its one job. Times in s."""

    nodes: int
    days: float  # simulated time
    costs: RecoveryCosts
    nproc: int = 1  # ranks per node
    nodes_per_replica: int = 1
    spares: int = 0  # nodes that the job leaves free while nothing fails
    nodes_min: int = 0  # fewest nodes with which the job trains; 0: one replica
    fixed: bool = False  # the job trains with `nodes_max` nodes or waits; `nodes_min` does not count
    checkpoint_every_s: float = 10.0  # training time between two copies of the state for restarts
    stall_s: float = 0.0  # time for which each copy stops training
    step_s: float = 1.0  # time of one step
    donors: bool = False  # survivors keep clean state: a recovery loses a part of one step at most
    first_start_s: float = 60.0  # from the first launch order to the barrier

    @property
    def nodes_max(self) -> int:
        """Most nodes that the job takes, a whole number of replicas."""
        return (self.nodes - self.spares) // self.nodes_per_replica * self.nodes_per_replica

    @property
    def least(self) -> int:
        """Fewest nodes with which the job trains."""
        return self.nodes_max if self.fixed else self.nodes_min or self.nodes_per_replica

    @property
    def steps_per_checkpoint(self) -> int:
        """Steps between two copies of the state; at least 1."""
        return max(1, round(self.checkpoint_every_s / self.step_s))

    def check(self) -> None:
        """Raise FailureInputError, with the remedy, when nothing could run with these values."""
        unit = self.nodes_per_replica
        checks = (
            (self.nodes >= 1, f"--nodes {self.nodes}: give 1 or more"),
            (self.days > 0, f"--days {self.days:g}: give more than 0"),
            (self.nproc >= 1, f"--nproc-per-node {self.nproc}: give 1 or more"),
            (unit >= 1, f"--nodes-per-replica {unit}: give 1 or more"),
            (0 <= self.spares, f"--spares {self.spares}: give 0 or more"),
            (self.nodes_max >= 1, f"--nodes {self.nodes} with --spares {self.spares} leaves no replica of "
             f"{unit} nodes: give more nodes or fewer spares"),
            (self.least % unit == 0, f"--nodes-min {self.least} is no multiple of {unit}: whole replicas"),
            (self.least <= self.nodes_max, f"--nodes-min {self.least} is more than the {self.nodes_max} "
             "nodes that the job may have: give less"),
            (self.step_s > 0, f"--step-s {self.step_s:g}: give more than 0"),
            (self.checkpoint_every_s >= self.step_s, f"--checkpoint-every-s {self.checkpoint_every_s:g} is "
             f"shorter than one step ({self.step_s:g} s): give --step-s too"),
            (self.stall_s >= 0, f"--stall-s {self.stall_s:g}: give 0 or more"),
        )  # fmt: skip
        for right, words in checks:
            if not right:
                raise FailureInputError(words)
