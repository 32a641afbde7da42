"""Authorize every call before its method runs: who calls, with which role, for which job.

The guard is an interceptor that wraps the handler of each method. The bytes of a single request are parsed
only when its caller's role is accepted, so that strangers cannot make us parse anything. A stream is watched
while it is open, and ended when its caller loses its credentials (streams.py). Its handler has to check by
itself which jobs its messages concern."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from controlplane.access.authentication import UNAUTHENTICATED
from controlplane.access.callers import ANYONE, Caller, Unauthenticated
from controlplane.access.roles import RULES, Rule
from controlplane.access.streams import OpenStreams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from controlplane.access.authentication import Authenticator, Credentials

log = logging.getLogger(__name__)

TOLD_PER_S = 5.0
"""Lines per second that `LogLimiter` lets through by default."""
_calling: ContextVar[Caller] = ContextVar("calling", default=ANYONE)


def calling() -> Caller:
    """Return who called the method that runs in this context."""
    return _calling.get()


class LogLimiter:
    """Limits the lines logged per second (a token bucket): endless refusals must not fill the disk."""

    def __init__(self, per_s: float = TOLD_PER_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._room, self._at = per_s, clock()
        self._unlogged = 0

    def __call__(self) -> bool:
        """Return whether one more line may be logged now. If not, it counts as held back."""
        now = self._clock()
        self._room = min(self._per_s, self._room + (now - self._at) * self._per_s)
        self._at = now
        if self._room < 1:
            self._unlogged += 1
            return False
        self._room -= 1
        return True

    def untold(self) -> int:
        """Return how many lines were held back since the last call."""
        held_back, self._unlogged = self._unlogged, 0
        return held_back


class Denied(Exception):
    """The call is refused. `counted` is the reason as metrics name it."""

    def __init__(self, code: grpc.StatusCode, counted: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.counted, self.reason = code, counted, reason


class AccessGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """The interceptor of one server, which demands of callers what its port asks.

    `denied(counted, peer, reason)` is called for every refusal; it never gets a token. `clock` is Unix time
    in s."""

    def __init__(
        self,
        asks: Authenticator,
        denied: Callable[[str, str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._asks, self._denied, self._clock = asks, denied, clock
        self.streams = OpenStreams(asks, clock)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the method's handler with the guard before it; None when the method does not exist."""
        handler = await continuation(details)
        if handler is None:
            return None
        return _guarded(handler, _Door(self, details.method, details.invocation_metadata or ()))

    def who(self, metadata: Sequence[tuple[str, Any]], context: Any) -> Credentials:
        """Return who calls. Raises Unauthenticated when the credentials are missing or not accepted."""
        return self._asks.who(metadata, context.auth_context(), self._clock())

    async def deny(self, context: Any, denied: Denied) -> None:
        """Count a refusal and end the call with it."""
        self._denied(denied.counted, context.peer(), denied.reason)
        await context.abort(denied.code, denied.reason)


