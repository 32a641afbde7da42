"""A page that shows a job whose agents keep real logs, and answer for the stacks of their ranks."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from controlplane.access.authentication import Authenticator
from controlplane.access.tls import TlsFiles
from controlplane.core.records.effects import CollectStacks
from controlplane.core.records.events import StacksCollected
from controlplane.core.records.model import Standing
from controlplane.daemon.page.server import Page
from tests.cli.logs.stage import log_stage
from tests.page.visiting import Visitor
from tests.security.authority import CLUSTER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controlplane.access.tokens import Tokens
    from tests.cli.logs.stage import LoggingHand, LogStage

STACKS = "Thread 1 (main)\n  File train.py, line 7, in forward\x1b[2J"


@dataclasses.dataclass
class Reading:
    """The job `j` with a rank on each of two nodes, and a page that shows it."""

    stage: LogStage
    page: Page
    visitor: Visitor


@contextlib.asynccontextmanager
async def reading(tokens: Tokens | None = None, *, public: bool = False) -> AsyncIterator[Reading]:
    """Serve the page of a leader whose nodes keep real logs and answer for the stacks of their ranks."""
    async with log_stage() as stage:
        for hand in stage.hands:
            hand._obey[CollectStacks] = _answering(hand)
        asks = Authenticator(CLUSTER, False, tokens)
        page = Page(stage.served.front, ("127.0.0.1", 0), TlsFiles(), asks, public=public)
        page.start()
        try:
            yield Reading(stage, page, Visitor(page.port))
        finally:
            await page.close()


def _answering(hand: LoggingHand) -> Any:
    async def answer(order: CollectStacks) -> None:
        found = tuple(
            Standing(status.member, status.rank, 12, "all_reduce", 3.0, False, stacks=STACKS)
            for status in hand.members.values()
            if status.rank >= 0
        )
        await hand.tell(
            StacksCollected(hand.node, hand.incarnation, order.job, order.generation, order.round, found)
        )

    return answer
