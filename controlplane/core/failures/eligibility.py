"""Say whether a node may take ranks: held down for flapping, cut from its peers, or quarantined.

Flapping nodes would cost a job one recovery per return. So the first few returns within a window are free,
and each further one holds the node down for twice as long, up to a limit. A quarantined node is the last
choice: it is used when no other node is left. A node whose check is wanted or under way waits for it, and one
whose check found a bad part takes no ranks with `--check-nodes act`. A node whose processes nobody here has
started has no room for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import node_checks, quarantine
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import GONE

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

HELD, CUT, LAST, OK = "held", "cut", "last choice", "ok"
UNCHECKED, UNFIT = "unchecked", "unfit"
"""Eligibility as people see it; `marks.word` has the words for marked nodes."""


def barred(state: ClusterState, node: Node) -> str:
    """Why a node may not take new ranks now; "": it may."""
    if node.cut:
        return node.cut
    if state.now < node.held_until:
        return f"held down for {node.held_until - state.now:.0f} s more: {node.held_why}"
    return strays(state, node) or node_checks.keeps_out(state, node)


def strays(state: ClusterState, node: Node) -> str:
    """Which living processes of this node nobody here has started, as after the loss of etcd; "": none.

    They have the node's devices, and names that may be given out again. Those of a known job are killed as
    soon as they are reported, so that their node is free a moment later."""
    unknown, former = dict[str, None](), dict[str, None]()
    for status in node.whole.members if node.up and node.whole is not None else ():
        job = state.jobs.get(status.job)
        if (job is None or status.member not in job.members) and status.phase not in GONE:
            (unknown if job is None else former)[status.job] = None
    if unknown:
        return f"it runs ranks of jobs that are not known here: {', '.join(unknown)}"
    return f"it runs processes of a former life of {', '.join(former)}, which are killed" if former else ""


def last_choice(state: ClusterState, node: Node) -> bool:
    """Whether a node is used only when no other is left."""
    return quarantine.quarantined(node.failure_history, state.wall)


def takes(state: ClusterState, job: Job, name: str) -> bool:
    """Whether new members of a job may be put on a node: it is up and not barred.

    A barred node is allowed while a living rank of the job runs there: the job depends on that node
    anyway."""
    node = state.nodes.get(name)
    if node is None or not node.up:
        return False
    if not barred(state, node):
        return True
    return any(not job.members[seat.member].dead for seat in job.seating.on(name))


def word(state: ClusterState, node: Node) -> tuple[str, str]:
    """Eligibility for people: one word, and why."""
    if node.cut:
        return CUT, node.cut
    if state.now < node.held_until or strays(state, node):
        return HELD, barred(state, node)
    if reason := node_checks.unfit(state, node):
        return UNFIT, reason
    if reason := node_checks.awaits_check(node):
        return UNCHECKED, reason
    if last_choice(state, node) and node.failure_history is not None:
        return LAST, node.failure_history.reason
    return OK, ""


def returned(state: ClusterState, node: Node) -> None:
    """A node is back after a break: count it, and hold the node down when there were too many.

    The hold-down is `hold_s`, doubled with each return beyond `flaps_free` within the window, at most
    `hold_max_s`."""
    s = state.settings
    node.returns = [at for at in node.returns if at > state.now - s.flap_window_s] + [state.now]
    beyond = len(node.returns) - s.flaps_free
    if beyond > 0:
        hold_s = min(s.hold_max_s, s.hold_s * 2.0 ** (beyond - 1))
        hold(
            state,
            node,
            hold_s,
            f"it broke and came back {len(node.returns)} times in {s.flap_window_s:.0f} s",
        )


def hold(state: ClusterState, node: Node, hold_s: float, why: str) -> None:
    """Place no new ranks on the node for `hold_s`; a longer hold-down that is under way stays."""
    if state.now + hold_s <= node.held_until:
        return
    node.held_until, node.held_why = state.now + hold_s, why
    state.deadlines.sooner(("hold", node.name), node.held_until)
    state.note(NoteKind.NODE_HELD, node.name, f"no new seats for {hold_s:.0f} s: {why}")
    state.ask_health()


def hold_over(state: ClusterState, name: str) -> None:
    """At the deadline of a hold-down: end it, and have all jobs look again at the nodes."""
    node = state.nodes[name]
    if state.now < node.held_until:
        state.deadlines.sooner(("hold", name), node.held_until)
        return
    state.note(NoteKind.NODE_RELEASED, name, "it may take seats again")
    state.ask_health()
    state.touch_all()
