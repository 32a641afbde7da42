"""Log callers in at the page, and check that their requests come from the page.

A session is a random value in a cookie that no script can read, and a second one that every act must bring in
a header. No other site can make a browser send that header."""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from controlplane.access.authentication import Credentials
from controlplane.access.callers import Caller, CallerRole, Unauthenticated
from controlplane.daemon.page.admission import RateLimiter, network
from controlplane.daemon.page.http import HttpRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.access.authentication import Authenticator
    from controlplane.daemon.page.http import HttpRequest

SESSION_S = 12 * 3600.0
"""A session ends this many seconds after its login."""
IDLE_S = 2 * 3600.0
"""A session ends this many seconds after its last use."""
SESSIONS_MAX = 256
"""Sessions at a time. One more ends the one that was not used for longest."""
CSRF_HEADER = "x-holdfast-csrf"
SESSIONS_OF_ONE_MAX = 16
"""Sessions of one caller. One more ends that caller's session that was not used for longest."""
LOGINS_PER_S = 5.0
"""Logins of one caller per second."""
WRONG_PER_S = 5.0
"""Wrong tokens per second from one address that are answered at once. Further ones are answered late, so that
guessing takes too long. A right token is accepted even from an address that sent wrong ones."""
MAY_LOG_IN = (CallerRole.OPERATOR, CallerRole.VIEWER, CallerRole.READER)


@dataclass(slots=True)
class PageSession:
    """One login. `digest` is that of its token: removing the token from the file ends its sessions."""

    caller: Caller
    digest: bytes
    csrf: str  # the second value
    begun_s: float  # this and the next in s on the clock of Sessions
    used_s: float


class Sessions:
    """All logins of this process; they end with it."""

    def __init__(self, asks: Authenticator, clock: Callable[[], float] = time.monotonic) -> None:
        self._asks, self._clock = asks, clock
        self._of: dict[str, PageSession] = {}  # by the cookie's value
        self._wrong, self._logins = RateLimiter(WRONG_PER_S), RateLimiter(LOGINS_PER_S)

    def log_in(self, token: str, address: str) -> tuple[str, PageSession]:
        """Return the cookie's value and the session of the caller with this token.

        Raises HttpRefused; one with the status 429 has to be answered late."""
        tokens = self._asks.tokens
        if tokens is None:
            reason = "nobody can log in here: start the coordinator with --tokens"
            raise HttpRefused(HTTPStatus.FORBIDDEN, reason)
        now = self._clock()
        digest = tokens.digest(token)
        try:
            caller = tokens.whose(digest)
        except Unauthenticated as unknown:
            if not self._wrong.allow(network(address), now):
                reason = "too many wrong tokens came from your address: try again in a second"
                raise HttpRefused(HTTPStatus.TOO_MANY_REQUESTS, reason) from unknown
            raise HttpRefused(HTTPStatus.UNAUTHORIZED, str(unknown)) from unknown
        if lost := self._lost(caller, digest):
            raise HttpRefused(HTTPStatus.FORBIDDEN, lost)
        if caller.role not in MAY_LOG_IN:
            reason = (
                f"{caller} may not see this page: log in with the token of an operator, a viewer or a reader"
            )
            raise HttpRefused(HTTPStatus.FORBIDDEN, reason)
        if not self._logins.allow(str(caller), now):
            reason = f"{caller} logs in too often: try again in a second"
            raise HttpRefused(HTTPStatus.TOO_MANY_REQUESTS, reason)
        self._forget(now, caller)
        cookie = secrets.token_urlsafe(32)
        session = self._of[cookie] = PageSession(caller, digest, secrets.token_urlsafe(24), now, now)
        return cookie, session

    def log_out(self, cookie: str) -> None:
        """End a session."""
        self._of.pop(cookie, None)

    def find(self, cookie: str) -> PageSession | None:
        """Return the living session of this cookie; None when there is none."""
        session = self._of.get(cookie)
        if session is None:
            return None
        now = self._clock()
        if (
            now - session.begun_s > SESSION_S
            or now - session.used_s > IDLE_S
            or self._lost(session.caller, session.digest)
        ):
            self.log_out(cookie)
            return None
        session.used_s = now
        return session

    def _lost(self, caller: Caller, digest: bytes) -> str:
        """Return why this token is not good for this caller any more; "" while it is."""
        self._asks.refresh()
        return self._asks.lost(Credentials(caller, digest), 0.0)

    def _forget(self, now: float, caller: Caller) -> None:
        """Make room for one more session of this caller."""
        for cookie in [c for c, s in self._of.items() if now - max(s.used_s, s.begun_s) > IDLE_S]:
            self.log_out(cookie)
        theirs = [cookie for cookie, session in self._of.items() if str(session.caller) == str(caller)]
        for words, limit in ((theirs, SESSIONS_OF_ONE_MAX), (list(self._of), SESSIONS_MAX)):
            if len(words) >= limit:
                self.log_out(min(words, key=lambda each: self._of[each].used_s))


def check_own(request: HttpRequest) -> None:
    """Raise HttpRefused on a request that another site made a browser send."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", "")
    host = request.headers.get("host", "")
    if site not in ("same-origin", "none") or (origin and origin.partition("://")[2] != host):
        raise HttpRefused(HTTPStatus.FORBIDDEN, "this request came from another site: use the page itself")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HttpRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")


def check_csrf(request: HttpRequest, session: PageSession) -> None:
    """Raise HttpRefused on an act that does not bring its session's second value."""
    shown = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(shown.encode("latin-1", "replace"), session.csrf.encode()):
        raise HttpRefused(
            HTTPStatus.FORBIDDEN, f"the header {CSRF_HEADER} is missing or old: reload the page"
        )
