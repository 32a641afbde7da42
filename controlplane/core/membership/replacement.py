"""Have unusable nodes replaced, where a platform can, and forget nodes that are gone for good.

Off unless `replace_nodes` or `forget_after_s` is set. A node is never replaced while a rank sits on it,
while it is marked by people (drain or cordon: they decide), or while the mass-failure guard is on. The
daemon carries a replacement out and reports the result; the fresh node has another name, or the same name
and another launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.elasticity import draining
from controlplane.core.failures import devices, eligibility
from controlplane.core.records import effects as fx
from controlplane.core.records.model import LemonRecord
from controlplane.core.records.notes import NoteKind
from controlplane.core.restore import keepers
from controlplane.core.state.cluster_state import LEFT, Drain, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records import events as ev
    from controlplane.core.records.model import NodePlace
    from controlplane.core.state.cluster_state import ClusterState

LOOK_S = 5.0
"""How often (s) all nodes are checked."""
HOUR_S = 3600.0


def begin(state: ClusterState) -> None:
    """Set the deadline of the next check, if the settings ask for any."""
    if state.settings.replace_nodes or state.settings.forget_after_s:
        state.deadlines.sooner(("replace", ""), state.now + LOOK_S)


def recall(state: ClusterState, places: Iterable[NodePlace]) -> None:
    """Take over what a former leader recorded: its lost nodes are replaced or forgotten by this one.

    Of nodes that are expected back, the address and failure domain are restored. A replacement that was
    asked for twice does no harm: the platform finds no such pod, or one at another address, and leaves it
    alone."""
    if not (state.settings.replace_nodes or state.settings.forget_after_s):
        return
    for place in places:
        node = state.nodes.get(place.node)
        if node is None and place.state in ("lost", LEFT):
            node = state.nodes[place.node] = Node(place.node, state="lost")
        if node is not None and node.drain is None and place.state == LEFT:
            node.drain = Drain(
                place.reason, state.now, own=True, asked_at=state.now, done=True, in_order=True
            )
        if node is not None and node.state == "lost":  # lost too long ago to be part of a mass failure
            node.reason, node.lost_at = place.reason, state.now - state.settings.node_timeout_s
        if node is not None and node.state in ("lost", "expected"):
            node.address, node.domain = place.address, place.domain


def due(state: ClusterState) -> None:
    """Check every node."""
    for node in list(state.nodes.values()):
        if _forgettable(state, node):
            _forget(state, node)
        elif state.settings.replace_nodes:
            _look(state, node)
    begin(state)


def _look(state: ClusterState, node: Node) -> None:
    """Ask for the replacement of a node that has been unusable for `replace_after_s`."""
    why = _why(state, node)
    if not why:
        node.unfit_since = -1.0
        return
    if node.unfit_since < 0:
        node.unfit_since = node.lost_at if node.state == "lost" and node.lost_at >= 0 else state.now
    if state.now < node.unfit_since + state.settings.replace_after_s or state.now < node.replace_again_at:
        return
    if _in_use(state, node) or not _may(state, node, why):
        return
    state.replaced.append(state.now)
    node.replace_again_at = state.now + state.settings.replace_retry_s
    state.note(NoteKind.NODE_REPLACING, node.name, why)
    gone = node.state == "lost"
    state.emit(fx.ReplaceNode(node.address, node.name, node.incarnation, node.domain, why, gone))


def _why(state: ClusterState, node: Node) -> str:
    """Why a node should be replaced; "": it need not be, people decide about it, or it is held or cut."""
    if node.cordoned or node.drain is not None or state.now < node.held_until or node.cut:
        return ""
    if node.state == "lost":
        return f"it is lost: {node.reason}" if node.address else ""
    if not node.up:
        return ""
    if node.excluded or any(devices.number(device) is not None for device in node.bad_devices):
        bad = [f"{device}: {why}" for device, why in (*node.excluded.items(), *node.bad_devices.items())]
        return f"its devices will not do: {'; '.join(bad)}"
    if devices.ailing(node):
        return devices.ailing(node)
    return (
        node.failure_history.reason
        if node.failure_history is not None and eligibility.last_choice(state, node)
        else ""
    )


def _in_use(state: ClusterState, node: Node) -> bool:
    """Whether a job has ranks there, or will after a planned change."""
    planned = [job.changes.resize for job in state.jobs.values() if job.changes.resize is not None]
    return bool(draining.jobs_on(state, node.name)) or any(
        spot.node == node.name for resize in planned for spot in resize.spots
    )


def _may(state: ClusterState, node: Node, why: str) -> bool:
    """Whether one more node may be replaced now. What forbids it is journaled once."""
    state.replaced = [at for at in state.replaced if at > state.now - HOUR_S]
    held = state.paused or (state.guard.reason if state.guard else "")
    if not held and len(state.replaced) >= state.settings.replace_per_hour:
        held = f"{len(state.replaced)} nodes were replaced within the last hour, which is the limit"
    if held and node.unreplaced != held:
        node.unreplaced = held
        state.note(NoteKind.NODE_REPLACE_HELD, node.name, f"{why}; {held}")
        state.ask_health()
    return not held


def replaced(state: ClusterState, event: ev.NodeReplaced) -> None:
    """Take the result of a replacement. A failed one is tried again after `replace_retry_s`; people see
    why meanwhile."""
    node = state.nodes.get(event.node)
    if node is None or node.incarnation != event.incarnation:
        state.drop(NoteKind.STALE_REPLACEMENT, event.node, "no replacement of this life of it was asked for")
        return
    node.unreplaced = "" if event.ok else event.reason
    state.note(NoteKind.NODE_REPLACED if event.ok else NoteKind.NODE_REPLACE_FAILED, node.name, event.reason)
    state.ask_health()
    if event.ok:
        node.replaced = True


def _forgettable(state: ClusterState, node: Node) -> bool:
    """Whether it is lost, no job needs it, and it is not expected back."""
    if node.state != "lost" or node.cordoned or state.members_of(node.name) or _in_use(state, node):
        return False
    if state.guard is not None or any(job.recovery.incident is not None for job in state.jobs.values()):
        return False
    if node.excluded and not node.replaced:
        return False
    left = node.drain is not None and node.drain.own and node.drain.done
    wait_s = state.settings.forget_after_s
    return node.replaced or (wait_s > 0 and (left or state.now >= node.lost_at + wait_s))


def _forget(state: ClusterState, node: Node) -> None:
    """Delete a node's record here and in etcd; its history of failures, too, if another machine has taken
    its place."""
    keepers.keep(state, node, ())
    del state.nodes[node.name]
    for kind in ("node", "drain", "hold", "quarantine", "cut"):
        state.deadlines.clear((kind, node.name))
    history = None
    if node.replaced and state.histories.pop(node.name, None) is not None:
        history = LemonRecord(node.name, 0.0, state.wall)
    state.note(NoteKind.NODE_FORGOTTEN, node.name, node.reason)
    state.ask_health()
    effect = fx.ForgetNode(node.name, history)
    state.store(f"node/{node.name}", effect, wanted=lambda: node.name not in state.nodes)


def new_life(state: ClusterState, node: Node) -> None:
    """A node of this name is back with another launcher. If it was replaced, it is another machine:
    nothing that was recorded against the former one applies to it."""
    if not node.replaced:
        return
    node.excluded, node.deaths, node.bad_devices, node.returns = {}, {}, {}, []
    node.replaced, node.unreplaced, node.unfit_since, node.replace_again_at = False, "", -1.0, 0.0
    if node.failure_history is not None:
        node.failure_history = None
        state.histories.pop(node.name, None)
        state.store(f"lemon/{node.name}", fx.StoreHistory(LemonRecord(node.name, 0.0, state.wall)))
