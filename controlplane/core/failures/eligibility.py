"""Say whether a node may take ranks: held down for flapping, cut from its peers, or quarantined.

Flapping nodes would cost a job one recovery per return. So the first few returns within a window are free,
and each further one holds the node down for twice as long, up to a limit. A quarantined node is the last
choice: it is used when no other node is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import quarantine
from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

HELD, CUT, LAST, OK = "held", "cut", "last choice", "ok"
"""Eligibility as people see it; `marks.word` has the words for marked nodes."""


def barred(m: ClusterState, node: Node) -> str:
    """Why a node may not take new ranks now; "": it may."""
    if node.cut:
        return node.cut
    if m.now < node.held_until:
        return f"held down for {node.held_until - m.now:.0f} s more: {node.held_why}"
    return ""


def last_choice(m: ClusterState, node: Node) -> bool:
    """Whether a node is used only when no other is left."""
    return quarantine.quarantined(node.lemon, m.wall)


def takes(m: ClusterState, job: Job, name: str) -> bool:
    """Whether new members of a job may be put on a node: it is up and not barred.

    A barred node is allowed while a living rank of the job runs there: the job depends on that node
    anyway."""
    node = m.nodes.get(name)
    if node is None or not node.up:
        return False
    if not barred(m, node):
        return True
    return any(not job.members[seat.member].dead for seat in job.seating.on(name))


def word(m: ClusterState, node: Node) -> tuple[str, str]:
    """Eligibility for people: one word, and why."""
    if node.cut:
        return CUT, node.cut
    if m.now < node.held_until:
        return HELD, barred(m, node)
    if last_choice(m, node) and node.lemon is not None:
        return LAST, node.lemon.reason
    return OK, ""


def returned(m: ClusterState, node: Node) -> None:
    """A node is back after a break: count it, and hold the node down when there were too many.

    The hold-down is `hold_s`, doubled with each return beyond `flaps_free` within the window, at most
    `hold_max_s`."""
    s = m.settings
    node.returns = [at for at in node.returns if at > m.now - s.flap_window_s] + [m.now]
    beyond = len(node.returns) - s.flaps_free
    if beyond > 0:
        hold_s = min(s.hold_max_s, s.hold_s * 2.0 ** (beyond - 1))
        hold(m, node, hold_s, f"it broke and came back {len(node.returns)} times in {s.flap_window_s:.0f} s")


def hold(m: ClusterState, node: Node, hold_s: float, why: str) -> None:
    """Place no new ranks on the node for `hold_s`; a longer hold-down that is under way stays."""
    if m.now + hold_s <= node.held_until:
        return
    node.held_until, node.held_why = m.now + hold_s, why
    m.deadlines.sooner(("hold", node.name), node.held_until)
    m.note(NoteKind.NODE_HELD, node.name, f"no new seats for {hold_s:.0f} s: {why}")
    m.ask_health()


def hold_over(m: ClusterState, name: str) -> None:
    """At the deadline of a hold-down: end it, and have all jobs look again at the nodes."""
    node = m.nodes[name]
    if m.now < node.held_until:
        m.deadlines.sooner(("hold", name), node.held_until)
        return
    m.note(NoteKind.NODE_RELEASED, name, "it may take seats again")
    m.ask_health()
    m.touch_all()
