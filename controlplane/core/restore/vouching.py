"""Decide which copies of snapshots may be used, by the digest that the rank's own agent vouched for.

A replica holder could change a copy, or offer one of a step that was never reached. So a rank's agent reports
the digest of each snapshot before it gives a copy away: to the leader (`SnapshotVouched`), and with the copy
to its holder. The leader compares every offered copy with the digest from the rank's own agent. A leader that
was elected after that agent was gone never got it; then the digests that the holders report must all agree.
The copy that is chosen is verified against the digest (`Fetch.digest`) before a rank sees a byte of it.

A copy without any digest (an agent of an older version reports none) is the last resort: it is used only when
otherwise all progress of the job would be lost, and the restore point's reason names it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypedDict

from controlplane.core.records.notes import NoteKind
from controlplane.core.restore import keepers

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import PeerCopy
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

    What = tuple[str, int, int]
    Holders = dict[What, dict[str, str]]

DIGESTS_MAX = 6
"""Digests that a leader remembers per member: its arena holds two snapshots, each replica holder two more."""


class TrustFields(TypedDict):
    """The fields of `records.copies.Copy` that say how far a copy is trusted."""

    digest: str
    doubted: bool
    hearsay: bool


class Trust(Enum):
    """How far a copy is trusted."""

    VOUCHED = "vouched"  # the rank's own agent reported its digest to this leader
    KEPT = "kept"  # that agent never spoke to this leader; all holders report the same digest
    # The agent has spoken, but not of this snapshot; or it has not, and the holders disagree or report none.
    UNVOUCHED = "unvouched"
    REFUTED = "refuted"  # another digest than the rank's agent reported, or a step that no rank has reached


def vouched(state: ClusterState, event: ev.SnapshotVouched) -> None:
    """Record the digest of a snapshot as the agent of its rank reports it; from other nodes it is dropped."""
    job = state.jobs.get(event.job)
    member = job.members.get(event.member) if job else None
    if job is None or member is None or member.node != event.node:
        state.drop(NoteKind.STALE_VOUCH, event.member, f"node {event.node} has no such rank to vouch for")
        return
    digests = job.restore.vouches.setdefault(event.member, {})
    digests[event.generation, event.step] = event.digest
    while len(digests) > DIGESTS_MAX:
        del digests[min(digests)]


def agent_spoke(job: Job, member: str) -> None:
    """Note that this member's agent speaks to this leader: from now on its word alone counts, and the word of
    replica holders about this member does not."""
    job.restore.vouches.setdefault(member, {})


def digest_of(job: Job, member: str, generation: int, step: int) -> str:
    """Return the digest of a snapshot as the member's own agent reported it to this leader; "": none."""
    return job.restore.vouches.get(member, {}).get((generation, step), "")


def holders(state: ClusterState, job: Job) -> Holders:
    """Collect the digests that replica holders report: (member, generation, step) -> node -> digest."""
    found: Holders = {}
    for node in keepers.of(state, job.name):
        for copy in node.copies_of(job.name):
            if copy.digest:
                found.setdefault((copy.member, copy.generation, copy.step), {})[node.name] = copy.digest
    return found


def trust(job: Job, copy: PeerCopy, every: Holders) -> Trust:
    """Judge a copy by its rank's own agent or, where that has not spoken, by all holders (`every`)."""
    own = job.restore.vouches.get(copy.member)
    if own is None:
        held_digests = set(every.get((copy.member, copy.generation, copy.step), {}).values())
        return Trust.KEPT if held_digests == {copy.digest} else Trust.UNVOUCHED
    digest = own.get((copy.generation, copy.step), "")
    if digest:
        return Trust.VOUCHED if copy.digest in ("", digest) else Trust.REFUTED
    return Trust.REFUTED if copy.step > job.restore.known_step else Trust.UNVOUCHED


def rests(job: Job, copy: PeerCopy, every: Holders) -> TrustFields | None:
    """Return the trust fields of a copy that may be used; None when it is refuted."""
    found = trust(job, copy, every)
    if found is Trust.REFUTED:
        return None
    digest = digest_of(job, copy.member, copy.generation, copy.step) or copy.digest
    return {"digest": digest, "doubted": found is Trust.UNVOUCHED, "hearsay": found is Trust.KEPT}


def note_refuted(state: ClusterState, job: Job) -> None:
    """Note each refuted copy once in the journal, with its holder and the reason."""
    every = holders(state, job)
    for node in keepers.of(state, job.name):
        for copy in node.copies_of(job.name):
            key = (node.name, copy.member, copy.generation, copy.step)
            if key not in job.restore.refuted and trust(job, copy, every) is Trust.REFUTED:
                job.restore.refuted[key] = None
                state.note(NoteKind.COPY_REFUTED, job.name, _refutation(job, node, copy))


def _refutation(job: Job, node: Node, copy: PeerCopy) -> str:
    what = f"{node.name} offers a copy of {copy.member}'s snapshot of step {copy.step}"
    if digest_of(job, copy.member, copy.generation, copy.step):
        return f"{what} that is not what the agent of that rank vouches for: it is not gone on from"
    return f"{what}, and no rank has come further than step {job.restore.known_step}: it is not gone on from"


def tidy(state: ClusterState, job: Job) -> None:
    """Forget the digests of members that are gone and of which no node keeps a copy."""
    kept = {copy.member for node in keepers.of(state, job.name) for copy in node.copies_of(job.name)}
    for member in [name for name in job.restore.vouches if name not in job.members and name not in kept]:
        del job.restore.vouches[member]
    job.restore.refuted = {key: None for key in job.restore.refuted if key[1] in kept}
