"""What may stand at an endpoint: nothing, something else, a wrong certificate, a login, a bad version."""

from __future__ import annotations

import asyncio
import http.server
import logging
import os
import re
import signal
import socket
import subprocess
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from controlplane.daemon.etcd.binary import binary_at, wheel_path
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.errors import (
    EtcdAuth,
    EtcdError,
    EtcdNotEtcd,
    EtcdRefused,
    EtcdUnavailable,
    EtcdVersion,
)
from controlplane.daemon.etcd.rows import Put, absent
from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.daemon.etcd.target import EtcdTarget
from controlplane.settings import EtcdSettings, SettingsError
from tests.daemon.etcd_fixtures import b64, client_of, first, folder, gateway, until
from tests.daemon.etcd_members import Member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.rows import EtcdRow


@contextmanager
def web_server() -> Iterator[str]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def silent_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def closed_port() -> Iterator[str]:
    with silent_server() as endpoint:
        pass
    yield endpoint


@asynccontextmanager
async def other_grpc_server() -> AsyncIterator[str]:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


async def trouble(endpoint: str, kind: type[EtcdError], words: str) -> None:
    """A read and a watch both say of the endpoint what is wrong with it."""
    async with client_of(endpoint, timeout_s=0.4) as etcd:
        with pytest.raises(kind, match=f"{endpoint}.*{words}"):
            await etcd.get("x")
        with pytest.raises(kind, match=f"{endpoint}.*{words}"):
            await etcd.check()


async def test_nothing_listens() -> None:
    with closed_port() as endpoint:
        await trouble(endpoint, EtcdUnavailable, "cannot be reached, nothing listens there: is etcd running?")


async def test_an_unknown_host() -> None:
    await trouble("no-such-host.invalid:2379", EtcdUnavailable, "its name has no address")


async def test_a_web_server_is_not_etcd() -> None:
    with web_server() as endpoint:
        await trouble(endpoint, EtcdNotEtcd, "does not speak etcd's API: is the port right?")


async def test_another_grpc_server_is_not_etcd() -> None:
    async with other_grpc_server() as endpoint:
        await trouble(endpoint, EtcdNotEtcd, "does not speak etcd's API: is the port right?")
        async with client_of(endpoint) as etcd, etcd.watch("x", 1) as updates:
            with pytest.raises(EtcdNotEtcd, match=endpoint):
                await first(anext(updates))


async def test_a_port_that_says_nothing() -> None:
    with silent_server() as endpoint:
        await trouble(
            endpoint, EtcdUnavailable, "did not answer|sends nothing: it is not etcd, or is stopped"
        )


async def test_a_good_endpoint_among_bad_ones_serves(etcd_server: PrivateEtcd, keys: Keyspace) -> None:
    with closed_port() as closed, web_server() as web:
        async with client_of(web, closed, etcd_server.endpoint) as etcd:
            assert (await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])).succeeded
            async with etcd.watch(keys.prefix) as updates:
                await first(anext(updates))
            assert re.fullmatch(r"3\.\d+\.\d+", await etcd.check())


@pytest.mark.parametrize(("starts", "older"), [(1, r"revision 1 after \d+"), (2, "raft term 2 after 3")])
async def test_an_etcd_that_forgot_is_not_believed(keys: Keyspace, starts: int, older: str) -> None:
    """Its data wiped, it comes back with the raft term of its first start."""
    async with folder() as old, folder() as new:
        server = PrivateEtcd(old)
        await server.start()
        for _ in range(starts - 1):
            os.kill(server.pid, signal.SIGKILL)
            await until(lambda: not server.alive, "etcd is dead")
            await server.start()
        async with client_of(server.endpoint, timeout_s=1.0) as etcd:
            assert (await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])).succeeded
            await server.stop()
            async with PrivateEtcd(new, server.port):
                words = rf"answers from the past \({older}\).* restart the coordinators"
                with pytest.raises(EtcdUnavailable, match=words):
                    await etcd.get(keys.meta)


