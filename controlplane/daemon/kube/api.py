"""Send requests to the Kubernetes API over TLS, each with the account's current token.

This uses the standard library's HTTP, in threads of its own, so that a slow API delays nobody. A whole client
library would bring four packages and 30 MB into the image for six requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import random
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controlplane.daemon.kube.account import ServiceAccount

TRY_S = 10.0
"""Seconds for one try of a request."""
GIVE_UP_S = 60.0
"""Seconds for a request with all its tries."""
BACKOFF_S = (0.5, 15.0)
"""The first and the longest pause between two tries."""
ANSWER_BYTES_MAX = 8 << 20
THREADS = 4
PATCH = "application/merge-patch+json"
NONSENSE = (KeyError, TypeError, AttributeError, ValueError)
"""The errors that reading an answer raises when it does not have the expected form."""
_PASSING = frozenset({401, 408, 425, 429, 500, 502, 503, 504})
"""Statuses of refusals that may pass, so that a request is tried again. 401 is one: the token on disk is
replaced before it expires."""
log = logging.getLogger(__name__)


class KubeError(Exception):
    """The API did not carry out the request. `status` 0: there was no answer. `after_s`: it asks not to be
    called again sooner."""

    def __init__(self, status: int, reason: str, after_s: float = 0.0) -> None:
        problem = f"the API says {status}" if status else "the API does not answer"
        super().__init__(f"{problem}: {reason}")
        self.status, self.after_s = status, after_s

    @property
    def passing(self) -> bool:
        """Whether the request may succeed when it is repeated."""
        return self.status == 0 or self.status in _PASSING


class Api:
    """Requests to one API server. Close it in the end. `count(what, outcome)` is called after each try."""

    def __init__(
        self,
        account: ServiceAccount,
        *,
        count: Callable[[str, str], None] = lambda what, outcome: None,
        try_s: float = TRY_S,
        give_up_s: float = GIVE_UP_S,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.account = account
        self._count, self._try_s, self._give_up_s, self._jitter = count, try_s, give_up_s, jitter
        self._threads = ThreadPoolExecutor(THREADS, "kube")

    async def get(self, what: str, path: str) -> Any:
        """Return an object. Raises KubeError."""
        return await self.ask(what, "GET", path)

    async def ask(
        self, what: str, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Any:
        """Send a request, and repeat it with jitter while that may help, for `give_up_s` at most. Raises
        KubeError.

        `what` names it in metrics. A request that was carried out but not answered is sent again: it must
        do no harm twice."""
        loop = asyncio.get_running_loop()
        ends, pause_s = loop.time() + self._give_up_s, BACKOFF_S[0]
        while True:
            try:
                return await self.once(what, method, path, body, kind)
            except KubeError as error:
                wait_s = max(error.after_s, pause_s * (0.5 + self._jitter() / 2))
                if not error.passing or loop.time() + wait_s > ends:
                    raise
                log.info("%s: %s; trying again in %.1f s", what, error, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, BACKOFF_S[1])

    async def once(
        self, what: str, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Any:
        """Send a request once. Raises KubeError."""
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads, self._send, method, path, body, kind)
        except KubeError as error:
            self._count(what, str(error.status or "unanswered"))
            raise
        except RuntimeError as error:  # the threads were shut down meanwhile
            raise KubeError(0, str(error)) from error
        self._count(what, "ok")
        return answer

    async def close(self) -> None:
        """Begin no more requests; those under way end by their own timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        """Return a connection that is not opened yet. Raises KubeError."""
        account = self.account
        try:
            context = account.context()
        except SettingsError as error:
            raise KubeError(0, str(error)) from error
        return http.client.HTTPSConnection(account.host, account.port, timeout=timeout_s, context=context)

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of every request. Raises KubeError when there is no token."""
        try:
            token = self.account.token()
        except SettingsError as error:
            raise KubeError(0, str(error)) from error
        return {"Authorization": f"Bearer {token}", "Accept": "application/json", **more}

    def _send(self, method: str, path: str, body: Any, kind: str) -> Any:
        connection = self.connect(self._try_s)
        try:
            headers = self.headers(**{"Content-Type": kind})
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            raise KubeError(0, str(error) or type(error).__name__) from error
        finally:
            connection.close()
        return understood(response.status, dict(response.headers), content)


def understood(status: int, headers: Mapping[str, str], content: bytes) -> Any:
    """Return the object in an answer. Raises KubeError with the API's own words."""
    try:
        document = json.loads(content) if content and len(content) <= ANSWER_BYTES_MAX else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise KubeError(
            status if status >= http.client.BAD_REQUEST else 0, "an answer that is not a JSON object"
        )
    if status >= http.client.BAD_REQUEST:
        raise KubeError(status, str(document.get("message", "no reason"))[:500], _after(headers))
    return document


def _after(headers: Mapping[str, str]) -> float:
    text = headers.get("Retry-After") or ""
    return min(float(text), GIVE_UP_S) if text.isdecimal() else 0.0
