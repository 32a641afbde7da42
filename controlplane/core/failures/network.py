"""Locate network failures: when a collective breaks and no rank is dead, the nodes dial each other.

One side's report proves little, so both sides of each connection are compared, by pure functions. Where
two nodes do not reach each other, one of them has to go: the larger side stays; of equals the one with
rank 0, where all ranks meet. The ranks of the other node count as dead and are killed, and it takes no new
ones. It is asked again and again whether it reaches its peers, and is eligible again when it does."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, eligibility, quarantine
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, Failure, PeerAddress
from controlplane.core.records.notes import NoteKind
from controlplane.core.state.inquiries import PeerDialRound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import PeerSight
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

ALL_UP_TO = 32
"""Up to so many nodes, each dials all others. In larger jobs it dials those at distances of a power of two
along the ring of nodes, in both directions."""


@dataclass(frozen=True, slots=True)
class NodeConnection:
    """The connection between two nodes, from both reports. `kind`: cut, one-way, lossy."""

    one: str
    other: str
    kind: str
    words: str


def lines(said: Mapping[str, Mapping[str, PeerSight]], ring: Sequence[str]) -> list[NodeConnection]:
    """The connections that are not sound, from what each node found. A node that has not answered proves
    nothing."""
    found = []
    for one, other in _told_of(said, ring):
        there, back = said.get(one, {}).get(other), said.get(other, {}).get(one)
        kind = _kind(there, back)
        if kind:
            words = f"{_word(one, other, there)}; {_word(other, one, back)}"
            found.append(NodeConnection(one, other, kind, words))
    return found


def _told_of(said: Mapping[str, Mapping[str, PeerSight]], ring: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of nodes of which at least one has reported, in ring order. Only these, not all pairs:
    there are few."""
    place = {node: index for index, node in enumerate(ring)}
    pairs = {
        (min(place[one], place[other]), max(place[one], place[other])): None
        for one, sights in said.items()
        for other in sights
        if one != other and one in place and other in place
    }
    return [(ring[first], ring[second]) for first, second in sorted(pairs)]


def _kind(there: PeerSight | None, back: PeerSight | None) -> str:
    """What is wrong with a connection: "" when no try failed, "lossy" when some tries of each side
    succeeded, "cut" when none of either side did, "one-way" when none of one side did."""
    sights = [each for each in (there, back) if each is not None and each.tries]
    dead = [each for each in sights if each.failed == each.tries]
    if not any(each.failed for each in sights):
        return ""
    if not dead:
        return "lossy"
    return "cut" if len(dead) == len(sights) else "one-way"


def _word(who: str, whom: str, sight: PeerSight | None) -> str:
    if sight is None:
        return f"{who} has said nothing of {whom}"
    if not sight.failed:
        return f"{who} reaches {whom}"
    return f"{who} does not reach {whom} ({sight.failed} of {sight.tries} tries failed: {sight.reason})"


def untangle(ring: Sequence[str], bad: Sequence[NodeConnection]) -> list[str]:
    """The nodes that must go so that all others reach each other. Lossy connections do not count.

    The node with the most dead connections goes first; of equals the last in the ring, so that the side of
    rank 0 stays."""
    left = [(line.one, line.other) for line in bad if line.kind != "lossy"]
    place = {node: index for index, node in enumerate(ring)}
    gone: list[str] = []
    while left:
        count = Counter(node for pair in left for node in pair)
        worst = max(count, key=lambda node: (count[node], place[node]))
        gone.append(worst)
        left = [pair for pair in left if worst not in pair]
    return gone


# ------------------------------------------------------------------ with the cluster state


def look(m: ClusterState, job: Job) -> None:
    """A collective is broken and no rank is dead: have the nodes of the generation dial each other, once."""
    number = job.generation.number if job.generation else 0
    ring = [name for name in job.seat_nodes() if m.up(name) and m.nodes[name].peer]
    if len(ring) < 2 or (job.recovery.looks is not None and job.recovery.looks.generation == number):
        return
    m.rounds += 1
    job.recovery.looks = PeerDialRound(m.rounds, number, tuple(ring))
    for index, name in enumerate(ring):
        peers = tuple(PeerAddress(each, m.nodes[each].peer) for each in _dialled(ring, index))
        m.emit(fx.LookAtPeers(name, job.name, m.rounds, peers))


