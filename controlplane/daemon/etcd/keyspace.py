"""Name every key that a cluster has in etcd, and bound how large a value may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.errors import ValueTooLarge
from controlplane.settings import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "/holdfast/v1"
MAX_VALUE_BYTES = 448 * 1024
"""Larger content belongs on storage, with its digest here: etcd copies every value to every member and
keeps its history."""

MAX_TXN_BYTES = 1024 * 1024
"""All values of one transaction together. etcd itself refuses requests of 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Keyspace:
    """The keys of one cluster. Names are checked as settings check them (SettingsError)."""

    cluster: str

    def __post_init__(self) -> None:
        check_name("cluster", self.cluster)

    @property
    def prefix(self) -> str:
        """All of the cluster's keys start with this."""
        return f"{ROOT}/{self.cluster}/"

    @property
    def meta(self) -> str:
        """The version of the records' layout."""
        return self.prefix + "meta"

    @property
    def config(self) -> str:
        """Settings shared by all coordinators."""
        return self.prefix + "config"

    @property
    def leader(self) -> str:
        """The leader's identity, under its lease; its create_revision is the term."""
        return self.prefix + "leader"

    @property
    def coordinators(self) -> str:
        """Prefix of the keys of living coordinators."""
        return self.prefix + "coordinators/"

    def coordinator(self, name: str) -> str:
        """One living coordinator, under its lease."""
        return self.coordinators + _named("coordinator", name)

    @property
    def nodes(self) -> str:
        """Prefix of the nodes' keys."""
        return self.prefix + "nodes/"

    def node(self, node: str) -> str:
        """A node's record. It has no lease: an expired lease does not mean a dead node."""
        return self.nodes + _named("node", node)

    @property
    def quarantine(self) -> str:
        """Prefix of the nodes' failure histories."""
        return self.prefix + "quarantine/"

    def failure_history(self, node: str) -> str:
        """One node's failure history, and until when the node is quarantined."""
        return self.quarantine + _named("node", node)

    @property
    def jobs(self) -> str:
        """Prefix of all jobs' keys."""
        return self.prefix + "jobs/"

    def job(self, job: str) -> str:
        """Prefix of one job's keys."""
        return self.jobs + _named("job", job) + "/"

    def spec(self, job: str) -> str:
        """The specification, as the user submitted it."""
        return self.job(job) + "spec"

    def state(self, job: str) -> str:
        """The job's phase and counts, for the next leader."""
        return self.job(job) + "state"

    def account(self, job: str) -> str:
        """Where the job's time went, as a leader saved it last."""
        return self.job(job) + "account"

    def findings(self, job: str) -> str:
        """What diagnosis has found about the job, as a leader saved it last."""
        return self.job(job) + "findings"

    def generation(self, job: str) -> str:
        """The newest generation; written together with its `rdzv` key."""
        return self.job(job) + "generation"

    def rdzv(self, job: str, generation: int) -> str:
        """One generation, for its own number. Those before it are deleted when it is written."""
        return f"{self.job(job)}rdzv/{generation}"

    def checkpoints(self, job: str) -> str:
        """Prefix of a job's checkpoint records."""
        return self.job(job) + "checkpoints/m/"

    def checkpoint(self, job: str, step: int, generation: int) -> str:
        """One committed checkpoint; written together with `latest`."""
        return f"{self.checkpoints(job)}{step}-{generation}"

    def latest(self, job: str) -> str:
        """The id of the newest committed checkpoint that is not marked bad."""
        return self.job(job) + "checkpoints/latest"


def check_values(values: Mapping[str, bytes]) -> None:
    """Raise ValueTooLarge when a value, or all of them together, is larger than etcd should hold."""
    for key, value in values.items():
        if len(value) > MAX_VALUE_BYTES:
            raise ValueTooLarge(
                f"the value of {key} has {len(value)} bytes, etcd takes {MAX_VALUE_BYTES} at most: "
                "keep bulk on storage and put its digest here"
            )
    total = sum(map(len, values.values()))
    if total > MAX_TXN_BYTES:
        raise ValueTooLarge(
            f"one transaction of {len(values)} values has {total} bytes, {MAX_TXN_BYTES} at most: "
            "write them in several"
        )


def _named(kind: str, name: str) -> str:
    check_name(kind, name)
    return name
