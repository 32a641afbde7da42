"""A node that hears no coordinator for long stops its ranks: another node may have been given their seats.

A coordinator that is only down has given nothing away, and training goes on without it for ever: it counts as
absent when its host refuses the connection, or when it answers that it knows of no leader. What counts here
is one that cannot be told from a leader beyond a cut network: no answer at all."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

from agent.ranks import interrupt_message
from controlplane.core.model import MemberPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.members import Member
    from agent.node import Node

LOOK_S = 1.0
_IN_GROUP = (MemberPhase.FORMING, MemberPhase.RUNNING)
log = logging.getLogger("holdfast.agent")


class Fence:
    """When it is time. No clock: `now` in s is an argument. `after_s` 0: never."""

    def __init__(self, coordinators: Sequence[str], after_s: float, now: float) -> None:
        self._after_s = after_s
        self._sure_at = dict.fromkeys(coordinators, now)

    def heard(self, now: float) -> None:
        """The leader is heard: nothing is given away behind our back."""
        self._sure_at = dict.fromkeys(self._sure_at, now)

    def absent(self, coordinator: str, now: float) -> None:
        """This coordinator does not lead, by its own word or by its host's."""
        if coordinator in self._sure_at:
            self._sure_at[coordinator] = now

    def due(self, now: float) -> str:
        """The coordinator that may have given our seats away, unheard; "" while none may."""
        if not self._after_s:
            return ""
        late = [name for name, at in self._sure_at.items() if now - at > self._after_s]
        return late[0] if late else ""


async def watch(node: Node, fence: Fence) -> None:
    """Look at the fence for ever; stop the ranks once, each time that it is due."""
    loop, fenced = asyncio.get_running_loop(), False
    while True:
        if node.link.up:
            fence.heard(loop.time())
        late = fence.due(loop.time())
        if late and not fenced:
            silent_s = node.settings.fence_after_s
            stop_ranks(node, f"nothing heard of {late} for {silent_s:g} s: others may have this node's seats")
        fenced = bool(late)
        await asyncio.sleep(LOOK_S)


def stop_ranks(node: Node, reason: str) -> None:
    """Ranks that use the SDK leave their generation and wait with their state; others can only be ended."""
    for member in node.members:
        if not member.alive or member.complete is not None:
            continue
        if member.status.elastic:
            _interrupt(node, member, reason)
        elif member.status.phase is MemberPhase.STARTING:
            log.warning("%s is ended: %s", member.name, reason)
            member.kill_reason = reason
            node.launcher.say(op="signal", member=member.name, signal=int(signal.SIGKILL))
    node.count("fenced")


def _interrupt(node: Node, member: Member, reason: str) -> None:
    if member.status.phase in _IN_GROUP and member.interrupt < member.formed:
        log.warning("%s is parked: %s", member.name, reason)
        member.interrupt, member.interrupt_reason, member.incident = member.formed, reason, ""
        node.gate.push(member.name, interrupt_message(member))
