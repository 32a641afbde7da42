"""Decide for each message whose copies a caller may read, leave and change at a node.

A member's name begins with its job (`job.number`), and a copy records its job: both must be the job that the
caller names, and that job must be one of the caller's. Where callers are not authenticated (loopback,
plaintext) every job counts as the caller's; a copy of one job still cannot be passed off as another's
there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.peers.blocks import PeerError

if TYPE_CHECKING:
    from agent.peers.blocks import SnapshotInfo
    from controlplane.access.callers import Caller


class NotYours(PeerError):
    """A copy belongs to another job, or was left by another node: it is neither read nor changed."""


def job_of(member: str) -> str:
    """The job in a member's name; "" when the name has none."""
    return member.rpartition(".")[0]


def may_read(caller: Caller, named: str, member: str) -> None:
    """Raise NotYours unless the caller may touch this member's job, and names that job.

    An agent of an older version names none."""
    job = job_of(member)
    if named not in ("", job):
        raise NotYours(f"{member} is a member of job {job}, not of {named!r:.80}: name its own job")
    if not caller.may_touch(job):
        raise NotYours(
            f"{caller} may touch copies of {', '.join(caller.jobs)} only, not of job {job}: "
            "add the job to its certificate"
        )


def may_probe(caller: Caller, job: str) -> None:
    """Raise NotYours unless the caller may measure links for the sake of this job."""
    if not caller.may_touch(job):
        raise NotYours(f"{caller} may probe for {', '.join(caller.jobs)} only, not for job {job!r:.80}")


@dataclass(frozen=True, slots=True)
class Rights:
    """What a node accepts. `jobs`: the jobs whose ranks and copies it takes; (): all."""

    jobs: tuple[str, ...] = ()

    def leave(self, caller: Caller, held: SnapshotInfo) -> None:
        """Raise NotYours unless the caller may leave this copy here."""
        may_read(caller, held.job, held.member)
        if self.jobs and held.job not in self.jobs:
            raise NotYours(f"this node takes copies of {', '.join(self.jobs)} only, not of job {held.job}")


def may_change(caller: Caller, member: str, owner: str) -> None:
    """Raise NotYours unless the caller left this copy, or its owner is unknown (`owner` "").

    A certificate for many nodes stands for each of them."""
    if caller.role is None or not owner:
        return
    if not (caller.may_be(owner) or replace(caller, name=owner).may_be(caller.name)):
        raise NotYours(f"the copy of {member} is node {owner}'s, not {caller.name}'s")


def owner_of(caller: Caller) -> str:
    """The name under which the caller's copies are kept; "" where callers are not authenticated."""
    return caller.name if caller.role is not None else ""
