"""Have nodes checked before they take ranks: new ones, and those on which a failure began (`--check-nodes`).

A check is wanted, asked for, answered and judged. Meanwhile the node takes no new ranks, since nothing is
measured beside a training rank. Readings that come in together are judged together, when no check is out any
more: else the first nodes of a cluster would have no peers. What is found stays in etcd until a later check
disproves it or a person releases the node. With the policy `act` it also keeps ranks away, and the node is
checked again from time to time. A check that brings nothing in time keeps nobody waiting: the node is used,
and the journal and health say so."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from controlplane.core.failures import marks
from controlplane.core.records import effects as fx
from controlplane.core.records.model import PeerAddress, Role
from controlplane.core.records.node_checks import SLOW, PeerReadings
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import ACT, OFF

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.node_checks import BadPart
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.member import Member

SECONDS = 0.25
"""How long each number is measured: a check of a node with 8 devices takes about 20 s."""
AGENT_SHARE = 0.75
"""The share of the timeout after which an agent answers with what it has: the rest is for the way."""
FRESH_S = 86_400.0
"""A new leader may be answered with what was measured so long ago, if nothing has happened since."""
LINK_PEERS, LOOKED_AT = 3, 32
"""To so many idle nodes a node measures its links, and so many are looked at to find them: no search grows
with the cluster."""
PEERS_MAX = 64
"""With more peers a mean and a deviation become no better."""
READINGS_MAX = 1000
"""Of one node; 16 devices have about 400, most of them copies from one to another."""
ROUNDS_PER_TERM = 1 << 32
CONFIDENCE_MIN = 0.9
"""A bad part keeps ranks away from this confidence on: what other processes on the node, or the other end of
a connection, may have caused does not."""


def awaits_check(node: Node) -> str:
    """Why the node takes no ranks before its check is over; "": no check is wanted."""
    if not node.check.wanted:
        return ""
    doing = "is being checked" if node.check.asked or node.check.judging else "is to be checked first"
    return f"it {doing}: {node.check.wanted}"


def unfit(state: ClusterState, node: Node) -> str:
    """What its check found, where that keeps ranks away; "": nothing does."""
    if state.settings.check_nodes != ACT:
        return ""
    sure = [each.reason for each in node.check.bad if each.confidence >= CONFIDENCE_MIN]
    return f"its check found: {'; '.join(sure)}" if sure else ""


def keeps_out(state: ClusterState, node: Node) -> str:
    """Why the node takes no ranks because of its check; "": it may."""
    return unfit(state, node) or awaits_check(node)


def joined(state: ClusterState, node: Node, *, new_life: bool) -> None:
    """An agent has opened a stream: have its node checked if it is new here. `new_life`: its launcher is."""
    if state.settings.check_nodes == OFF:
        return
    check = node.check
    if new_life or not (check.round or check.wanted or _ranks(state, node)):
        want(state, node, "it is new here", anew=new_life or bool(check.bad))
    look(state, node)
    if check.asked:
        check.again_at = state.now  # the order may have been lost with the stream before
        state.deadlines.sooner(("check", node.name), state.now)


def want(state: ClusterState, node: Node, why: str, *, anew: bool = True) -> None:
    """Have a node checked before it takes ranks. `anew`: an answer from before does not do."""
    if state.settings.check_nodes == OFF:
        return
    node.check.wanted, node.check.anew = why, node.check.anew or anew
    look(state, node)


def look(state: ClusterState, node: Node) -> None:
    """Look again at a node whose check is wanted: it may be possible now."""
    if node.check.wanted and not (node.check.asked or node.check.judging):
        node.check.give_up_at = state.now + state.settings.check_timeout_s
        state.deadlines.sooner(("check", node.name), state.now)


def due(state: ClusterState, name: str) -> None:
    """At the deadline of a node's check: ask for it, repeat the order, give up, or check once more."""
    node = state.nodes.get(name)
    if node is None:
        return
    check = node.check
    if check.asked or check.judging:
        _wait(state, node)
    elif check.wanted:
        _begin(state, node)
    elif unfit(state, node):
        if state.now >= check.recheck_at:
            want(state, node, f"again after {state.settings.check_again_s:.0f} s")
        else:
            state.deadlines.sooner(("check", name), check.recheck_at)


def _begin(state: ClusterState, node: Node) -> None:
    """Ask for the check, unless ranks live on the node. One that people have marked is left alone."""
    check = node.check
    if not node.up or node.cordoned or node.drain is not None:
        return  # `look` is called when that is over
    living = _ranks(state, node)
    if any(not member.dead for member in living):
        check.give_up_at = state.now + state.settings.check_timeout_s  # its job needs no other node
    if not living:
        _ask(state, node)
    elif state.now >= check.give_up_at:
        _unchecked(state, node, f"{living[0].name} was killed, and still lives there")
    else:
        state.deadlines.sooner(("check", node.name), state.now + state.settings.retry_s)


def _ranks(state: ClusterState, node: Node) -> list[Member]:
    """The processes on a node beside which nothing may be measured: ranks, and those about to become one."""
    found = []
    for job, member in state.members_of(node.name):
        resize = job.changes.resize
        coming = resize is not None and member.name in resize.fresh.values()
        there = member.alive or (member.status is None and not member.dead)
        if there and (coming or member.role is Role.RANK):
            found.append(member)
    return found


def _ask(state: ClusterState, node: Node) -> None:
    check = node.check
    state.checks.rounds += 1
    check.round = state.term * ROUNDS_PER_TERM + state.checks.rounds
    check.asked, check.give_up_at = True, state.now + state.settings.check_timeout_s
    state.checks.out[node.name] = None
    state.note(NoteKind.NODE_CHECKING, node.name, check.wanted)
    _order(state, node)


