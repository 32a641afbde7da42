"""Callers on the deny list are shut out at every port, at once, and their streams end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from cryptography import x509

from controlplane.access.callers import Caller, CallerRole
from controlplane.access.denials import DenyList
from controlplane.access.tokens import Tokens
from controlplane.settings import (
    AgentSettings,
    CoordinatorSettings,
    SettingsError,
    check_agent,
    check_coordinator,
)
from controlplane.wire import control_pb2 as pb
from controlplane.wire import peer_pb2
from tests.agent.peering import Side
from tests.daemon.rig import Coordinator, until
from tests.page.visiting import paged
from tests.security.authority import CLUSTER, token_line
from tests.security.serving import OPTIONS, asked, greeted, serving
from tests.security.test_agents import agent
from tests.security.test_open_streams import ended, following, linked, shows
from tests.security.test_roles import hello

if TYPE_CHECKING:
    from controlplane.daemon.etcd.server import PrivateEtcd
    from tests.security.authority import Authority, Files

OK, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


def serial(files: Files) -> str:
    return f"{x509.load_pem_x509_certificate(Path(files.cert).read_bytes()).serial_number:X}"


async def test_who_is_on_the_deny_list_is_shut_out(authority: Authority, folder: Path) -> None:
    file = folder / "denied"
    file.write_text("# nobody yet\n")
    lost, good = authority.of("viewer", "v"), authority.issue("again", f"holdfast://{CLUSTER}/viewer/v")
    n1, n2 = (authority.of("agent", name).access() for name in ("n1", "n2"))
    tls = authority.issue("server").tls()
    async with (
        serving(tls, leads=True, deny=DenyList(str(file))) as served,
        following(served.address, lost.access()) as laptop,
        following(served.address, good.access()) as other,
        linked(served.address, "n1", n1) as link,
        linked(served.address, "n2", n2) as stays,
    ):
        file.write_text(f"serial {serial(lost)}  # a laptop that was lost\ncaller agent/n1\n")
        for call, name in ((laptop, "viewer v"), (link, "agent n1")):
            code, said = await ended(call)
            assert code is UNKNOWN and name in said and "deny list" in said
        assert not other.done() and not stays.done()
        code, said = await asked(served.address, "Status", pb.StatusRequest(), lost.access())
        assert code is UNKNOWN and "deny list" in said
        assert (await asked(served.address, "Status", pb.StatusRequest(), good.access()))[0] is OK
        assert (await greeted(served.address, hello("n1"), n1))[0] is UNKNOWN
        file.write_text("caller n1")  # what will not do changes nothing
        assert (await greeted(served.address, hello("n1"), n1))[0] is UNKNOWN
        file.unlink()
        assert (await greeted(served.address, hello("n1"), n1))[0] is UNKNOWN
        file.write_text("")
        assert (await greeted(served.address, hello("n1"), n1))[0] == "welcome"


async def test_who_is_on_the_deny_list_has_no_use_of_a_token(folder: Path) -> None:
    file, (token, line) = folder / "denied", token_line("operator", "o")
    file.write_text("")
    (folder / "tokens").write_text(line)
    tokens, deny = Tokens(str(folder / "tokens")), DenyList(str(file))
    async with (
        serving(tokens=tokens, deny=deny, leads=True) as served,
        paged(tokens, deny=deny) as found,
        following(served.address, metadata=shows(token)) as call,
    ):
        assert (await found.visitor.log_in(token)).status == 200
        async with found.visitor.live() as stream:
            file.write_text("caller operator/*")
            assert "deny list" in (await ended(call))[1]
            while (await stream.event())[0] != "over":
                pass
        assert (await found.visitor.get("/api/state")).status == 401
        refused = await found.visitor.post("/api/login", {"token": token})
        assert refused.status == 403 and "deny list" in refused.json()["error"]


async def test_an_agent_on_the_deny_list_gets_and_leaves_no_copies(
    folder: Path, authority: Authority
) -> None:
    file, lost = folder / "denied", authority.of("agent", "n1")
    file.write_text("")
    mine = authority.of("agent", "n2").settings()
    async with (
        Side(folder, "b", **mine, cluster=CLUSTER, peer_timeout_s=60.0, deny_list=str(file)) as partner,
        lost.access().channel(partner.peers.address, OPTIONS) as channel,
    ):
        put = channel.stream_stream("/holdfast.peer.v1.Peer/Put")()
        have = channel.unary_unary("/holdfast.peer.v1.Peer/Have")
        await have(peer_pb2.HaveRequest().SerializeToString(), timeout=10)
        file.write_text(f"serial {serial(lost)}")
        code, said = await ended(put)
        assert code is UNKNOWN and "agent n1" in said and "deny list" in said
        with pytest.raises(grpc.aio.AioRpcError, match="deny list"):
            await have(peer_pb2.HaveRequest().SerializeToString(), timeout=10)


async def test_an_agent_whose_key_was_lost_comes_again_with_another(
    folder: Path, authority: Authority, etcd_server: PrivateEtcd
) -> None:
    """Real daemons: the certificate is shut out, then its files are replaced; nothing is restarted."""
    file, cluster = folder / "denied", f"{CLUSTER}-e2e"
    file.write_text("")
    files = authority.issue("server").settings()
    coordinator = Coordinator(folder, etcd_server.endpoint, cluster, deny_list=str(file), **files)
    uri = f"holdfast://{cluster}/agent/n1"
    lost = authority.issue("n1", uri)
    node = agent(folder, "n1", await coordinator.start(), lost)
    try:
        log = folder / "n1.log"
        await until(lambda: log.read_text().count("connected to the coordinator of leader term") == 1)
        file.write_text(f"serial {serial(lost)}")
        await until(lambda: "agent n1 is on the deny list" in log.read_text())
        assert "agent n1 is on the deny list" in coordinator.log()
        authority.issue("n1", uri)
        await until(lambda: log.read_text().count("connected to the coordinator of leader term") == 2)
        assert node.poll() is None
    finally:
        node.terminate()
        node.wait(20)
        coordinator.end()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("serial", "give `serial HEX` or"),
        ("serial xyz", "is not a serial number"),
        ("serial 1 2", "give `serial HEX` or"),
        ("# x\noperator/o", "line 2: give `serial HEX` or"),
        ("caller o", "is not a caller"),
        ("caller king/o", "is not a caller"),
        ("caller operator/", "is not a caller"),
        ("caller operator/a*b", "is not a caller"),
    ],
)
def test_a_line_of_the_deny_list_that_will_not_do_is_named(folder: Path, line: str, told: str) -> None:
    (folder / "denied").write_text(line)
    with pytest.raises(SettingsError, match=told):
        DenyList(str(folder / "denied"))


def test_a_deny_list_is_read_as_it_is_written(folder: Path) -> None:
    (folder / "denied").write_text(
        "serial 0A:ff\nserial 00BEEF # x\nserial serial=C0DE\ncaller agent/pods-*\n"
    )
    found, nobody = DenyList(str(folder / "denied")), Caller(CallerRole.VIEWER, "pods-1")
    assert all(found.why(nobody, number) for number in (0x0AFF, 0xBEEF, 0xC0DE))
    assert not found.why(nobody, -1) and not found.why(nobody, 0x0A)
    assert found.why(Caller(CallerRole.AGENT, "pods-1"), -1) and found.why(
        Caller(CallerRole.AGENT, "pods-*"), -1
    )
    assert not found.why(Caller(CallerRole.AGENT, "pod"), -1)


def test_a_deny_list_where_nobody_is_asked_is_refused() -> None:
    asks: dict[str, Any] = {"tls_cert": "c", "tls_key": "k", "tls_ca": "a"}
    with pytest.raises(SettingsError, match="has no effect where callers are not authenticated"):
        check_coordinator(CoordinatorSettings(deny_list="x"))
    with pytest.raises(SettingsError, match="has no effect where callers are not authenticated"):
        check_agent(AgentSettings(deny_list="x"))
    check_coordinator(CoordinatorSettings(deny_list="x", **asks))
    check_coordinator(CoordinatorSettings(deny_list="x", tokens="t"))
    check_agent(AgentSettings(deny_list="x", **asks))
