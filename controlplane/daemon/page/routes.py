"""Route the page's requests, and decide who may ask for what.

Files and views hold nothing of the cluster and are open to everybody. What is in the cluster is for callers
who have logged in, or for everybody where the coordinator authenticates nobody (`open`). Acts are for
operators who have logged in."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from controlplane.access.callers import ANYONE, Caller
from controlplane.analysis.live.slow_steps import STEPS_MAX
from controlplane.daemon.page import rows
from controlplane.daemon.page.actions import ACTS, act
from controlplane.daemon.page.admission import PageStreams
from controlplane.daemon.page.files import file
from controlplane.daemon.page.health import ROWS_MOST, HealthAnswers
from controlplane.daemon.page.http import HttpAnswer, HttpRefused
from controlplane.daemon.page.live import Live
from controlplane.daemon.page.output import read, readable
from controlplane.daemon.page.picture import encoded
from controlplane.daemon.page.sessions import CSRF_HEADER, Sessions, check_csrf, check_own
from controlplane.reporting.story import as_json
from controlplane.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controlplane.access.authentication import Authenticator
    from controlplane.analysis.live.slow_steps import SlowStepMemory
    from controlplane.daemon.leadership.leader_term import LeaderTerm
    from controlplane.daemon.page.admission import Visit
    from controlplane.daemon.page.http import HttpRequest
    from controlplane.daemon.page.sessions import PageSession
    from controlplane.daemon.page.watch import PageWatch
    from controlplane.daemon.server.context import ServerContext

log = logging.getLogger(__name__)

VIEWS = ("", "jobs", "nodes", "incidents", "time", "checkpoints", "login")
"""First words of the addresses that show the page itself."""
RANKS_SHOWN = 2000
SESSION_OVER = "your session has ended, or its token has changed: log in again"
WRONG_PAUSE_S = 1.0
"""Seconds before somebody who tries to log in too often gets the refusal."""
PACK_BYTES_MIN = 4096
HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)
"""Headers of every answer. No answer allows another site anything."""
_OF_JOB = ("", "diagnosis", "curves", "slow")
_NUMBER = re.compile(r"[0-9]{1,18}")
_COUNTED: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "denied",
    HTTPStatus.TOO_MANY_REQUESTS: "denied",
}
"""Refusals that are counted and logged, as those of the gRPC port are, and the reason as metrics name it."""


class PageRouter:
    """Answers requests. `open`: everybody may look; `local`: the page listens on loopback only;
    `secure`: over TLS."""

    def __init__(self, front: ServerContext, watch: PageWatch, asks: Authenticator, **how: bool) -> None:
        self._front, self._watch = front, watch
        self._open, self._local, self._secure = how["open"], how["local"], how["secure"]
        self._sessions, self._logs_in = Sessions(asks), asks.tokens is not None
        self._asks_nobody = not (asks.certificates or self._logs_in)  # anybody may send commands
        self._streams = PageStreams()
        self._health = HealthAnswers()
        self.cookie = "__Host-holdfast" if self._secure else "holdfast"
        self._routes: dict[tuple[str, str], Callable[[HttpRequest, list[str]], Awaitable[HttpAnswer]]] = {
            ("GET", "session"): self._session,
            ("POST", "login"): self._login,
            ("POST", "logout"): self._logout,
            ("GET", "state"): self._state,
            ("GET", "live"): self._live,
            ("GET", "jobs"): self._job,
            ("GET", "nodes"): self._node,
            ("GET", "incidents"): self._incident,
            ("POST", "act"): self._act,
            ("POST", "read"): self._read,
        }

    async def handle(self, visit: Visit, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a request. It never raises."""
        try:
            self._check_host(request)
            visit.who = self._who(request)
            answer = await self._answer(request)
        except HttpRefused as refused:
            if kind := _COUNTED.get(refused.status):
                self._front.denied(kind, request.peer, refused.reason)
            return self.refuse(refused)
        except Exception:
            log.exception("the page failed at %s %.200s", request.method, request.path)
            return self.refuse(HttpRefused(500, "the page failed: see the coordinator's log"))
        return _with(answer, HEADERS)

    def refuse(self, refused: HttpRefused) -> HttpAnswer:
        """Return the answer that says why a request is refused."""
        ends = (("Connection", "close"),) if refused.status == HTTPStatus.TOO_MANY_REQUESTS else ()
        return _with(_json({"error": refused.reason}, refused.status), (*HEADERS, *ends))

    def _check_host(self, request: HttpRequest) -> None:
        """On a page that listens on loopback only, refuse requests that address it by any other name.

        Otherwise another site could point a name of its own at this address, and its scripts would read the
        page (DNS rebinding)."""
        host = request.headers.get("host", "")
        name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
        if self._local and not is_loopback(name):
            reason = f"this page is served at localhost, not at {name!r:.80}: use that name"
            raise HttpRefused(HTTPStatus.MISDIRECTED_REQUEST, reason)

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        parts = request.path.split("/")[1:]
        if parts[0] == "api" and len(parts) > 1:
            return await self._call(request, parts[1], parts[2:])
        if request.method not in ("GET", "HEAD"):
            raise HttpRefused(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method:.20} is not supported here")
        if parts[0] == "static" and len(parts) == 2:
            return file(request, parts[1])
        if parts[0] in VIEWS:
            return file(request, "index.html")
        raise HttpRefused(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path!r:.200}")

    async def _call(self, request: HttpRequest, name: str, parts: list[str]) -> HttpAnswer:
        method = "GET" if request.method == "HEAD" else request.method
        route = self._routes.get((method, name))
        if route is None:
            known = [verb for verb, each in self._routes if each == name]
            if known:
                raise HttpRefused(HTTPStatus.METHOD_NOT_ALLOWED, f"use {known[0]} for /api/{name}")
            raise HttpRefused(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path!r:.200}")
        return await route(request, parts)

    # ------------------------------------------------------------ who

    def _find(self, request: HttpRequest) -> PageSession | None:
        return self._sessions.find(request.cookie(self.cookie))

    def _who(self, request: HttpRequest) -> str:
        """Return who asks; "" when that is not known."""
        session = self._find(request)
        return str(session.caller) if session is not None else ""

    def _may_look(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the jobs that this viewer may see; (): all. Raises HttpRefused."""
        session = self._find(request)
        if session is not None:
            return session.caller.jobs
        if self._open:
            return ()
        remedy = "log in" if self._logs_in else "start the coordinator with --tokens, or with --page-public"
        raise HttpRefused(HTTPStatus.UNAUTHORIZED, f"this page requires a login: {remedy}")

    async def _session(self, request: HttpRequest, _parts: list[str]) -> HttpAnswer:
        """Answer who the browser is logged in as, and what that allows."""
        session = self._find(request)
        caller = session.caller if session else Caller(None, "")
        return _json({
            "name": caller.name,
            "role": caller.role or "",
            "jobs": list(caller.jobs),
            "csrf": session.csrf if session else "",
            "now_s": time.time(),
            "header": CSRF_HEADER,
            "open": self._open,
            "logs_in": self._logs_in,
            "acts": list(ACTS) if caller.role == "operator" else [],
            "reads": readable(caller) if session or self._asks_nobody else [],
        })  # fmt: skip

    async def _login(self, request: HttpRequest, _parts: list[str]) -> HttpAnswer:
        check_own(request)
        token = _document(request).get("token")
        if not isinstance(token, str) or not token:
            raise HttpRefused(HTTPStatus.BAD_REQUEST, 'a login must be {"token": "..."}')
        try:
            cookie, session = self._sessions.log_in(token, request.peer)
        except HttpRefused as refused:
            if refused.status == HTTPStatus.TOO_MANY_REQUESTS:
                await asyncio.sleep(WRONG_PAUSE_S)
            raise
        log.info("%s has logged in at the page, from %s", session.caller, request.peer)
        return _with(_json({"name": session.caller.name}), (self._baked(cookie),))

    async def _logout(self, request: HttpRequest, _parts: list[str]) -> HttpAnswer:
        check_own(request)
        session = self._find(request)
        if session is not None:
            check_csrf(request, session)
        self._sessions.log_out(request.cookie(self.cookie))
        return _with(_json({}), (self._baked("", "; Max-Age=0"),))

    def _baked(self, cookie: str, more: str = "") -> tuple[str, str]:
        secure = "; Secure" if self._secure else ""
        return "Set-Cookie", f"{self.cookie}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}{more}"

    # ------------------------------------------------------------ what

    async def _state(self, request: HttpRequest, _parts: list[str]) -> HttpAnswer:
        """Answer with the whole picture at once, for programs."""
        jobs = self._may_look(request)
        with self._watch.viewing():
            text = (await self._watch.ready()).state(jobs)
        return _packed(request, text)

    async def _live(self, request: HttpRequest, _parts: list[str]) -> HttpAnswer:
        """Answer with the whole picture, and then each change, for as long as the viewer may look."""
        jobs = self._may_look(request)
        who = self._who(request)
        self._streams.check(who)
        live = Live(self._watch, jobs, lambda: "" if not who or self._find(request) else SESSION_OVER)
        last = request.headers.get("last-event-id", "")[:64]
        headers = (
            *(("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")),
            ("X-Accel-Buffering", "no"),  # or nginx would buffer the events
        )
        if request.method == "HEAD":
            return HttpAnswer(HTTPStatus.OK, b"", headers)
        return HttpAnswer(
            HTTPStatus.OK, b"", headers, lambda send: self._streams.run(who, lambda: live.run(send, last))
        )

    async def _job(self, request: HttpRequest, parts: list[str]) -> HttpAnswer:
        """Answer with the ranks of a job, and where its time went, by minute; NAME/diagnosis: with its health
        report; NAME/curves: with its loss, step time and goodput over time; NAME/slow: with its slow steps;
        NAME/slow/GENERATION/STEP: with the ranks of one of them."""
        jobs, leader_term = self._may_look(request), self._leading()
        what, more = "".join(parts[1:2]), parts[2:]
        known = what in _OF_JOB and (not more or what == "slow")
        found = leader_term.core.state.jobs.get(parts[0]) if known else None
        if found is None or (jobs and found.name not in jobs):
            raise HttpRefused(HTTPStatus.NOT_FOUND, f"there is no job {'/'.join(parts)!r:.80}")
        if what == "diagnosis":
            return _packed(request, self._health.answer(leader_term, found.name))
        if what == "curves":
            return _packed(request, encoded(leader_term.curves(found.name)))
        if what == "slow":
            return _packed(request, encoded(_slow(leader_term.diagnosis.slow_steps(found.name), more)))
        account = leader_term.observer.account(found.name)
        minutes = account.rows() if account is not None else []
        return _json({"job": found.name, "ranks": rows.ranks(found, RANKS_SHOWN), "minutes": minutes})

    async def _node(self, request: HttpRequest, parts: list[str]) -> HttpAnswer:
        """Answer with a node and its ranks."""
        jobs, leader_term = self._may_look(request), self._leading()
        found = rows.node_detail(leader_term.core, parts[0]) if len(parts) == 1 else None
        if found is None:
            raise HttpRefused(HTTPStatus.NOT_FOUND, f"there is no node {'/'.join(parts)!r:.80}")
        found["ranks"] = [each for each in found["ranks"] if not jobs or each["job"] in jobs]
        return _json(found)

    async def _incident(self, request: HttpRequest, parts: list[str]) -> HttpAnswer:
        """Answer with the whole story of an incident, as `holdfast why --json` prints it."""
        jobs = self._may_look(request)
        with self._watch.viewing():
            await self._watch.ready()
            number = int(parts[1]) if len(parts) == 2 and _NUMBER.fullmatch(parts[1]) else -1
            story = self._watch.stories.get((parts[0], number)) if parts else None
        if story is None or (jobs and story.job not in jobs):
            reason = f"the journal holds no incident {'/'.join(parts)!r:.80}"
            raise HttpRefused(HTTPStatus.NOT_FOUND, reason)
        return _json(as_json(story))

    async def _act(self, request: HttpRequest, parts: list[str]) -> HttpAnswer:
        check_own(request)
        session = self._find(request)
        if session is None:
            raise HttpRefused(HTTPStatus.UNAUTHORIZED, "this is for operators: log in first")
        check_csrf(request, session)
        name = parts[0] if len(parts) == 1 else "/".join(parts)
        answer = await act(self._front, session.caller, name, _document(request))
        self._health.forget()
        log.info("%s requested on the page: %s %.300s", session.caller, name, request.body)
        return _json(answer)

    async def _read(self, request: HttpRequest, parts: list[str]) -> HttpAnswer:
        """Answer with the end of a rank's log, or with stacks: to whoever may give that command."""
        check_own(request)
        session = self._find(request)
        if session is not None:
            check_csrf(request, session)
        elif not self._asks_nobody:
            reason = "what ranks write and where they are is not for everybody: log in first"
            raise HttpRefused(HTTPStatus.UNAUTHORIZED, reason)
        caller = session.caller if session is not None else ANYONE
        answer = await read(self._front, caller, "/".join(parts), _document(request))
        log.info("%s read on the page: %s %.300s", caller, "/".join(parts), request.body)
        return _packed(request, encoded(answer))

    def _leading(self) -> LeaderTerm:
        if self._front.leader_term is None:
            raise HttpRefused(HTTPStatus.CONFLICT, self._front.no_leader())
        return self._front.leader_term


def _slow(known: SlowStepMemory, parts: list[str]) -> dict[str, Any]:
    """Return the slow steps of a job, or one of them. Raises HttpRefused."""
    if not parts:
        return known.rows()
    numbers = [int(each) for each in parts if _NUMBER.fullmatch(each)]
    whole = len(numbers) == len(parts) == 2
    found = known.step(numbers[0], numbers[1], ROWS_MOST) if whole else None
    if found is None:
        reason = f"no slow step {'/'.join(parts)!r:.80} is kept: the leader keeps the newest {STEPS_MAX}"
        raise HttpRefused(HTTPStatus.NOT_FOUND, reason)
    return found


def _document(request: HttpRequest) -> dict[str, Any]:
    """Return the object in a request's body. Raises HttpRefused."""
    try:
        document = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise HttpRefused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from error
    if not isinstance(document, dict):
        raise HttpRefused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
    return document


def _said(text: bytes, status: int = HTTPStatus.OK) -> HttpAnswer:
    return HttpAnswer(status, text, (("Content-Type", "application/json"), ("Cache-Control", "no-store")))


def _packed(request: HttpRequest, text: bytes) -> HttpAnswer:
    """Return the answer with this JSON, compressed when it is long and the browser takes that."""
    if len(text) > PACK_BYTES_MIN and "gzip" in request.headers.get("accept-encoding", ""):
        return _with(_said(gzip.compress(text, 1)), (("Content-Encoding", "gzip"),))
    return _said(text)


def _json(document: dict[str, Any], status: int = HTTPStatus.OK) -> HttpAnswer:
    return _said(encoded(document), status)


def _with(answer: HttpAnswer, headers: tuple[tuple[str, str], ...]) -> HttpAnswer:
    return HttpAnswer(answer.status, answer.body, (*answer.headers, *headers), answer.stream)