def _dialled(ring: Sequence[str], index: int) -> list[str]:
    """The peers that the node at `index` dials."""
    size = len(ring)
    if size <= ALL_UP_TO:
        return [name for name in ring if name != ring[index]]
    steps = [1 << power for power in range(size.bit_length()) if 1 << power < size]
    near = {(index + step) % size: None for step in (*steps, *(-step for step in steps))}
    return [ring[at] for at in near if at != index]


def looked(m: ClusterState, event: ev.PeersLooked) -> None:
    """Take one node's findings: for the job that asked, or for a node that was cut and is asked again."""
    sights = {sight.node: sight for sight in event.found}
    node = m.nodes[event.node]
    for job in m.jobs.values():
        if (
            job.recovery.looks is not None
            and job.recovery.looks.round == event.round
            and event.node in job.recovery.looks.asked
        ):
            job.recovery.looks.said[event.node] = sights
            m.touch(job)
            return
    if node.cut:
        _healed(m, node, sights)
        return
    m.drop(NoteKind.STALE_LOOK, event.node, f"round {event.round} is over")


def cut_off(m: ClusterState, job: Job) -> bool:
    """Once all nodes have answered, fence those that must go. Returns whether any node was fenced."""
    if job.recovery.looks is None or not job.recovery.looks.complete:
        return False
    if (
        job.generation is None
        or job.recovery.looks.generation != job.generation.number
        or job.recovery.looks.judged
    ):
        return False
    job.recovery.looks.judged = True
    ring = [name for name in job.recovery.looks.asked if name in job.seat_nodes()]
    bad = lines(job.recovery.looks.said, ring)
    gone = untangle(ring, bad)
    for name in gone:
        _fence(m, job, m.nodes[name], [line for line in bad if name in (line.one, line.other)])
    if gone:
        job.recovery.looks = None
    return bool(gone)


def words(job: Job) -> str:
    """The connections that are not sound, as far as nodes have answered, as an addition to a verdict's
    evidence; "": none is known."""
    if job.recovery.looks is None:
        return ""
    bad = lines(job.recovery.looks.said, job.recovery.looks.asked)
    return "".join(f"; {line.kind}: {line.words}" for line in bad)


def _fence(m: ClusterState, job: Job, node: Node, bad: list[NodeConnection]) -> None:
    """Mark a node as cut and all its ranks as dead: they must not continue beside their replacements."""
    evidence = " | ".join(f"{line.kind}: {line.words}" for line in bad)
    node.cut = f"it does not reach its peers: {evidence}"
    node.cut_from = tuple(line.other if line.one == node.name else line.one for line in bad)
    m.note(NoteKind.NODE_CUT, node.name, evidence)
    m.deadlines.sooner(("cut", node.name), m.now + m.settings.look_again_s)
    quarantine.charge(m, node, Cause.CUT, "")
    m.ask_health()
    failure = Failure(Cause.CUT, evidence, age_s=m.now - (job.recovery.broken_since or m.now))
    for member in [job.members[seat.member] for seat in job.seating.on(node.name)]:
        if not member.dead:
            deaths.mark_dead(m, job, member, dataclasses.replace(failure, step=deaths.step_of(member)))


def look_again(m: ClusterState, name: str) -> None:
    """At the deadline of a node that was cut: have it dial its peers again."""
    node = m.nodes[name]
    if not node.cut:
        return
    peers = [each for each in node.cut_from if m.up(each) and m.nodes[each].peer]
    if not peers:
        _uncut(m, node, "the peers that it did not reach are gone")
        return
    m.deadlines.sooner(("cut", name), m.now + m.settings.look_again_s)
    if node.up:
        m.rounds += 1
        found = tuple(PeerAddress(each, m.nodes[each].peer) for each in peers)
        m.emit(fx.LookAtPeers(name, "", m.rounds, found))


def _healed(m: ClusterState, node: Node, sights: Mapping[str, PeerSight]) -> None:
    if sights and not any(sight.failed for sight in sights.values()):
        _uncut(m, node, f"it reaches {', '.join(sights)} again")


def _uncut(m: ClusterState, node: Node, why: str) -> None:
    node.cut, node.cut_from = "", ()
    m.note(NoteKind.NODE_HEALED, node.name, why)
    eligibility.returned(m, node)
    m.ask_health()
    m.touch_all()