def certificates(path: Path) -> None:
    """ca.pem; server.pem for 127.0.0.1 and client.pem, both signed by it; other.pem, signed by itself."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name, more in {
        "ca": ["-addext", "basicConstraints=critical,CA:TRUE"],
        "other": ["-addext", "basicConstraints=critical,CA:TRUE"],
        "server": ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1",
                   "-addext", "basicConstraints=CA:FALSE"],
        "client": ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE"],
    }.items():  # fmt: skip
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}"]
        subprocess.run([*new, *files, *more], cwd=path, check=True, capture_output=True)


async def test_tls_with_client_certificates(keys: Keyspace) -> None:
    async with folder() as path, folder() as data:
        await asyncio.to_thread(certificates, path)
        flags = {"--cert-file": "server.pem", "--key-file": "server.key", "--trusted-ca-file": "ca.pem"}
        extra = [part for flag, name in flags.items() for part in (flag, str(path / name))]
        ca, other = str(path / "ca.pem"), str(path / "other.pem")
        cert, key = str(path / "client.pem"), str(path / "client.key")
        async with Member(data, flags=[*extra, "--client-cert-auth"], scheme="https") as server:
            async with Etcd(EtcdTarget((server.endpoint,), ca, cert, key)) as etcd:
                assert (await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])).succeeded
                async with etcd.watch(keys.prefix) as updates:
                    await first(anext(updates))
                lease = await etcd.grant(5)
                assert (await etcd.keepalive(lease.id)).ttl_s == 5
            for target, kind, words in (
                (EtcdTarget((server.endpoint,), other, cert, key), EtcdAuth, "not signed by --etcd-ca"),
                (EtcdTarget((server.endpoint,), ca), EtcdUnavailable, "closes connections"),
                (EtcdTarget((server.endpoint,)), EtcdUnavailable, "does it require TLS"),
            ):
                async with Etcd(target, timeout_s=0.4) as etcd:
                    with pytest.raises(kind, match=words):
                        await etcd.get("x")


async def test_renewed_certificates_are_taken_when_etcd_comes_back(keys: Keyspace) -> None:
    """Another authority altogether: what was read at the start would be turned away for ever."""
    async with folder() as path, folder() as data:
        await asyncio.to_thread(certificates, path)
        flags = {"--cert-file": "server.pem", "--key-file": "server.key", "--trusted-ca-file": "ca.pem"}
        extra = [part for flag, name in flags.items() for part in (flag, str(path / name))]
        ca, cert, key = (str(path / name) for name in ("ca.pem", "client.pem", "client.key"))
        async with Member(data, flags=[*extra, "--client-cert-auth"], scheme="https") as server:
            async with Etcd(EtcdTarget((server.endpoint,), ca, cert, key), timeout_s=5.0) as etcd:
                assert (await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])).succeeded
                async with etcd.watch(keys.prefix) as updates:
                    await first(anext(updates))
                    await asyncio.to_thread(certificates, path)
                    assert await etcd.get(keys.meta) is not None  # the connection that stands goes on
                    server.kill()
                    server.start()
                    row = await until_answered(etcd, keys.meta)
                    assert row.value == b"1"
                    assert (await etcd.txn([absent(keys.config)], [Put(keys.config, b"2")])).succeeded
                    seen = await first(anext(updates))
                    assert keys.config in str(seen)


@pytest.mark.parametrize("half", ["", "server.key"])
async def test_certificates_that_are_just_being_renewed_end_nothing(keys: Keyspace, half: str) -> None:
    """A key that is away for a moment, or does not fit yet: the former one goes on meanwhile."""
    async with folder() as path, folder() as data:
        await asyncio.to_thread(certificates, path)
        other = (path / half).read_bytes() if half else b""
        flags = {"--cert-file": "server.pem", "--key-file": "server.key", "--trusted-ca-file": "ca.pem"}
        extra = [part for flag, name in flags.items() for part in (flag, str(path / name))]
        ca, cert, key = (str(path / name) for name in ("ca.pem", "client.pem", "client.key"))
        async with Member(data, flags=[*extra, "--client-cert-auth"], scheme="https") as server:
            async with Etcd(EtcdTarget((server.endpoint,), ca, cert, key), timeout_s=3.0) as etcd:
                await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])
                server.kill()
                put(path / "client.key", other)
                with pytest.raises(EtcdUnavailable):
                    await etcd.get(keys.meta)
                server.start()
                assert (await until_answered(etcd, keys.meta)).value == b"1"


def put(path: Path, content: bytes) -> None:
    """A file of this content; none, when it is empty."""
    path.unlink()
    if content:
        path.write_bytes(content)


async def until_answered(etcd: Etcd, key: str) -> EtcdRow:
    """The row, as soon as etcd answers again."""
    async with asyncio.timeout(30):
        while True:
            with suppress(EtcdUnavailable, EtcdAuth):
                row = await etcd.get(key)
                assert row is not None
                return row


def test_a_certificate_file_that_holds_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    with pytest.raises(SettingsError, match=r"--etcd-ca .*ca\.pem holds no PEM"):
        Etcd(EtcdTarget(("127.0.0.1:1",), str(tmp_path / "ca.pem")))


async def test_tls_to_an_etcd_without(etcd_server: PrivateEtcd) -> None:
    async with folder() as path:
        await asyncio.to_thread(certificates, path)
        async with Etcd(EtcdTarget((etcd_server.endpoint,), str(path / "ca.pem")), timeout_s=1.0) as etcd:
            with pytest.raises((EtcdNotEtcd, EtcdUnavailable), match=r"has no TLS.* leave --etcd-ca out"):
                await etcd.get("x")


@asynccontextmanager
async def with_users(server: PrivateEtcd) -> AsyncIterator[None]:
    """Logins on: root/secret may everything, guest/guest may nothing."""
    for name, password in (("root", "secret"), ("guest", "guest")):
        await gateway(server.endpoint, "auth/user/add", name=name, password=password)
    await gateway(server.endpoint, "auth/role/add", name="root")
    await gateway(server.endpoint, "auth/user/grant", user="root", role="root")
    await gateway(server.endpoint, "auth/enable")
    yield


async def test_user_and_password(own_server: PrivateEtcd, keys: Keyspace) -> None:
    def etcd_as(user: str, password: str) -> Etcd:
        return Etcd(
            EtcdTarget((own_server.endpoint,), user=user, password=password, private=True), timeout_s=2
        )

    async with with_users(own_server), etcd_as("root", "secret") as etcd:
        assert (await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])).succeeded
        async with etcd.watch(keys.prefix) as updates:
            await first(anext(updates))
            os.kill(own_server.pid, signal.SIGKILL)  # its simple tokens are gone with it
            await until(lambda: not own_server.alive, "etcd is dead")
            own = asyncio.create_task(anext(updates))
            await own_server.start()
            assert (await etcd.txn([absent(keys.config)], [Put(keys.config, b"1")])).succeeded
            await first(own)
        async with etcd_as("root", "wrong") as wrong:
            with pytest.raises(EtcdAuth, match="does not accept this user and password"):
                await wrong.get(keys.meta)
        async with etcd_as("", "") as nobody:
            with pytest.raises(EtcdAuth, match="requires a login: give --etcd-user"):
                await nobody.get(keys.meta)
        async with etcd_as("guest", "guest") as guest:
            with pytest.raises(EtcdAuth, match="readwrite on /holdfast/v1/"):
                await guest.txn([absent(keys.node("a"))], [Put(keys.node("a"), b"1")])
            async with guest.watch(keys.prefix, 1) as updates:
                with pytest.raises(EtcdAuth, match="readwrite on /holdfast/v1/"):
                    await first(anext(updates))


async def test_a_login_where_none_is_asked(
    etcd_server: PrivateEtcd, keys: Keyspace, caplog: pytest.LogCaptureFixture
) -> None:
    async with Etcd(EtcdTarget((etcd_server.endpoint,), user="me", password="x")) as etcd:
        assert await etcd.get(keys.meta) is None
    assert "asks for no login: --etcd-user is not used" in caplog.text


async def test_a_version_that_loses_writes_is_only_good_for_a_laptop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with folder() as data, PrivateEtcd(data, binary=binary_at(wheel_path())) as server:
        async with Etcd(EtcdTarget((server.endpoint,))) as etcd:
            with pytest.raises(EtcdVersion, match=f"{server.endpoint} is 3.5.1.*upgrade it to 3.5.3") as said:
                await etcd.check()
        assert "`pip install 'holdfast[local]'`" in str(said.value) and "--etcd-private" in str(said.value)
        with caplog.at_level(logging.WARNING):
            async with Etcd(server.target) as etcd:
                assert await etcd.check() == "3.5.1"
    assert "good enough for a laptop" in caplog.text


async def test_a_full_etcd_says_what_to_do(own_server: PrivateEtcd, keys: Keyspace) -> None:
    await gateway(own_server.endpoint, "kv/put", key=b64("x"), value=b64("1"))
    await gateway(own_server.endpoint, "maintenance/alarm", action="ACTIVATE", alarm="NOSPACE", memberID="0")
    members = await gateway(own_server.endpoint, "cluster/member/list")
    member = members["members"][0]["ID"]
    await gateway(
        own_server.endpoint, "maintenance/alarm", action="ACTIVATE", alarm="NOSPACE", memberID=member
    )
    async with client_of(own_server.endpoint) as etcd:
        with pytest.raises(EtcdRefused, match="is full: compact and defragment it"):
            await etcd.txn([absent(keys.meta)], [Put(keys.meta, b"1")])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (EtcdSettings(etcd=" , "), "--etcd names no endpoint"),
        (EtcdSettings(etcd="localhost"), "--etcd 'localhost' is not an address: give host:port"),
        (EtcdSettings(etcd="h:0"), "'h:0' is not an address"),
        (EtcdSettings(etcd_ca="a", etcd_cert="b"), "--etcd-cert and --etcd-key belong together"),
        (EtcdSettings(etcd_cert="b", etcd_key="c"), "--etcd-cert needs --etcd-ca"),
        (EtcdSettings(etcd_user="me"), "--etcd-user and --etcd-password-file go together"),
        (EtcdSettings(etcd_ca="/no/such.pem"), "--etcd-ca /no/such.pem cannot be read: No such file"),
        (EtcdSettings(etcd_user="me", etcd_password_file="/no/such"), "--etcd-password-file /no/such cannot"),
    ],
)
def test_settings_that_cannot_be(settings: EtcdSettings, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        EtcdTarget.of(settings)


def test_endpoints_are_taken_as_people_write_them() -> None:
    assert EtcdTarget.of(EtcdSettings(etcd="http://a:1/, b:2")).endpoints == ("a:1", "b:2")
