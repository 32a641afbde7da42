"""Rights end where they are taken: on streams that are open, too."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from cryptography import x509

from controlplane.access.certificates import Unreadable, facts
from controlplane.access.client_credentials import ClientCredentials, plain
from controlplane.access.tokens import Tokens
from controlplane.wire import control_pb2 as pb
from controlplane.wire import peer_pb2
from tests.agent.peering import Side
from tests.page.visiting import paged
from tests.security.authority import CLUSTER, token_line
from tests.security.serving import OPTIONS, asked, serving
from tests.security.test_roles import hello

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.security.authority import Authority

UNKNOWN, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
SOON = datetime.timedelta(seconds=12)
Shown = tuple[tuple[str, str], ...]


def shows(token: str) -> Shown:
    return (("authorization", f"Bearer {token}"),)


@contextlib.asynccontextmanager
async def linked(
    address: str, node: str, access: ClientCredentials | None = None, metadata: Shown = ()
) -> AsyncIterator[Any]:
    """The stream of an agent that is welcome."""
    async with (access or plain()).channel(address, OPTIONS) as channel:
        call = channel.stream_stream(
            "/holdfast.control.v1.Control/Link",
            request_serializer=pb.AgentMessage.SerializeToString,
            response_deserializer=pb.CoordinatorMessage.FromString,
        )(metadata=metadata)
        async with asyncio.timeout(20):
            await call.write(hello(node))
            assert (await call.read()).WhichOneof("body") == "welcome"
        yield call
        call.cancel()


@contextlib.asynccontextmanager
async def following(
    address: str, access: ClientCredentials | None = None, metadata: Shown = ()
) -> AsyncIterator[Any]:
    """The stream of somebody who follows the journal, once its first line came."""
    async with (access or plain()).channel(address, OPTIONS) as channel:
        call = channel.unary_stream(
            "/holdfast.control.v1.Admin/Events",
            request_serializer=pb.EventsRequest.SerializeToString,
            response_deserializer=pb.EventLine.FromString,
        )(pb.EventsRequest(follow=True), metadata=metadata)
        async with asyncio.timeout(20):
            assert await call.read()
        yield call
        call.cancel()


async def ended(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a stream ends."""
    async with asyncio.timeout(30):
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code(), await call.details()


async def test_a_token_that_is_withdrawn_ends_its_streams(folder: Path) -> None:
    callers = (("agent", "n1"), ("viewer", "v"), ("viewer", "w"))
    made = {name: token_line(role, name) for role, name in callers}
    file = folder / "tokens"
    file.write_text("\n".join(line for _, line in made.values()))
    (n1, _), (v, _), (w, stays) = made["n1"], made["v"], made["w"]
    async with (
        serving(tokens=Tokens(str(file)), leads=True) as served,
        linked(served.address, "n1", metadata=shows(n1)) as agent,
        following(served.address, metadata=shows(v)) as viewer,
        following(served.address, metadata=shows(w)) as other,
    ):
        file.write_text(stays)
        for call, name in ((agent, "agent n1"), (viewer, "viewer v")):
            code, said = await ended(call)
            assert code is UNKNOWN and name in said and "token" in said
        assert not other.done()
        told = "".join(line.text for line in served.front.journal.lines())
        assert "agent n1" in told and n1 not in told
        file.write_text(stays.removesuffix("\n") + " mine")  # narrowed: what was let in for all jobs is over
        code, said = await ended(other)
        assert code is UNKNOWN and "viewer w" in said and "have changed" in said


async def test_a_certificate_that_expires_ends_its_streams(authority: Authority) -> None:
    async with serving(authority.issue("server").tls(), leads=True) as served:
        stays = authority.of("viewer", "w").access()
        agent = authority.issue("n1", f"holdfast://{CLUSTER}/agent/n1", ends_in=SOON).access()
        viewer = authority.issue("v", f"holdfast://{CLUSTER}/viewer/v", ends_in=SOON).access()
        async with (
            linked(served.address, "n1", agent) as link,
            following(served.address, viewer) as events,
            following(served.address, stays) as other,
            viewer.channel(served.address, OPTIONS) as channel,
        ):
            status = channel.unary_unary("/holdfast.control.v1.Admin/Status")
            await status(b"", timeout=10)
            for call, name in ((link, "agent n1"), (events, "viewer v")):
                code, said = await ended(call)
                assert code is UNKNOWN and name in said and "expired" in said
            with pytest.raises(grpc.aio.AioRpcError, match="expired"):
                await status(b"", timeout=10)  # on the connection that was opened before
            assert not other.done()
            assert (await asked(served.address, "Status", pb.StatusRequest(), stays))[0] is grpc.StatusCode.OK


async def test_an_expired_certificate_ends_streams_between_agents(folder: Path, authority: Authority) -> None:
    mine = authority.of("agent", "n2")
    theirs = authority.issue("n1", f"holdfast://{CLUSTER}/agent/n1", ends_in=SOON).access()
    async with (
        Side(folder, "b", **mine.settings(), cluster=CLUSTER, peer_timeout_s=60.0) as partner,
        theirs.channel(partner.peers.address, OPTIONS) as channel,
    ):
        put = channel.stream_stream(
            "/holdfast.peer.v1.Peer/Put", request_serializer=peer_pb2.PutMessage.SerializeToString
        )()
        code, said = await ended(put)
        assert code is UNKNOWN and "agent n1" in said and "expired" in said


async def test_a_stream_of_the_page_says_why_it_ends(folder: Path) -> None:
    (viewer, line), (other, stays) = token_line("viewer", "v"), token_line("viewer", "w")
    (folder / "tokens").write_text(f"{line}\n{stays}\n")
    async with paged(Tokens(str(folder / "tokens"))) as found:
        await found.visitor.log_in(viewer)
        async with found.visitor.live() as stream:
            await stream.event()
            (folder / "tokens").write_text(f"{line} mine\n{stays}\n")
            kind, document = "", {"error": ""}
            while kind != "over":
                kind, _, document = await stream.event()
            assert "log in" in document["error"]
            with pytest.raises(AssertionError, match="ended"):
                await stream.event()
        assert (await found.visitor.get("/api/state")).status == 401
        assert (await found.visitor.log_in(other)).status == 200


def test_a_certificates_end_and_number_are_read_or_refused(authority: Authority) -> None:
    decades = datetime.timedelta(days=365 * 40)  # behind 2050 a time has another form
    files = authority.issue("some", ends_in=decades)
    for name in (files.cert, files.ca, authority.of("viewer", "v").cert):
        pem = Path(name).read_bytes()
        whole = x509.load_pem_x509_certificate(pem)
        assert facts(pem).serial == whole.serial_number
        assert facts(pem).ends_s == whole.not_valid_after_utc.timestamp()
    rng = random.Random(7)
    for _ in range(2000):
        broken = bytearray(pem)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        with contextlib.suppress(Unreadable):
            facts(bytes(broken[: rng.randrange(len(broken) + 1)]))
