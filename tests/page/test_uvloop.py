"""The page as the coordinator serves it: over TLS, on the loop that it runs on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.page.visiting import Visitor, job, paged

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.access.tokens import Tokens
    from tests.security.authority import Authority


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_over_tls_an_answer_has_its_body(
    tokens: Tokens,
    known: dict[str, str],
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    run: Callable[..., None],
) -> None:
    async def visit() -> None:
        context = ssl.create_default_context(cafile=str(authority.ca))
        async with paged(tokens, authority.issue("page").tls(), context=context) as found:
            await job(found.leader_term)
            stranger = Visitor(found.page.port, context)
            assert b"<main" in (await stranger.get("/")).body
            assert (await stranger.get("/api/state")).status == 401
            assert (await found.visitor.log_in(known["viewer"])).status == 200
            assert "j" in str((await found.visitor.get("/api/state")).json())
            assert len((await found.visitor.get("/static/app.js")).body) > 1000
            async with found.visitor.live() as stream:
                assert (await stream.event())[0] == "state"

    with caplog.at_level(logging.WARNING):
        run(visit())
    assert not [record for record in caplog.records if record.exc_info], caplog.text