def _order(state: ClusterState, node: Node) -> None:
    check = node.check
    check.again_at = state.now + state.settings.long_retry_s
    timeout_s = AGENT_SHARE * state.settings.check_timeout_s
    if node.up:
        fresh_s = 0.0 if check.anew else FRESH_S
        order = fx.CheckNode(node.name, check.round, SECONDS, timeout_s, fresh_s, _idle(state, node))
        state.emit(order)
    state.deadlines.sooner(("check", node.name), min(check.again_at, check.give_up_at))


def _idle(state: ClusterState, node: Node) -> tuple[PeerAddress, ...]:
    """Some nodes without ranks, to which this one may measure its links. Those that are being checked come
    first: nothing is put on them yet."""
    checked = islice(reversed(state.checks.out), LOOKED_AT)
    found = list[PeerAddress]()
    for name in dict.fromkeys((*checked, *islice(state.nodes, LOOKED_AT))):
        other = state.nodes.get(name)
        if other is None or other is node or not (other.up and other.peer) or other.cordoned or other.drain:
            continue
        if not _ranks(state, other):
            found.append(PeerAddress(name, other.peer))
        if len(found) == LINK_PEERS:
            break
    return tuple(found)


def _wait(state: ClusterState, node: Node) -> None:
    check, late = node.check, state.now >= node.check.give_up_at
    if late and check.asked:
        _unchecked(state, node, f"no answer within {state.settings.check_timeout_s:.0f} s")
    elif late and node.name in state.checks.unjudged:
        _give(state, node)
    elif late:
        _unchecked(state, node, "its readings were not judged in time")
    elif check.asked and state.now >= check.again_at:
        _order(state, node)
    else:
        at = min(check.again_at, check.give_up_at) if check.asked else check.give_up_at
        state.deadlines.sooner(("check", node.name), at)


def answered(state: ClusterState, event: ev.NodeChecked) -> None:
    """Take a node's readings."""
    node, check = state.nodes[event.node], state.nodes[event.node].check
    if not check.asked or event.round != check.round:
        state.drop(NoteKind.STALE_CHECK, node.name, f"round {event.round} is not waited for")
        return
    if event.reason or not event.readings:
        _unchecked(state, node, event.reason or "its agent has measured nothing")
        return
    check.asked, check.judging = False, True
    check.readings, check.load = event.readings[:READINGS_MAX], event.load
    state.checks.out.pop(node.name, None)
    state.checks.unjudged[node.name] = None
    state.deadlines.sooner(("check", node.name), check.give_up_at)
    _settle(state)


def _settle(state: ClusterState) -> None:
    """Give all readings away to be judged, once no check is out that could bring more peers."""
    if not state.checks.out:
        for name in list(state.checks.unjudged):
            _give(state, state.nodes[name])


def _give(state: ClusterState, node: Node) -> None:
    """Give the readings of one node away to be judged, with those of others."""
    state.checks.unjudged.pop(node.name, None)
    check = node.check
    check.give_up_at = state.now + state.settings.long_retry_s
    state.deadlines.sooner(("check", node.name), check.give_up_at)
    others = (each for each in state.nodes.values() if each is not node and each.check.readings)
    peers = tuple(PeerReadings(each.name, each.check.readings) for each in islice(others, PEERS_MAX))
    state.emit(fx.JudgeNode(node.name, check.round, check.readings, check.load, peers))


def judged(state: ClusterState, event: ev.NodeJudged) -> None:
    """Take what the readings of a node mean."""
    node = state.nodes.get(event.node)
    if node is None or not node.check.judging or event.round != node.check.round:
        state.drop(NoteKind.STALE_CHECK, event.node, f"round {event.round} is not judged")
        return
    check, before = node.check, node.check.bad
    named = {each.part for each in event.bad}
    left = (each for each in before if each.part not in named and not _disproved(each, event))
    check.bad, check.unchecked = (*event.bad, *left), ""
    words = "; ".join(each.reason for each in check.bad) or "nothing was found"
    state.note(NoteKind.NODE_CHECKED, node.name, f"{check.wanted}: {words}")
    if check.bad != before:
        marks.record(state, node)
    _over(state, node)


def _disproved(bad: BadPart, event: ev.NodeJudged) -> bool:
    """Whether a part that was found bad is in order now. Only peers can say so of a slow one."""
    return bad.part in (event.fine if bad.kind == SLOW else event.sound)


def _unchecked(state: ClusterState, node: Node, why: str) -> None:
    """Give up a check: the node is as eligible as it was before."""
    node.check.unchecked = f"its check brought nothing: {why}"
    then = "it takes no ranks, as before" if unfit(state, node) else "it is used all the same"
    state.note(NoteKind.NODE_UNCHECKED, node.name, f"{why}; {then}")
    _over(state, node)


def _over(state: ClusterState, node: Node) -> None:
    """End a check in any way, and have jobs look at the node again."""
    check = node.check
    check.wanted, check.anew, check.asked, check.judging = "", False, False, False
    check.recheck_at = state.now + state.settings.check_again_s
    if check.bad:
        state.deadlines.sooner(("check", node.name), check.recheck_at)
    state.checks.out.pop(node.name, None)
    state.checks.unjudged.pop(node.name, None)
    state.ask_health()
    state.nodes_changed()
    _settle(state)


def release(state: ClusterState, node: Node) -> bool:
    """A person declares the node sound. Return whether a check had anything against it."""
    check = node.check
    if not (check.bad or check.wanted or check.unchecked):
        return False
    recorded, check.bad, check.unchecked = bool(check.bad), (), ""
    if recorded:
        marks.record(state, node)
    _over(state, node)
    return True
