"""Whose word a copy of a snapshot rests on, and which copies may be gone on from.

Whoever keeps a copy could change it, and could offer one of a step that never was. So the agent of a rank
says what each of its snapshots hashes to before it gives it away: to the leader (`SnapshotVouched`), and
with the copy to whoever keeps it. The leader holds every copy against the rank's own agent; one that came
after that agent was gone has the word of those who keep copies, who must agree. What is chosen is held
against that digest, byte for byte, before a rank sees it (`Fetch.digest`).

A copy for which nobody vouches (an agent of an older version says nothing) is gone on from only when nothing
else is left of the job, and the reason says so."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypedDict

from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import PeerCopy
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

    What = tuple[str, int, int]
    Holders = dict[What, dict[str, str]]

SAID_MAX = 6
"""Snapshots of one member whose digests a leader remembers: a rank holds two, whoever keeps copies two."""


class Rests(TypedDict):
    """The fields of a copy (resume.Copy) that say what it rests on."""

    digest: str
    doubted: bool
    hearsay: bool


class Trust(Enum):
    """What a copy rests on."""

    VOUCHED = "vouched"  # the rank's own agent said so to this leader
    KEPT = "kept"  # that agent was gone before it could; all who keep the copy say the same
    UNVOUCHED = "unvouched"  # nobody says what it hashes to
    REFUTED = "refuted"  # it is not what the rank's agent said, or of a step that nobody has reached


def vouched(m: ClusterState, event: ev.SnapshotVouched) -> None:
    """A rank's agent says what a snapshot of its rank hashes to. Nobody else can."""
    job = m.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or member.node != event.node:
        m.drop(NoteKind.STALE_VOUCH, event.member, f"node {event.node} has no such rank to vouch for")
        return
    said = job.restore.vouches.setdefault(event.member, {})
    said[event.generation, event.step] = event.digest
    while len(said) > SAID_MAX:
        del said[min(said)]


def heard(job: Job, member: str) -> None:
    """This member's agent speaks to this leader: from now on it vouches for its snapshots itself."""
    job.restore.vouches.setdefault(member, {})


def said(job: Job, member: str, generation: int, step: int) -> str:
    """What the member's own agent has told this leader that a snapshot hashes to; "": nothing."""
    return job.restore.vouches.get(member, {}).get((generation, step), "")


def holders(m: ClusterState, job: Job) -> Holders:
    """Who says what of which snapshot: by (member, generation, step), the digest that each node tells."""
    found: Holders = {}
    for node in m.nodes.values():
        for copy in node.copies_of(job.name):
            if copy.digest:
                found.setdefault((copy.member, copy.generation, copy.step), {})[node.name] = copy.digest
    return found


def trust(job: Job, copy: PeerCopy, every: Holders) -> Trust:
    """What a copy rests on, by what its rank's agent said, or else by all who keep one (`every`)."""
    own = job.restore.vouches.get(copy.member)
    if own is None:
        told = set(every.get((copy.member, copy.generation, copy.step), {}).values())
        return Trust.KEPT if told == {copy.digest} else Trust.UNVOUCHED
    digest = own.get((copy.generation, copy.step), "")
    if digest:
        return Trust.VOUCHED if copy.digest in ("", digest) else Trust.REFUTED
    return Trust.REFUTED if copy.step > job.restore.known_step else Trust.UNVOUCHED


def rests(job: Job, copy: PeerCopy, every: Holders) -> Rests | None:
    """What is known of a copy that may be gone on from; None when it may not be."""
    found = trust(job, copy, every)
    if found is Trust.REFUTED:
        return None
    digest = said(job, copy.member, copy.generation, copy.step) or copy.digest
    return {"digest": digest, "doubted": found is Trust.UNVOUCHED, "hearsay": found is Trust.KEPT}


def tell_refuted(m: ClusterState, job: Job) -> None:
    """Say once of each copy that is not believed whose it is, and why."""
    every = holders(m, job)
    for node in m.nodes.values():
        for copy in node.copies_of(job.name):
            key = (node.name, copy.member, copy.generation, copy.step)
            if key not in job.restore.refuted and trust(job, copy, every) is Trust.REFUTED:
                job.restore.refuted[key] = None
                m.note(NoteKind.COPY_REFUTED, job.name, _refutation(job, node, copy))


def _refutation(job: Job, node: Node, copy: PeerCopy) -> str:
    what = f"{node.name} offers a copy of {copy.member}'s snapshot of step {copy.step}"
    if said(job, copy.member, copy.generation, copy.step):
        return f"{what} that is not what the agent of that rank vouches for: it is not gone on from"
    return f"{what}, and no rank has come further than step {job.restore.known_step}: it is not gone on from"


def tidy(m: ClusterState, job: Job) -> None:
    """Forget what was said of members that are gone, and of which nobody keeps a copy."""
    kept = {copy.member for node in m.nodes.values() for copy in node.copies_of(job.name)}
    for member in [name for name in job.restore.vouches if name not in job.members and name not in kept]:
        del job.restore.vouches[member]
    job.restore.refuted = {key: None for key in job.restore.refuted if key[1] in kept}
