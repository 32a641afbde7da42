"""Name what a batch script needs: sizes, places, flags of the daemons. Everything is checked before."""

from __future__ import annotations

from dataclasses import dataclass, field

END_S = 30
"""Of the seconds before the time limit, those that remain for stopping the job and ending the agents (s)."""
AGENT_S = 20
"""How long the script waits for the agents to end (s); then Slurm ends them."""

SAVED, ALWAYS, NEVER = "saved", "always", "never"
"""When a job at its time limit goes back into the queue: if it has a checkpoint, always, never."""


@dataclass(frozen=True, slots=True)
class SlurmTls:
    """The folder of certificates, and the names that servers have in theirs."""

    folder: str
    coordinator_name: str
    agents_name: str


@dataclass(frozen=True, slots=True)
class SlurmPlan:
    """One batch script. Paths are absolute, and the same on every node."""

    job: str
    cluster: str
    nodes: int  # that train
    spare_nodes: int
    slots: int  # ranks per node
    chdir: str
    python: str
    state: str  # "": coordinators are outside, nothing is kept here
    save_s: int  # seconds before the time limit at which the signal comes
    requeue: str
    time: str = ""
    sbatch: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    coordinator: str = ""  # addresses of coordinators outside; "": one on the first node
    etcd: str = ""  # addresses of an etcd outside; "": one on the first node
    etcd_binary: str = ""
    etcd_flags: tuple[str, ...] = ()
    tls: SlurmTls | None = None  # None: plaintext
    agent_flags: tuple[str, ...] = ()
    coordinator_flags: tuple[str, ...] = ()
    submit_words: tuple[str, ...] = field(default=())  # of `holdfast submit`: flags, script, arguments

    @property
    def nodes_all(self) -> int:
        """How many nodes the allocation has."""
        return self.nodes + self.spare_nodes
