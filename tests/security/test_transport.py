"""TLS on the coordinator's port: who gets past the handshake, and renewal without a restart."""

from __future__ import annotations

import asyncio
import datetime
import shutil
import socket
import ssl
from typing import TYPE_CHECKING

import grpc
import pytest

from controlplane.access.client_credentials import ClientCredentials, plain
from controlplane.access.tls import TlsFiles
from controlplane.settings import (
    AgentSettings,
    CoordinatorSettings,
    SettingsError,
    check_agent,
    check_coordinator,
)
from controlplane.wire import control_pb2 as pb
from tests.security.authority import Authority
from tests.security.serving import Served, asked, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.security.authority import Files

AWAY = grpc.StatusCode.UNAVAILABLE
STANDBY = grpc.StatusCode.FAILED_PRECONDITION  # past the guard: the front leads nobody


async def status(served: Served, access: ClientCredentials) -> grpc.StatusCode:
    return (await asked(served.address, "Status", pb.StatusRequest(), access))[0]


@pytest.fixture
def server(authority: Authority) -> Files:
    return authority.issue("server", "holdfast://c1/agent/nobody")


async def test_only_certificates_of_the_authority_get_past_the_handshake(
    authority: Authority, server: Files, folder: Path
) -> None:
    other = Authority(folder, "other")
    ours, theirs = authority.of("viewer", "v"), other.of("viewer", "w")
    async with serving(server.tls()) as served:
        assert await status(served, ours.access()) is STANDBY
        assert await status(served, ClientCredentials(TlsFiles(theirs.cert, theirs.key, ours.ca))) is AWAY
        assert (
            await status(served, ClientCredentials(TlsFiles("", "", ours.ca))) is AWAY
        )  # no certificate at all
        assert await status(served, plain()) is AWAY


async def test_a_server_that_is_not_the_authoritys_is_not_believed(
    authority: Authority, folder: Path
) -> None:
    ours = authority.of("operator", "o")
    other = Authority(folder, "other")
    impostor = other.issue("impostor")
    async with serving(TlsFiles(impostor.cert, impostor.key, ours.ca)) as served:
        assert await status(served, ours.access()) is AWAY
    named = authority.issue("named", dns="coordinator.holdfast")
    async with serving(named.tls()) as served:
        assert await status(served, ours.access(name="another.holdfast")) is AWAY
        assert await status(served, ours.access(name="coordinator.holdfast")) is STANDBY


async def test_an_expired_certificate_is_turned_away(authority: Authority, server: Files) -> None:
    late = authority.issue("late", "holdfast://c1/viewer/v", ends_in=-datetime.timedelta(hours=1))
    async with serving(server.tls()) as served:
        assert await status(served, late.access()) is AWAY


async def test_renewed_files_are_taken_without_a_restart(
    authority: Authority, server: Files, folder: Path
) -> None:
    client = authority.of("viewer", "v")
    async with serving(server.tls()) as served:
        assert await status(served, client.access()) is STANDBY
        successor = Authority(folder, "successor")
        fresh = successor.issue("fresh")
        shutil.copy(fresh.ca, server.ca)
        shutil.copy(fresh.key, server.key)
        # The renewal is half done: the former pair goes on, so that nobody is locked out.
        assert await status(served, client.access()) is AWAY  # the client's own view of the authority is new
        shutil.copy(fresh.cert, server.cert)
        renewed = successor.of("viewer", "v2")
        assert await status(served, renewed.access()) is STANDBY
        assert await status(served, ClientCredentials(TlsFiles(client.cert, client.key, renewed.ca))) is AWAY


def test_a_half_written_renewal_leaves_the_former_pair(authority: Authority, server: Files) -> None:
    files = server.tls()
    before = files.material()
    fresh = authority.issue("fresh")
    shutil.copy(fresh.key, server.key)
    assert files.material() == before
    shutil.copy(fresh.cert, server.cert)
    assert files.material() != before


async def test_an_open_stream_outlives_a_renewal(authority: Authority, server: Files, folder: Path) -> None:
    access = authority.of("viewer", "v").access()
    async with (
        serving(server.tls()) as served,
        access.channel(served.address, ()) as channel,
    ):
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert await watch.read() == b"\x08\x01"
        fresh = Authority(folder, "successor").issue("fresh")
        for old, new in zip((server.cert, server.key), (fresh.cert, fresh.key), strict=True):
            shutil.copy(new, old)
        ask = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await ask(b"", timeout=10) == b"\x08\x01"
        assert not watch.done()
        watch.cancel()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("version", "spoken"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)]
)
async def test_nothing_below_tls_1_2_is_spoken(
    authority: Authority, server: Files, version: ssl.TLSVersion, spoken: bool
) -> None:
    client = authority.of("viewer", "v")
    async with serving(server.tls()) as served:
        assert await asyncio.to_thread(_shakes_hands, served.server.port, client, version) is spoken


def _shakes_hands(port: int, client: Files, version: ssl.TLSVersion) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(client.ca)
    context.load_cert_chain(client.cert, client.key)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    try:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain_socket,
            context.wrap_socket(plain_socket, server_hostname="localhost"),
        ):
            return True
    except ssl.SSLError:
        return False


@pytest.mark.parametrize("listen", ["0.0.0.0:7070", "[::]:7070", "10.1.2.3:7070", "some-host:7070"])
def test_plaintext_for_others_must_be_asked_for_by_name(listen: str) -> None:
    with pytest.raises(SettingsError, match="--insecure"):
        check_coordinator(CoordinatorSettings(listen=listen))
    check_coordinator(CoordinatorSettings(listen=listen, insecure=True))
    with pytest.raises(SettingsError, match="with --private, give a loopback address"):
        check_coordinator(CoordinatorSettings(listen=listen, insecure=True, private=True))


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
def test_loopback_needs_no_flag(listen: str) -> None:
    check_coordinator(CoordinatorSettings(listen=listen))


def test_files_that_will_not_do_are_named(authority: Authority, server: Files, folder: Path) -> None:
    other = authority.issue("other")
    (folder / "text").write_text("no certificate")
    for files, told in (
        ((server.cert, "", server.ca), "--tls-key"),
        ((server.cert, str(folder / "none"), ""), "--tls-key .*cannot be read"),
        ((server.cert, other.key, ""), "do not fit together"),
        ((server.cert, server.key, str(folder / "text")), "--tls-ca .*holds no PEM"),
        (("", "", server.key), "--tls-ca .*holds no certificate"),
    ):
        with pytest.raises(SettingsError, match=told):
            TlsFiles(*files)
    with pytest.raises(SettingsError, match="callers are not authenticated"):
        check_coordinator(CoordinatorSettings(tls_cert="c", tls_key="k"))
    with pytest.raises(SettingsError, match="callers are not authenticated"):
        check_agent(AgentSettings(tls_cert="c", tls_key="k"))


async def test_no_call_goes_out_in_plaintext_unasked() -> None:
    with pytest.raises(SettingsError, match="--insecure"):
        plain().channel("10.0.0.1:7070", ())
    await ClientCredentials(TlsFiles(), insecure=True).channel("10.0.0.1:7070", ()).close()
