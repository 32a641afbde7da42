"""Carry out the core's effects about checks of nodes: order them, and have their readings judged.

An agent of an earlier version does not know the order; the core is told so at once, instead of waiting for
nothing. Readings are judged in a thread, as the loop of the leader must go on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from controlplane.background_tasks import BackgroundTasks
from controlplane.core.records.node_checks import NodeChecked

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.cluster import Cluster
    from controlplane.core.records.effects import CheckNode
    from controlplane.core.records.events import Event
    from controlplane.core.records.node_checks import JudgeNode
    from controlplane.daemon.server.links import Links

log = logging.getLogger(__name__)
OLDER = "its agent is of an earlier version, which cannot check a node: upgrade it"


class NodeChecking:
    """The checks of one leader term. `post` gives the core an event."""

    def __init__(self, core: Cluster, links: Links, term: int, post: Callable[[Event], None]) -> None:
        self._core, self._links, self._term, self._post = core, links, term, post
        self._tasks = BackgroundTasks()

    def order(self, effect: CheckNode) -> None:
        """Order a check; answered by NodeChecked."""
        if self._links.understands(effect.node, effect):
            self._links.send(effect.node, effect, self._term)
            return
        incarnation = self._core.state.nodes[effect.node].incarnation
        self._post(NodeChecked(effect.node, incarnation, effect.round, reason=OLDER))

    def judge(self, effect: JudgeNode) -> None:
        """Judge soon; answered by NodeJudged. What cannot be judged is logged, and the core gives it up."""
        self._tasks.begin(self._judge(effect))

    async def close(self) -> None:
        """Cancel every judgement."""
        await self._tasks.close()

    async def _judge(self, effect: JudgeNode) -> None:
        from controlplane.analysis import node_checks  # a standby that takes over need not wait for it

        try:
            self._post(await asyncio.to_thread(node_checks.answer, effect))
        except Exception:
            log.exception("the readings of node %s could not be judged", effect.node)
