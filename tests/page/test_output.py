"""A rank's log and stacks for the page: to whom the commands are allowed, bounded, and neutral."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.records.events import NodeBroken
from controlplane.daemon.page.output import LOG_KIB, LOG_KIB_MAX
from tests.page.reading import STACKS, reading
from tests.page.visiting import until

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens

LOG, ABOUT_0 = "/api/read/log", {"job": "j", "rank": 0}


async def test_the_end_of_a_log_is_read_neutral_and_bounded() -> None:
    async with reading() as found:
        found.stage.log(0, b"one\ntwo \x1b]0;owned\x07\r\n\xff three\n")
        reply = await found.visitor.post(LOG, ABOUT_0)
        told = reply.json()
        assert reply.status == 200
        assert told["text"] == "one\ntwo \\u001b]0;owned\\u0007\n\\xff three"
        assert (told["node"], told["before_bytes"], told["gone_bytes"], told["alive"]) == ("n0", 0, 0, True)
        found.stage.log(0, b"".join(b"line %06d\n" % number for number in range(20_000)))
        told = (await found.visitor.post(LOG, ABOUT_0)).json()
        lines = told["text"].splitlines()
        assert lines[-1] == "line 019999" and LOG_KIB * 1024 - 12 <= len(told["text"]) + 1 <= LOG_KIB * 1024
        assert all(len(line) == 11 for line in lines) and told["before_bytes"] > 0
        more = (await found.visitor.post(LOG, ABOUT_0 | {"kib": LOG_KIB_MAX})).json()
        assert more["text"].startswith("one\n") and more["before_bytes"] == 0
        await until(lambda: not found.stage.relays())


async def test_a_log_without_line_ends_is_shown_and_what_is_gone_is_said() -> None:
    async with reading() as found:
        found.stage.log(0, b"x" * (3 << 20))
        for hand in found.stage.hands:
            hand.logs.limit()
        told = (await found.visitor.post(LOG, ABOUT_0)).json()
        assert set(told["text"]) == {"x", "\n"} and len(told["text"].replace("\n", "")) > LOG_KIB * 512
        assert told["gone_bytes"] > 0


@pytest.mark.parametrize(
    ("document", "status", "why"),
    [
        ({"job": "j", "rank": 7}, 409, "there is no rank 7"),
        ({"job": "none", "rank": 0}, 404, "there is no job"),
        ({"job": "j", "rank": -1}, 400, "rank must be a whole number from 0"),
        ({"job": "j", "rank": True}, 400, "rank must be"),
        ({"job": "j"}, 400, "rank must be"),
        ({"job": 7, "rank": 0}, 400, "not a request to ListLogs"),
        (ABOUT_0 | {"kib": LOG_KIB_MAX + 1}, 400, "kib must be a whole number from 1"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(
    document: dict[str, Any], status: int, why: str
) -> None:
    async with reading() as found:
        reply = await found.visitor.post(LOG, document)
        assert reply.status == status and why in reply.json()["error"]


async def test_who_may_not_give_the_command_may_not_read_on_the_page(
    tokens: Tokens, known: dict[str, str]
) -> None:
    async with reading(tokens, public=True) as found:
        found.stage.log(0, b"a secret\n")
        visitor, stacks = found.visitor, {"job": "j", "ranks": [0]}
        stranger = await visitor.post(LOG, ABOUT_0)  # the page is public, what ranks write is not
        assert stranger.status == 401 and b"a secret" not in stranger.body
        assert (await visitor.get("/api/session")).json()["reads"] == []
        await visitor.log_in(known["viewer"])
        refused = await visitor.post(LOG, ABOUT_0)
        assert refused.status == 403 and "operator or reader" in refused.json()["error"]
        assert (await visitor.post("/api/read/stacks", stacks)).status == 403
        await visitor.log_in(known["other"])
        assert (await visitor.post(LOG, ABOUT_0)).status == 403
        await visitor.log_in(known["restricted"])  # an operator of j
        assert (await visitor.post(LOG, ABOUT_0)).json()["text"] == "a secret"
        assert (await visitor.post(LOG, {"job": "other", "rank": 0})).status == 403
        assert (await visitor.get("/api/session")).json()["reads"] == ["log", "stacks"]
        visitor.csrf = ""
        assert (await visitor.post(LOG, ABOUT_0)).status == 403
        away = await visitor.post(LOG, ABOUT_0, origin="https://elsewhere.example")
        assert away.status == 403 and (await visitor.get(LOG)).status == 405


async def test_stacks_are_collected_when_asked(tokens: Tokens, known: dict[str, str]) -> None:
    async with reading(tokens) as found:
        await found.visitor.log_in(known["operator"])
        reply = await found.visitor.post("/api/read/stacks", {"job": "j", "ranks": [1]})
        assert reply.status == 200
        (told,) = reply.json()["ranks"]
        assert told["stacks"] == STACKS.replace("\x1b", "\\u001b") and told["rank"] == 1
        assert (told["step"], told["activity"], told["reason"]) == (12, "all_reduce", "")
        none = await found.visitor.post("/api/read/stacks", {"job": "j", "ranks": []})
        assert none.status == 400 and "1 to 16" in none.json()["error"]
        unknown = await found.visitor.post("/api/read/memory", {"job": "j"})
        assert unknown.status == 404 and "log, stacks" in unknown.json()["error"]


async def test_of_a_lost_node_it_is_said_what_is_gone() -> None:
    async with reading() as found:
        found.stage.log(1, b"last words\n")
        node = found.stage.holder(1).node
        term = found.stage.served.front.leader_term
        assert term is not None
        await found.stage.holder(1).close()
        await term.loop.ask(NodeBroken(node, 1, "the stream ended"))
        told = (await found.visitor.post(LOG, {"job": "j", "rank": 1, "previous": True})).json()
        assert told["text"] is None and f"node {node}" in told["reason"]
