"""What a simulated cluster is like: sizes, layout, and what every part of a recovery costs."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.simulation.failures import FailureInputError

NET_S = 0.002
"""One message on the network."""
ETCD_S = 0.005
"""One transaction."""

_SHARES = (("detect_s", 0.25), ("stop_s", 0.2), ("form_s", 0.2), ("restore_s", 0.35))


@dataclass(frozen=True, slots=True)
class Costs:
    """What a recovery is made of, in s. `spawn_s`: a replacement from the order to the barrier."""

    detect_s: float
    stop_s: float
    form_s: float
    restore_s: float
    spawn_s: float

    @property
    def total_s(self) -> float:
        """From the failure to training again, when a replacement is at hand."""
        return self.detect_s + max(self.stop_s, self.spawn_s) + self.form_s + self.restore_s


def split(recovery_s: float) -> Costs:
    """A recovery of so many seconds in all, cut into its parts as published ones are. Raises
    FailureInputError when it is too short to be one."""
    if recovery_s < 0.1:
        raise FailureInputError(f"--recovery-s {recovery_s:g} is too short: give 0.1 or more")
    # The network and etcd take their own time; the rest is divided.
    rest = recovery_s - 2 * ETCD_S - 6 * NET_S
    parts = {name: share * rest for name, share in _SHARES}
    return Costs(**parts, spawn_s=parts["stop_s"])


@dataclass(frozen=True, slots=True)
class Setup:
    """One simulated cluster and its one job. Spans in s."""

    nodes: int
    days: float
    costs: Costs
    nproc: int = 1  # ranks per node
    nodes_per_replica: int = 1
    spares: int = 0  # nodes that the job leaves free while nothing fails
    nodes_min: int = 0  # below it the job waits; 0: one replica
    fixed: bool = False  # it waits below the most that it takes, whatever `nodes_min` says
    checkpoint_every_s: float = 10.0  # of training, between two copies that a restart may begin from
    stall_s: float = 0.0  # each copy keeps training for so long
    step_s: float = 1.0
    donors: bool = False  # survivors' state is clean: a recovery loses a part of one step at most
    first_start_s: float = 60.0

    @property
    def nodes_max(self) -> int:
        """The most nodes that the job takes, a whole number of replicas."""
        return (self.nodes - self.spares) // self.nodes_per_replica * self.nodes_per_replica

    @property
    def least(self) -> int:
        """The nodes it needs at least."""
        return self.nodes_max if self.fixed else self.nodes_min or self.nodes_per_replica

    @property
    def steps_per_checkpoint(self) -> int:
        """Steps between two copies."""
        return max(1, round(self.checkpoint_every_s / self.step_s))

    def check(self) -> None:
        """Raises FailureInputError with the mend when nothing could run like this."""
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
