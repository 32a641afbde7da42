"""The page's answers: what anybody may have, what a login is needed for, and what no other site can do."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from typing import TYPE_CHECKING

import pytest

from controlplane.core.records.events import NodeJoined
from controlplane.daemon.page import admission, http, listener, live
from tests.page.visiting import Visitor, die, job, paged, parsed, until

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.access.tokens import Tokens
    from tests.security.authority import Authority

PRIVATE = (
    *("/api/state", "/api/live", "/api/nodes/n0", "/api/incidents/j/1"),
    *("/api/jobs/j", "/api/jobs/j/diagnosis"),
)


async def test_every_view_has_an_address_and_every_answer_its_headers() -> None:
    async with paged() as found:
        for path in (
            "/",
            "/jobs",
            "/jobs/j",
            "/jobs/j/diagnosis",
            "/nodes/n0",
            "/incidents/j/3",
            "/time",
            "/checkpoints",
            "/login",
        ):
            reply = await found.visitor.get(path)
            assert reply.status == 200 and b"<main" in reply.body, path
            policy = reply.headers["content-security-policy"]
            assert "script-src 'self'" in policy and "unsafe" not in policy and "default-src 'none'" in policy
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["x-frame-options"] == "DENY"
            assert "access-control-allow-origin" not in reply.headers
        assert (await found.visitor.get("/nowhere")).status == 404
        assert (await found.visitor.get("/static/../server.py")).status == 404
        assert (await found.visitor.get("/static/%2e%2e/server.py")).status == 404
        assert (await found.visitor.ask("DELETE", "/jobs", b"", {})).status == 405
        assert (await found.visitor.ask("GET", "/api/act/drain", b"", {})).status == 405


async def test_files_are_packed_and_asked_for_once() -> None:
    async with paged() as found:
        plain = await found.visitor.get("/static/app.js")
        packed = await found.visitor.get("/static/app.js", accept_encoding="gzip")
        assert gzip.decompress(packed.body) == plain.body
        again = await found.visitor.get("/static/app.js", if_none_match=plain.headers["etag"])
        assert again.status == 304 and not again.body
        head = await found.visitor.ask("HEAD", "/static/app.js", b"", {})
        assert head.status == 200 and not head.body


async def test_no_file_of_the_page_has_a_script_or_style_within() -> None:
    async with paged() as found:
        index = (await found.visitor.get("/")).body.decode()
        assert "style=" not in index and "onclick" not in index and "<style" not in index
        assert index.count("<script") == index.count('<script type="module" src=')


async def test_where_nobody_is_asked_everybody_may_look_and_nobody_act() -> None:
    async with paged() as found:
        await job(found.leader_term)
        state = (await found.visitor.get("/api/state")).json()
        assert set(state["tables"]["nodes"]) == {"n0", "n1"} and "j" in state["tables"]["jobs"]
        reply = await found.visitor.post("/api/act/drain", {"node": "n0"})
        assert reply.status == 401
        assert (await found.visitor.post("/api/login", {"token": "x" * 40})).status == 403


async def test_nothing_is_shown_before_a_login_where_callers_are_asked(
    tokens: Tokens, known: dict[str, str]
) -> None:
    async with paged(tokens) as found:
        await job(found.leader_term)
        for path in PRIVATE:
            reply = await found.visitor.get(path)
            assert reply.status == 401 and "log in" in reply.json()["error"], path
        for token in ("", "x" * 40, known["agent"]):
            reply = await found.visitor.post("/api/login", {"token": token})
            assert reply.status in (400, 401, 403) and "set-cookie" not in reply.headers
        assert found.served.dropped("unauthenticated") >= len(PRIVATE)
        assert (await found.visitor.log_in(known["viewer"])).status == 200
        assert (await found.visitor.get("/api/state")).status == 200


async def test_a_public_page_shows_and_does_nothing(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens, public=True) as found:
        await job(found.leader_term)
        assert (await found.visitor.get("/api/state")).status == 200
        assert (await found.visitor.post("/api/act/drain", {"node": "n0"})).status == 401


async def test_a_session_is_a_cookie_that_no_script_and_no_other_site_gets(
    tokens: Tokens, known: dict[str, str], authority: Authority
) -> None:
    async with paged(tokens) as found:
        reply = await found.visitor.log_in(known["operator"])
        words = reply.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(words)
        assert known["operator"] not in str(reply)
    files = authority.issue("page")
    context = ssl.create_default_context(cafile=str(authority.ca))
    async with paged(tokens, files.tls(), context=context) as found:
        reply = await found.visitor.log_in(known["operator"])
        assert reply.headers["set-cookie"].startswith("__Host-holdfast=")
        assert "Secure" in reply.headers["set-cookie"].split("; ")
        assert (await found.visitor.get("/api/session")).json()["role"] == "operator"


async def test_operators_act_and_viewers_do_not(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        await job(found.leader_term)
        body = {"node": "n1", "on": True, "reason": "for a test"}
        await found.visitor.log_in(known["viewer"])
        assert (await found.visitor.post("/api/act/cordon", body)).status == 403
        await found.visitor.log_in(known["restricted"])  # an operator of one job: nodes are everybody's
        assert (await found.visitor.post("/api/act/cordon", body)).status == 403
        other = await found.visitor.post("/api/act/pause", {"job": "other", "on": True})
        assert other.status == 403 and "for j only" in other.json()["error"]
        await found.visitor.log_in(known["operator"])
        reply = await found.visitor.post("/api/act/cordon", body)
        assert reply.status == 200 and reply.json()["outcome"] == "cordoned"
        assert found.leader_term.core.state.nodes["n1"].cordoned == "for a test"
        wrong = await found.visitor.post("/api/act/cordon", {"nodes": "n1"})
        assert wrong.status == 400 and "nodes" in wrong.json()["error"]
        unknown = await found.visitor.post("/api/act/cordon", {"node": "n9", "on": True})
        assert unknown.status == 409 and "n9" in unknown.json()["error"]
        assert (await found.visitor.post("/api/act/submit", {})).status == 404
        paused = await found.visitor.post("/api/act/pause", {"job": "j", "on": True, "reason": "for a test"})
        assert paused.status == 200 and found.leader_term.core.state.jobs["j"].changes.pause == "for a test"
        none = await found.visitor.post("/api/act/checkpoint", {"job": "j"})
        assert none.status == 409 and "storage" in none.json()["error"]


async def test_no_other_site_can_act_for_an_operator(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        await job(found.leader_term)
        visitor, body = found.visitor, {"node": "n1", "on": True}
        await visitor.log_in(known["operator"])
        evil = (
            {"x_holdfast_csrf": ""},
            {"x_holdfast_csrf": "guessed"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"content_type": "text/plain"},
            {"content_type": "application/x-www-form-urlencoded"},
        )
        for headers in evil:
            reply = await visitor.post("/api/act/cordon", body, **headers)
            assert reply.status in (403, 415), headers
        login = await visitor.post("/api/login", {"token": known["viewer"]}, origin="https://evil.example")
        assert login.status == 403
        own = {"origin": f"http://localhost:{visitor.port}", "sec_fetch_site": "same-origin"}
        assert (await visitor.post("/api/act/cordon", body, **own)).status == 200


async def test_a_page_on_loopback_answers_to_no_other_name() -> None:
    async with paged() as found:
        for host in ("evil.example", f"evil.example:{found.page.port}", "10.0.0.1", "localhost.evil.example"):
            assert (await found.visitor.get("/api/state", host=host)).status == 421, host
        for host in ("localhost", "127.0.0.1:80", "[::1]:80"):
            assert (await found.visitor.get("/api/state", host=host)).status == 200, host


async def test_a_session_ends_with_its_logout_and_with_its_token(
    tokens: Tokens, known: dict[str, str], folder: Path
) -> None:
    async with paged(tokens) as found:
        visitor = found.visitor
        await visitor.log_in(known["viewer"])
        old = visitor.cookie
        assert (await visitor.post("/api/logout", {})).status == 200
        visitor.cookie = old
        assert (await visitor.get("/api/state")).status == 401
        await visitor.log_in(known["viewer"])
        async with visitor.live() as stream:
            await stream.event()
            lines = (folder / "tokens").read_text().splitlines()
            (folder / "tokens").write_text("\n".join(line for line in lines if " viewer " not in line) + "\n")
            assert (await visitor.get("/api/state")).status == 401
            with pytest.raises(AssertionError, match="ended"):
                while True:
                    await stream.event()


async def test_whoever_may_see_one_job_sees_no_other(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        await job(found.leader_term)
        await found.visitor.log_in(known["other"])
        async with found.visitor.live() as stream:
            _, _, document = await stream.event()
            assert document["tables"]["jobs"] == {}
            assert document["tables"]["nodes"]["n0"]["ranks"] == {}
            await die(found.leader_term)
            await found.leader_term.loop.ask(NodeJoined("n7", 1, "l", "127.0.0.1", 1, 29500, ()))
            while True:
                _, _, document = await stream.event()
                assert '"j"' not in json.dumps(document) and "j/1" not in json.dumps(document)
                if "n7" in document.get("nodes", {}):
                    break
        for path in PRIVATE[2:]:
            reply = await found.visitor.get(path)
            assert reply.status == 404 or reply.json()["ranks"] == []


async def test_nothing_secret_is_on_the_page() -> None:
    async with paged() as found:
        await job(found.leader_term)
        await die(found.leader_term)
        await until(lambda: found.page._watch.stories or True)
        texts = [(await found.visitor.get(path)).body for path in ("/api/state", *PRIVATE[2:])]
        assert b'"j"' in texts[0]
        for text in texts:
            assert b"in-the-environment" not in text and b"in-the-arguments" not in text


async def test_a_standby_answers_and_says_who_leads() -> None:
    async with paged(leads=False) as found:
        found.served.front.leader, found.served.front.leader_page = "other:7070", "http://other:7072/"
        row = (await found.visitor.get("/api/state")).json()["tables"]["cluster"][""]
        assert row["role"] == "standby" and row["leader"] == "other:7070"
        assert row["leader_page"] == "http://other:7072/"
        reply = await found.visitor.get("/api/jobs/j")
        assert reply.status == 409 and "other:7070" in reply.json()["error"]


async def test_a_viewer_is_told_at_once_and_gets_what_it_missed() -> None:
    async with paged() as found:
        await job(found.leader_term)
        async with found.visitor.live() as stream:
            kind, _, document = await stream.event()
            assert kind == "state" and "j" in document["tables"]["jobs"]
            await die(found.leader_term)
            row = await stream.patch("incidents", "j/1")
            assert row["cause"] == "signaled" and row["happened"].startswith("rank 0 on n0 was killed")
            _, last, _ = await stream.event()
        await found.leader_term.loop.ask(NodeJoined("n7", 1, "l", "127.0.0.1", 1, 29500, ()))
        async with found.visitor.live(last) as stream:
            kind, _, document = await stream.event()
            assert kind == "patch"
            while "n7" not in document.get("nodes", {}):
                _, _, document = await stream.event()
        for word in ("0-0", f"{last.partition('-')[0]}-999999", "x" * 5000, "-", f"{last}-1", "٣-٣"):
            async with found.visitor.live(word.encode().decode("latin-1")) as stream:
                assert (await stream.event())[0] == "state", word
        story = (await found.visitor.get("/api/incidents/j/1")).json()
        assert story["evidence"] and story["done"] and story["happened"] == row["happened"]


async def test_another_leader_term_is_another_picture() -> None:
    async with paged() as found:
        await job(found.leader_term)
        front = found.served.front
        async with found.visitor.live() as stream:
            _, first, _ = await stream.event()
            leader_term, front.leader_term = front.leader_term, None
            kind, second, document = await stream.event()
            while kind != "state":
                kind, second, document = await stream.event()
            assert document["tables"]["cluster"][""]["role"] == "standby"
            assert first.partition("-")[0] != second.partition("-")[0]
            front.leader_term = leader_term


async def test_a_client_that_never_reads_holds_up_nobody_and_is_hung_up_on() -> None:
    waits = http.WRITE_TIMEOUT_S
    http.WRITE_TIMEOUT_S = 1.0
    try:
        async with paged() as found:
            await job(found.leader_term)
            deaf = [await found.visitor.dial() for _ in range(5)]
            for _, writer in deaf:
                writer.write(f"GET /api/live HTTP/1.1\r\nhost: localhost:{found.page.port}\r\n\r\n".encode())
            visits = found.page._listener.visits
            await until(lambda: len(visits) == 5)
            reason = "x" * 100_000
            async with found.visitor.live() as stream:
                await stream.event()
                for number in range(400):
                    if len(visits) == 1:
                        break
                    node = found.leader_term.core.state.nodes["n0"]
                    node.reason = f"{reason}{number}"
                    found.leader_term.changes.nodes["n0"] = None
                    found.leader_term.changes.news.set()
                    row = await stream.patch("nodes", "n0")
                    assert row["reason"] == node.reason
                assert len(visits) == 1
            for _, writer in deaf:
                writer.close()
    finally:
        http.WRITE_TIMEOUT_S = waits


async def test_strangers_are_few_and_those_who_are_known_stay(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        await found.visitor.log_in(known["viewer"])
        async with found.visitor.live() as stream:
            await stream.event()
            idle = [await found.visitor.dial() for _ in range(admission.STRANGERS_MAX + 20)]
            visits = found.page._listener.visits
            await until(lambda: len(visits) <= admission.STRANGERS_MAX + 1)
            assert (await found.visitor.get("/api/state")).status == 200  # there is room for who knows us
            await found.leader_term.loop.ask(NodeJoined("n7", 1, "l", "127.0.0.1", 1, 29500, ()))
            assert await stream.patch("nodes", "n7")
            for _, writer in idle:
                writer.close()


async def test_too_much_is_refused() -> None:
    async with paged() as found:
        big = await found.visitor.post("/api/login", {"token": "x" * (http.BODY_BYTES_MAX + 1)})
        assert big.status == 413
        head = f"GET / HTTP/1.1\r\nhost: localhost\r\nx: {'y' * (4 * http.HEAD_BYTES_MAX)}\r\n\r\n".encode()
        assert parsed(await found.visitor.raw(head)).status in (400, 431)
        chunked = b"POST /api/login HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        reply = await found.visitor.raw(
            chunked + b"4000\r\n" + b"x" * 0x4000 + b"\r\n4000\r\n" + b"x" * 0x4000
        )
        assert parsed(reply).status == 413
        assert (await found.visitor.post("/api/login", {"token": "x"})).status == 403  # it goes on


async def test_guesses_are_few(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        asked = [found.visitor.post("/api/login", {"token": f"{n:040}"}) for n in range(30)]
        statuses = [reply.status for reply in await asyncio.gather(*asked)]
        assert 429 in statuses and set(statuses) <= {401, 429}


async def test_several_requests_on_one_connection() -> None:
    async with paged() as found:
        one = f"GET /api/session HTTP/1.1\r\nhost: localhost:{found.page.port}\r\n\r\n".encode()
        data = await found.visitor.raw(one * 3 + one.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert data.count(b"HTTP/1.1 200") == 4
        head = b"POST /api/login HTTP/1.1\r\nhost: localhost\r\n"
        waiting = head + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n"
        reader, writer = await found.visitor.dial()
        writer.write(waiting)
        async with asyncio.timeout(20):
            assert b"100" in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"{bad}")
            assert b"415" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def test_a_page_over_tls_hangs_up_on_whoever_shakes_no_hands(
    tokens: Tokens, authority: Authority
) -> None:
    waits = listener.HANDSHAKE_TIMEOUT_S
    listener.HANDSHAKE_TIMEOUT_S = 0.5
    try:
        context = ssl.create_default_context(cafile=str(authority.ca))
        async with paged(tokens, authority.issue("page").tls(), context=context) as found:
            plain = Visitor(found.page.port)
            assert await plain.raw(b"") == b""
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await plain.raw(b"GET / HTTP/1.1\r\n\r\n")
            assert (await found.visitor.get("/")).status == 200
            authority.issue("page")  # a renewed certificate is taken without a restart
            assert (await found.visitor.get("/")).status == 200
    finally:
        listener.HANDSHAKE_TIMEOUT_S = waits


async def test_no_proxy_keeps_news_back() -> None:
    async with paged(leads=False) as found:
        head = await found.visitor.ask("HEAD", "/api/live", b"", {})
        assert head.headers["x-accel-buffering"] == "no" and head.headers["cache-control"] == "no-store"


async def test_a_viewer_hears_that_we_live() -> None:
    waits = live.BEAT_S
    live.BEAT_S = 0.1
    try:
        async with paged(leads=False) as found, found.visitor.live() as stream:
            kinds = [(await stream.event())[0] for _ in range(3)]
            assert kinds[0] == "state" and kinds[-1] == "beat"
    finally:
        live.BEAT_S = waits
