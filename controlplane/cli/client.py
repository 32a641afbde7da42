"""Call a coordinator over gRPC; failures become errors that name a solution.

Only the leader can answer most calls; standbys answer FAILED_PRECONDITION. So the addresses are tried in turn
until one answers, and UnreachableError means that none did."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from controlplane.access.keepalive import keepalive
from controlplane.access.roles import HEALTH
from controlplane.cli.errors import CliError, UnreachableError, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import addresses
from controlplane.daemon.server.health import LEADER
from controlplane.setting import SettingsError
from controlplane.wire import control_pb2 as pb
from controlplane.wire import health_pb2
from controlplane.wire.codec import row_message, spec_message
from controlplane.wire.control_pb2_grpc import AdminStub
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from controlplane.access.client_credentials import ClientCredentials
    from controlplane.core.records.model import CheckpointRecord, JobSpec

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    *keepalive(10, 10),
    ("grpc.max_reconnect_backoff_ms", 2_000),  # 120,000: who waits would not see for so long that it is back
)
_SILENCE_S = 30.0
"""For so long a coordinator may look for the next line of its journal, before it counts as hanging."""


_DENIED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class OtherSettings(CliError):
    """A job of this name runs with other settings. The message names the settings."""


class AdminClient:
    """Calls whichever of several coordinators answers. Use as an async context.

    `access`: the credentials to show; None: those from the environment. `timeout_s` holds for each call."""

    def __init__(
        self, coordinators: str, timeout_s: float = 5.0, access: ClientCredentials | None = None
    ) -> None:
        self._addresses = addresses(coordinators)
        self._timeout_s = timeout_s
        self._access = access or access_of()
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def status(self) -> pb.StatusReply:
        """The state of the cluster as the coordinator sees it. Raises UnreachableError, CliError."""
        reply: pb.StatusReply = await self._ask("Status", pb.StatusRequest())
        return reply

    async def submit(self, spec: JobSpec) -> pb.SubmitReply:
        """Submit a job.

        Raises UnreachableError; CliError with the coordinator's reason when it refuses (OtherSettings when a
        job of this name runs with other settings); UsageError when the job does not fit into a message."""
        try:
            request = pb.SubmitRequest(spec=spec_message(spec))
        except WireError as error:
            raise UsageError(f"job {spec.job} cannot be sent to a coordinator: {error}") from error
        try:
            reply: pb.SubmitReply = await self._ask("Submit", request)
        except CliError as error:
            if _code_of(error) is grpc.StatusCode.ALREADY_EXISTS:
                raise OtherSettings(str(error)) from error
            raise
        return reply

    async def stop(self, job: str, reason: str) -> None:
        """End a job. Raises UnreachableError, CliError."""
        await self._ask("Stop", pb.StopRequest(job=job, reason=reason))

    async def delete(self, job: str, reason: str) -> pb.MarkReply:
        """Forget an ended job. Raises UnreachableError, CliError with the reason of a refusal."""
        reply: pb.MarkReply = await self._ask("Delete", pb.DeleteRequest(job=job, reason=reason))
        return reply

    async def release(self, node: str, reason: str) -> None:
        """Forget the failures of a node, which ends its quarantine. Raises UnreachableError, CliError."""
        await self._ask("Release", pb.ReleaseRequest(node=node, reason=reason))

    async def drain(self, node: str, reason: str, deadline_s: float, *, force: bool) -> pb.MarkReply:
        """Move a node's ranks to other nodes. Raises UnreachableError, CliError with the reason of a
        refusal."""
        request = pb.DrainRequest(node=node, reason=reason, deadline_s=deadline_s, force=force)
        reply: pb.MarkReply = await self._ask("Drain", request)
        return reply

    async def cordon(self, node: str, reason: str, *, on: bool) -> pb.MarkReply:
        """Give a node no new ranks, or allow them again. Raises UnreachableError, CliError."""
        reply: pb.MarkReply = await self._ask("Cordon", pb.CordonRequest(node=node, on=on, reason=reason))
        return reply

    async def pause(self, job: str, reason: str, *, on: bool) -> pb.MarkReply:
        """Stop a job at a step boundary, or let it go on.

        Raises UnreachableError, CliError with the reason of a refusal."""
        reply: pb.MarkReply = await self._ask("Pause", pb.PauseRequest(job=job, on=on, reason=reason))
        return reply

    async def checkpoint(self, job: str, reason: str) -> pb.MarkReply:
        """Make a job's newest state durable.

        Raises UnreachableError, CliError with the reason of a refusal."""
        request = pb.CheckpointRequest(job=job, reason=reason)
        reply: pb.MarkReply = await self._ask("Checkpoint", request)
        return reply

    async def diagnose(self, job: str) -> dict[str, Any]:
        """What is wrong with a job, or with the cluster ("").

        Raises UnreachableError, CliError with the reason of a refusal."""
        reply = await self._ask("Diagnose", pb.DiagnoseRequest(job=job))
        found: dict[str, Any] = json.loads(reply.json)
        return found

    async def mute(self, job: str, finding: str, for_s: float, reason: str) -> pb.MarkReply:
        """Alert nobody to a finding for so long (s); 0: alert again. Raises UnreachableError, CliError."""
        request = pb.MuteRequest(job=job, id=finding, for_s=for_s, reason=reason)
        reply: pb.MarkReply = await self._ask("Mute", request)
        return reply

    async def profile(
        self, job: str, ranks: Sequence[int], *, steps: int, timeout_s: float, reason: str
    ) -> AsyncIterator[pb.ProfileReply]:
        """Have ranks of a job profile their next steps; each rank's answer, as it is done.

        Raises UnreachableError, also when the answers break off; CliError with the reason of a refusal."""
        request = pb.ProfileRequest(job=job, ranks=ranks, steps=steps, timeout_s=timeout_s, reason=reason)
        async for reply in self._stream("Profile", request):
            yield reply

    async def stacks(self, job: str, ranks: Sequence[int]) -> pb.StacksReply:
        """Where ranks of a running job are now. Raises UnreachableError, CliError."""
        reply: pb.StacksReply = await self._ask("Stacks", pb.StacksRequest(job=job, ranks=ranks))
        return reply

    async def list_logs(self, job: str, ranks: Sequence[int], *, former: bool) -> pb.ListLogsReply:
        """Which logs of these ranks (none: of all) there are, by node; `former`: of former processes too.

        Raises UnreachableError, CliError."""
        request = pb.ListLogsRequest(job=job, ranks=ranks, former=former)
        reply: pb.ListLogsReply = await self._ask("ListLogs", request)
        return reply

    async def read_log(
        self, job: str, node: str, member: str, *, follow: bool, **part: Any
    ) -> AsyncIterator[pb.LogBlock]:
        """The log of one process, or the `part` of it that the fields of ReadLogRequest name.

        Raises UnreachableError, also when it breaks off; CliError with the reason of a refusal."""
        request = pb.ReadLogRequest(job=job, node=node, member=member, follow=follow, **part)
        async for block in self._stream("ReadLog", request):
            yield block

    async def _stream(self, method: str, request: Any) -> AsyncIterator[Any]:
        """The answers of the coordinator that leads. Raises UnreachableError, CliError."""
        problems, begun = [], False
        for address in self._addresses:
            call = getattr(self._stub(address), method)(request, metadata=self._access.metadata())
            try:
                async for reply in call:
                    begun = True
                    yield reply
                return
            except grpc.aio.AioRpcError as error:
                if error.code() not in (*_AWAY, grpc.StatusCode.FAILED_PRECONDITION):
                    raise CliError(_reason_of(error)) from error
                if begun or ("connection refused" not in _reason_of(error) and error.code() in _AWAY):
                    raise UnreachableError(
                        f"the answers broke off, ask again: {_reason_of(error)}"
                    ) from error
                problems.append(f"{address}: {_reason_of(error)}")
        raise UnreachableError(f"no coordinator answers ({'; '.join(problems)})")

    async def adopt(self, job: str, records: Sequence[CheckpointRecord]) -> pb.AdoptReply:
        """Make these checkpoints known. Raises UnreachableError, CliError."""
        rows = [row_message(record) for record in records]
        reply: pb.AdoptReply = await self._ask("Adopt", pb.AdoptRequest(job=job, records=rows))
        return reply

    async def events(self, follow: bool, after: int = 0, job: str = "") -> AsyncIterator[pb.EventLine]:
        """The lines of the journal after line `after`; with `follow` without end.

        When several coordinators are named, the leader's journal is read: a standby's has only its own
        events. Raises UnreachableError when the stream breaks."""
        address, problem = self._addresses[0], "no coordinator was asked"
        for address in await self._leader_first():
            request = pb.EventsRequest(follow=follow, after=after, job=job)
            call = self._stub(address).Events(request, metadata=self._access.metadata())
            try:
                while (line := await _next(call, None if follow else _SILENCE_S)) is not grpc.aio.EOF:
                    after = line.sequence
                    yield line
                return
            except TimeoutError:
                problem = f"{address}: it hangs: it has not answered for {_SILENCE_S:.0f} s"
            except grpc.aio.AioRpcError as error:
                problem = f"{address}: {_reason_of(error)}"
                if error.code() not in (*_AWAY, grpc.StatusCode.FAILED_PRECONDITION):
                    raise CliError(_reason_of(error)) from error
        raise UnreachableError(f"coordinator {problem}")

    async def _leader_first(self) -> list[str]:
        for address in self._addresses if len(self._addresses) > 1 else ():
            if await self._leads(address):
                return [address, *(each for each in self._addresses if each != address)]
        return self._addresses

    async def _leads(self, address: str) -> bool:
        ends = (health_pb2.HealthRequest.SerializeToString, health_pb2.HealthReply.FromString)
        check = self._channel(address).unary_unary(f"/{HEALTH}/Check", *ends)
        try:
            reply = await check(health_pb2.HealthRequest(service=LEADER), timeout=self._timeout_s)
        except grpc.aio.AioRpcError:
            return False  # the call that follows reports why it does not answer
        return bool(reply.status == health_pb2.HealthReply.SERVING)

    async def _ask(self, method: str, request: Any) -> Any:
        problems, standbys = [], False
        for address in self._addresses:
            call = getattr(self._stub(address), method)
            try:
                return await call(request, timeout=self._timeout_s, metadata=self._access.metadata())
            except grpc.aio.AioRpcError as error:
                if error.code() not in (*_AWAY, grpc.StatusCode.FAILED_PRECONDITION):
                    raise CliError(_reason_of(error)) from error
                problems.append(f"{address}: {_reason_of(error)}")
                standbys = standbys or error.code() is grpc.StatusCode.FAILED_PRECONDITION
        if standbys:
            raise UnreachableError(f"no coordinator leads ({'; '.join(problems)}); its log says why")
        raise UnreachableError(
            f"no coordinator answers ({'; '.join(problems)}): is one running there? Name it with "
            "--coordinator host:port, or start one with `holdfast coordinator`"
        )

    def _stub(self, address: str) -> Any:
        return AdminStub(self._channel(address))  # type: ignore[no-untyped-call]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            try:
                self._channels[address] = self._access.channel(address, _OPTIONS)
            except SettingsError as error:
                raise UsageError(str(error)) from error
        return self._channels[address]


async def _next(call: Any, silence_s: float | None) -> Any:
    """The next message of a stream, or EOF. Raises TimeoutError after `silence_s`; None: waits for ever."""
    async with asyncio.timeout(silence_s):
        return await call.read()


def _code_of(error: CliError) -> grpc.StatusCode | None:
    cause = error.__cause__
    return cause.code() if isinstance(cause, grpc.aio.AioRpcError) else None


def _reason_of(error: grpc.aio.AioRpcError) -> str:
    details = error.details() or error.code().name.lower()
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "the coordinator is older than this command and cannot do this: upgrade it"
    if error.code() in _DENIED:
        return f"the coordinator refuses: {details}"
    return "connection refused" if "Connection refused" in details else details
