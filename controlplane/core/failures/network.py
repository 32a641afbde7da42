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
from controlplane.core.records.words import some_of
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
    text: str


def lines(answers: Mapping[str, Mapping[str, PeerSight]], ring: Sequence[str]) -> list[NodeConnection]:
    """The connections that are not sound, from what each node found. A node that has not answered proves
    nothing."""
    found = []
    for one, other in _answered_pairs(answers, ring):
        there, back = answers.get(one, {}).get(other), answers.get(other, {}).get(one)
        kind = _kind(there, back)
        if kind:
            text = f"{_finding(one, other, there)}; {_finding(other, one, back)}"
            found.append(NodeConnection(one, other, kind, text))
    return found


def _answered_pairs(
    answers: Mapping[str, Mapping[str, PeerSight]], ring: Sequence[str]
) -> list[tuple[str, str]]:
    """The pairs of nodes of which at least one has reported, in ring order. Only these, not all pairs:
    there are few."""
    position = {node: index for index, node in enumerate(ring)}
    pairs = {
        (min(position[one], position[other]), max(position[one], position[other])): None
        for one, sights in answers.items()
        for other in sights
        if one != other and one in position and other in position
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


def _finding(who: str, whom: str, sight: PeerSight | None) -> str:
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
    position = {node: index for index, node in enumerate(ring)}
    gone: list[str] = []
    while left:
        count = Counter(node for pair in left for node in pair)
        worst = max(count, key=lambda node: (count[node], position[node]))
        gone.append(worst)
        left = [pair for pair in left if worst not in pair]
    return gone


# ------------------------------------------------------------------ with the cluster state


def look(state: ClusterState, job: Job) -> None:
    """A collective is broken and no rank is dead: have the nodes of the generation dial each other, once."""
    number = job.generation_number
    ring = [name for name in job.seat_nodes() if state.up(name) and state.nodes[name].peer]
    if len(ring) < 2 or (job.recovery.looks is not None and job.recovery.looks.generation == number):
        return
    state.rounds += 1
    job.recovery.looks = PeerDialRound(state.rounds, number, tuple(ring))
    for index, name in enumerate(ring):
        peers = tuple(PeerAddress(each, state.nodes[each].peer) for each in _dialled(ring, index))
        state.emit(fx.LookAtPeers(name, job.name, state.rounds, peers))


def _dialled(ring: Sequence[str], index: int) -> list[str]:
    """The peers that the node at `index` dials."""
    size = len(ring)
    if size <= ALL_UP_TO:
        return [name for name in ring if name != ring[index]]
    return [ring[(index + step) % size] for step in distances(size)]


def distances(size: int) -> list[int]:
    """The distances of a power of two along a ring, in both directions, each once: 1 to size - 1."""
    steps = [1 << power for power in range(size.bit_length()) if 1 << power < size]
    return list(dict.fromkeys(step % size for step in (*steps, *(-step for step in steps))))


def looked(state: ClusterState, event: ev.PeersLooked) -> None:
    """Take one node's findings: for the job that asked, or for a node that was cut and is asked again."""
    sights = {sight.node: sight for sight in event.found}
    node = state.nodes[event.node]
    for job in state.jobs.values():
        if (
            job.recovery.looks is not None
            and job.recovery.looks.round == event.round
            and event.node in job.recovery.looks.asked
        ):
            job.recovery.looks.answers[event.node] = sights
            state.touch(job)
            return
    if node.cut:
        _healed(state, node, sights)
        return
    state.drop(NoteKind.STALE_LOOK, event.node, f"round {event.round} is over")


def cut_off(state: ClusterState, job: Job) -> bool:
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
    bad = lines(job.recovery.looks.answers, ring)
    gone = untangle(ring, bad)
    for name in gone:
        _fence(state, job, state.nodes[name], [line for line in bad if name in (line.one, line.other)])
    if gone:
        job.recovery.looks = None
    return bool(gone)


def words(job: Job) -> str:
    """The connections that are not sound, as far as nodes have answered, as an addition to a verdict's
    evidence; "": none is known."""
    if job.recovery.looks is None:
        return ""
    bad = lines(job.recovery.looks.answers, job.recovery.looks.asked)
    return "".join(f"; {line.kind}: {line.text}" for line in bad)


def reach(job: Job, node: str) -> str:
    """Which of the peers that it has dialled a node reaches, in words; "": it has not answered."""
    sights = job.recovery.looks.answers.get(node, {}) if job.recovery.looks is not None else {}
    lost = [f"{name} ({sight.reason})" for name, sight in sights.items() if sight.failed == sight.tries > 0]
    if lost:
        return f"its node does not reach {some_of(lost)}"
    if len(sights) > 1:
        return f"its node reaches all {len(sights)} others"
    return "".join(f"its node reaches {name}" for name in sights)


def _fence(state: ClusterState, job: Job, node: Node, bad: list[NodeConnection]) -> None:
    """Mark a node as cut and all its ranks as dead: they must not continue beside their replacements."""
    evidence = " | ".join(f"{line.kind}: {line.text}" for line in bad)
    node.cut = f"it does not reach its peers: {evidence}"
    node.unreached = tuple(line.other if line.one == node.name else line.one for line in bad)
    state.note(NoteKind.NODE_CUT, node.name, evidence)
    state.deadlines.sooner(("cut", node.name), state.now + state.settings.look_again_s)
    quarantine.charge(state, node, Cause.CUT, "")
    state.ask_health()
    failure = Failure(Cause.CUT, evidence, age_s=state.now - (job.recovery.broken_since or state.now))
    for member in [job.members[seat.member] for seat in job.seating.on(node.name)]:
        if not member.dead:
            deaths.mark_dead(state, job, member, dataclasses.replace(failure, step=deaths.step_of(member)))


def look_again(state: ClusterState, name: str) -> None:
    """At the deadline of a node that was cut: have it dial its peers again."""
    node = state.nodes[name]
    if not node.cut:
        return
    peers = [each for each in node.unreached if state.up(each) and state.nodes[each].peer]
    if not peers:
        _reconnected(state, node, "the peers that it did not reach are gone")
        return
    state.deadlines.sooner(("cut", name), state.now + state.settings.look_again_s)
    if node.up:
        state.rounds += 1
        found = tuple(PeerAddress(each, state.nodes[each].peer) for each in peers)
        state.emit(fx.LookAtPeers(name, "", state.rounds, found))


def _healed(state: ClusterState, node: Node, sights: Mapping[str, PeerSight]) -> None:
    if sights and not any(sight.failed for sight in sights.values()):
        _reconnected(state, node, f"it reaches {some_of(sights)} again")


def _reconnected(state: ClusterState, node: Node, why: str) -> None:
    node.cut, node.unreached = "", ()
    state.note(NoteKind.NODE_HEALED, node.name, why)
    eligibility.returned(state, node)
    state.ask_health()
    state.touch_all()