@dataclass(frozen=True, slots=True)
class _Door:
    """One call on its way through a guard."""

    guard: AccessGuard
    method: str
    metadata: Sequence[tuple[str, Any]]

    async def enter(self, context: Any) -> tuple[Rule, Credentials]:
        """Return rule and caller, if the caller's role may call the method; else end the call."""
        try:
            rule, shown = self._judge(context)
        except Denied as denied:
            await self.guard.deny(context, denied)
            raise
        _calling.set(shown.caller)
        return rule, shown

    async def take(self, context: Any, handler: Any, data: bytes) -> tuple[Any, Rule, Credentials]:
        """Return request, rule and caller, if the caller may call for this job; else end the call.

        The request's bytes are parsed only once the caller's role is accepted."""
        rule, shown = await self.enter(context)
        try:
            request = handler.request_deserializer(data) if handler.request_deserializer else data
            permit_job(rule, shown.caller, self.method, request)
        except DecodeError as error:
            reason = f"{len(data)} bytes that are not a request of {_short(self.method)}"
            malformed = Denied(grpc.StatusCode.INVALID_ARGUMENT, "malformed", reason)
            await self.guard.deny(context, malformed)
            raise malformed from error
        except Denied as denied:
            await self.guard.deny(context, denied)
            raise
        return request, rule, shown

    async def watch(self, context: Any, shown: Credentials, answering: Coroutine[Any, Any, Any]) -> Any:
        """Answer a stream for as long as its caller may stay, then end the call with the reason.

        When the caller loses its credentials, streams.py cancels this task and sets `stream.lost`. A
        cancellation without that reason comes from grpc and goes on."""
        if shown is UNAUTHENTICATED:
            return await answering
        reply = None
        with self.guard.streams.opened(shown) as stream:
            try:
                reply = await answering
            except asyncio.CancelledError:
                if not stream.lost:
                    raise
        if stream.lost:
            lost = Denied(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated", stream.lost)
            await self.guard.deny(context, lost)
        return reply

    def _judge(self, context: Any) -> tuple[Rule, Credentials]:
        rule = RULES.get(self.method)
        if rule is None:
            raise _denied(f"{self.method:.200} is not a method that anybody may call")
        if rule.public:
            return rule, UNAUTHENTICATED
        try:
            shown = self.guard.who(self.metadata, context)
        except Unauthenticated as unknown:
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated", str(unknown)) from unknown
        permit(rule, shown.caller, self.method)
        return rule, shown


def permit(rule: Rule, caller: Caller, method: str) -> None:
    """Raise Denied when the caller's role may not call this method."""
    if caller.role is not None and caller.role not in rule.roles:
        wanted = " or ".join(sorted(rule.roles))
        raise _denied(f"{caller} may not {_short(method)}: use the certificate or token of an {wanted}")


def permit_job(rule: Rule, caller: Caller, method: str, request: Any) -> None:
    """Raise Denied when the request is about a job that is not the caller's."""
    if rule.job is None or caller.may_touch(job := rule.job(request)):
        return
    asked = f"job {job!r:.80}" if job else "the whole cluster"
    raise _denied(
        f"{caller} may {_short(method)} for {', '.join(caller.jobs)} only, not for {asked}: "
        "name one of these jobs"
    )


def _short(method: str) -> str:
    return method.rpartition("/")[2]


def _denied(reason: str) -> Denied:
    return Denied(grpc.StatusCode.PERMISSION_DENIED, "denied", reason)


def _guarded(handler: Any, door: _Door) -> Any:
    wrap, make = _WRAPS[handler.request_streaming, handler.response_streaming]
    # A single request is parsed in `_Door.take`, after the check of the role; grpc parses the messages of a
    # stream when its handler reads them.
    parse = handler.request_deserializer if handler.request_streaming else None
    return make(wrap(handler, door), parse, handler.response_serializer)


def _unary(handler: Any, door: _Door) -> Any:
    async def call(data: bytes, context: Any) -> Any:
        request, rule, shown = await door.take(context, handler, data)
        reply = await handler.unary_unary(request, context)
        if rule.trim is not None and shown.caller.jobs:
            rule.trim(reply, shown.caller.jobs)
        return reply

    return call


def _streaming(handler: Any, door: _Door) -> Any:
    async def call(data: bytes, context: Any) -> None:
        request, _, shown = await door.take(context, handler, data)
        await door.watch(context, shown, _answer(handler.unary_stream, request, context))

    return call


def _streamed(handler: Any, door: _Door) -> Any:
    async def call(requests: Any, context: Any) -> Any:
        _, shown = await door.enter(context)
        return await door.watch(context, shown, handler.stream_unary(requests, context))

    return call


def _both(handler: Any, door: _Door) -> Any:
    async def call(requests: Any, context: Any) -> None:
        _, shown = await door.enter(context)
        await door.watch(context, shown, _answer(handler.stream_stream, requests, context))

    return call


async def _answer(inner: Any, request: Any, context: Any) -> None:
    """Run a method that answers with a stream, written as a generator or with `context.write`."""
    if not inspect.isasyncgenfunction(inner):
        await inner(request, context)
        return
    async for reply in inner(request, context):
        await context.write(reply)


_WRAPS: dict[tuple[bool, bool], tuple[Any, Any]] = {
    (False, False): (_unary, grpc.unary_unary_rpc_method_handler),
    (False, True): (_streaming, grpc.unary_stream_rpc_method_handler),
    (True, False): (_streamed, grpc.stream_unary_rpc_method_handler),
    (True, True): (_both, grpc.stream_stream_rpc_method_handler),
}
