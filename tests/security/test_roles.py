"""Who may do what: the table of methods and roles, by certificate and by token, for all jobs or for some."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from controlplane.access.callers import Caller, CallerRole, Unauthenticated, from_certificate
from controlplane.access.client_credentials import ClientCredentials
from controlplane.access.roles import ADMIN, HEALTH, RULES
from controlplane.access.tls import TlsFiles
from controlplane.access.tokens import Tokens, read_token
from controlplane.core.records.model import JobSpec
from controlplane.core.rows import HealthRow
from controlplane.settings import SettingsError
from controlplane.wire import codec, control_pb2, peer_pb2
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import ControlStub
from tests.daemon.rig import until
from tests.security.authority import CLUSTER, token_line
from tests.security.serving import OPTIONS, asked, greeted, heard, serving

if TYPE_CHECKING:
    from tests.security.authority import Authority

CODES = grpc.StatusCode
STANDBY, DENIED, UNKNOWN = CODES.FAILED_PRECONDITION, CODES.PERMISSION_DENIED, CODES.UNAUTHENTICATED


def methods() -> list[str]:
    """Every method of every service of the wire."""
    return [
        f"/{service.full_name}/{method.name}"
        for file in (control_pb2, peer_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def admin() -> dict[str, Any]:
    """A request of each method of Admin, about job `mine` where it names one."""
    service = control_pb2.DESCRIPTOR.services_by_name["Admin"]
    made = {method.name: getattr(pb, method.input_type.name)() for method in service.methods}
    made["Submit"].spec.job = "mine"
    for request in made.values():
        if "job" in request.DESCRIPTOR.fields_by_name:
            request.job = "mine"
    return made


def hello(node: str, *jobs: str) -> pb.AgentMessage:
    message = pb.AgentMessage()
    message.hello.protocol_version, message.hello.cluster = codec.PROTOCOL_VERSION, CLUSTER
    message.hello.node, message.hello.incarnation, message.hello.launcher = node, 1, "l1"
    message.hello.address = "127.0.0.1"
    for job in jobs:
        message.hello.members.add(member=f"{job}.1", job=job, phase="running", role="rank")
    return message


async def sent_log(address: str, access: ClientCredentials) -> tuple[grpc.StatusCode, str]:
    """Send a log that nobody has asked for. Returns how that ended."""
    async with access.channel(address, OPTIONS) as channel:
        call = ControlStub(channel).SendLog(metadata=access.metadata())  # type: ignore[no-untyped-call]
        head = pb.LogHead(node="n1", job="mine", request="1-1")
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await call.write(pb.LogPart(head=head))
            await call
        return await call.code(), await call.details() or ""


async def told_time(address: str, access: ClientCredentials) -> tuple[grpc.StatusCode, str]:
    """Ask what the time is. Returns how that ended."""
    async with access.channel(address, OPTIONS) as channel:
        call = ControlStub(channel).Clock(pb.ClockRequest(), metadata=access.metadata())  # type: ignore[no-untyped-call]
        with contextlib.suppress(grpc.RpcError):
            await call
        return await call.code(), await call.details() or ""


def test_every_method_stands_in_the_table() -> None:
    health = {f"/{HEALTH}/Check", f"/{HEALTH}/Watch"}
    assert set(RULES) == set(methods()) | health
    assert {method for method, rule in RULES.items() if rule.public} == health


async def test_each_role_may_do_what_the_table_says_and_nothing_else(authority: Authority) -> None:
    server = authority.issue("server")
    async with serving(server.tls()) as served:
        for role in CallerRole:
            access = authority.of(role, "n1").access()
            for name, request in admin().items():
                code, said = await asked(served.address, name, request, access)
                allowed = role in RULES[f"/holdfast.control.v1.Admin/{name}"].roles
                assert (code not in (DENIED, UNKNOWN)) is allowed, (role, name, code, said)
                assert allowed or (code is DENIED and "operator" in said and name in said)
            kind, said = await greeted(served.address, hello("n1"), access)
            assert kind == "refused" if role is CallerRole.AGENT else kind is DENIED, said
            code, said = await heard(functools.partial(sent_log, served.address, access))
            assert code is (CODES.NOT_FOUND if role is CallerRole.AGENT else DENIED), said
            code, said = await heard(functools.partial(told_time, served.address, access))
            assert code is (CODES.OK if role is CallerRole.AGENT else DENIED), said
        here = [rule for method, rule in RULES.items() if ".control." in method]
        refused = sum(role not in rule.roles for role in CallerRole for rule in here)
        assert served.dropped("denied") >= refused, "one that the client has not heard of is asked for again"


async def test_an_agent_of_many_nodes_speaks_for_those_only(authority: Authority) -> None:
    """Pods that share a secret: their certificate names what their names begin with."""
    async with serving(authority.issue("server").tls(), leads=True) as served:
        pods = authority.issue("pods", f"holdfast://{CLUSTER}/agent/train-nodes-*?job=train").access()
        every = authority.issue("every", f"holdfast://{CLUSTER}/agent/*").access()
        assert (await greeted(served.address, hello("train-nodes-0-abcde"), pods))[0] == "welcome"
        kind, said = await greeted(served.address, hello("eval-nodes-0-abcde"), pods)
        assert kind == "refused" and "may not speak for node 'eval-nodes-0-abcde'" in said
        assert (await greeted(served.address, hello("train-nodes-1", "eval"), pods))[0] == "refused"
        assert served.front.leader_term is not None
        known = served.front.leader_term.core.state.nodes
        assert known["train-nodes-0-abcde"].jobs == ("train",), "no other job is placed there"
        wants = hello("train-nodes-1")
        wants.hello.jobs.append("eval")
        kind, said = await greeted(served.address, wants, pods)
        assert kind == "refused" and "take it out of --jobs" in said
        assert (await greeted(served.address, hello("eval-nodes-0-abcde"), every))[0] == "welcome"


@pytest.mark.parametrize(
    "path", ["agent/", "agent/a*b", "agent/**", "operator/a*", "operator/*", "viewer/v*", "agent/-*"]
)
def test_only_an_agents_name_may_end_in_an_asterisk(path: str) -> None:
    with pytest.raises(Unauthenticated, match="is invalid"):
        from_certificate(CLUSTER, {"peer_uri": [f"holdfast://{CLUSTER}/{path}".encode()]})


async def test_an_agent_speaks_for_its_own_node_only(authority: Authority) -> None:
    async with serving(authority.issue("server").tls(), leads=True) as served:
        access = authority.of("agent", "n1").access()
        kind, said = await greeted(served.address, hello("n2"), access)
        assert kind == "refused" and "agent n1 may not speak for node 'n2'" in said
        assert served.dropped("denied") == 1
        assert (await greeted(served.address, hello("n1"), access))[0] == "welcome"
        assert served.front.leader_term is not None and [
            row.node for row in served.front.leader_term.status("").nodes
        ] == ["n1"]


async def test_an_agent_of_some_jobs_is_not_heard_about_others(authority: Authority) -> None:
    async with serving(authority.issue("server").tls(), leads=True) as served:
        access = authority.of("agent", "n1", jobs=("mine",)).access()
        kind, said = await greeted(served.address, hello("n1", "mine", "other"), access)
        assert kind == "refused" and "other" in said
        assert (await greeted(served.address, hello("n1", "mine"), access))[0] == "welcome"


async def test_a_caller_of_some_jobs_touches_no_others(authority: Authority) -> None:
    async with serving(authority.issue("server").tls(), leads=True) as served:
        everything = authority.of("operator", "root").access()
        for job in ("mine", "other"):
            spec = codec.spec_message(JobSpec(job, ("train.py",), "/"))
            code, said = await asked(served.address, "Submit", pb.SubmitRequest(spec=spec), everything)
            assert code is CODES.OK, said
        access = authority.of("operator", "o", jobs=("mine",)).access()
        other = pb.JobSpec(job="other")
        for name, request in (
            ("Submit", pb.SubmitRequest(spec=other)),
            ("Stop", pb.StopRequest(job="other")),
            ("Adopt", pb.AdoptRequest(job="other")),
            ("Events", pb.EventsRequest()),
            ("Drain", pb.DrainRequest(node="n1")),
        ):
            code, said = await asked(served.address, name, request, access)
            assert code is DENIED and "for mine only" in said, (name, code, said)
        _, told = await asked(served.address, "Status", pb.StatusRequest(), access)
        assert "mine" in told and "other" not in told
        _, told = await asked(served.address, "Events", pb.EventsRequest(job="mine"), access)
        assert "mine" in told and "other" not in told
        assert (await asked(served.address, "Stop", pb.StopRequest(job="mine"), access))[0] is CODES.OK


def test_why_another_job_is_not_well_is_told_to_its_own_only() -> None:
    found = HealthRow("degraded", ("mine: waits", "other: waits", "n1 is lost"), ("mine", "other", ""))
    reply = codec.status_message(CLUSTER, 1, "here:7070", {"health": found})
    trim = RULES[f"/{ADMIN}/Status"].trim
    assert trim is not None
    trim(reply, ("mine",))
    assert list(reply.health.reasons) == ["mine: waits", "n1 is lost"]
    assert list(reply.health.jobs) == ["mine", ""]


@pytest.mark.parametrize(
    ("uris", "unit", "told"),
    [
        ((), "", "has no holdfast:// URI"),
        ((), "king", "has no holdfast:// URI"),
        (("holdfast://another/operator/o",), "", "is of cluster 'another'"),
        (("holdfast://c1/king/o",), "", "'king' is not a role"),
        (("holdfast://c1/operator",), "", "does not name a role and a name"),
        (("holdfast://c1/operator/o/more",), "", "does not name a role and a name"),
        (("holdfast://c1/operator/o?jobs=a",), "", "has a query that names no job"),
        (("holdfast://c1/operator/o#",), "", "a '#' or another character"),
        (("holdfast://c1/operator/o#?job=mine",), "", "a '#' or another character"),
        (("holdfast://c1/operator/..%2f",), "", "is invalid"),
        (("holdfast://c1/operator/o", "holdfast://c1/agent/o"), "", "names 2 holdfast:// URIs"),
        (("holdfast://c1/viewer/o",), "operator", "viewer o may not Submit"),
    ],
)
async def test_a_certificate_that_says_nothing_of_ours_is_nobody(
    authority: Authority, uris: tuple[str, ...], unit: str, told: str
) -> None:
    access = authority.issue("client", *uris, unit=unit).access()
    async with serving(authority.issue("server").tls()) as served:
        code, said = await asked(served.address, "Submit", admin()["Submit"], access)
        assert code in (UNKNOWN, DENIED) and told in said


@pytest.mark.parametrize(
    "query", ["?", "?job=", "?job", "?job=&job=", "?job=mine&job=", "?&", "?job=mine&&", "?\t"]
)
async def test_an_empty_list_of_jobs_opens_nothing(authority: Authority, query: str) -> None:
    """An unset variable in a template: the certificate was meant for some jobs."""
    access = authority.issue("client", f"holdfast://{CLUSTER}/operator/o{query}").access()
    async with serving(authority.issue("server").tls()) as served:
        for name, request in admin().items():
            code, said = await asked(served.address, name, request, access)
            assert code is UNKNOWN and "operator/o" in said and "?job=NAME" in said, (name, code, said)


async def test_a_subject_is_taken_only_where_the_authority_is_this_clusters_alone(
    authority: Authority,
) -> None:
    """OU=operator is what many an organisation writes into certificates that mean something else."""
    access = authority.issue("client", unit="operator", common="alice").access()
    server, stop = authority.issue("server").tls(), admin()["Stop"]
    async with serving(server) as served:
        code, said = await asked(served.address, "Stop", stop, access)
        assert code is UNKNOWN and "holdfast://c1/ROLE/NAME" in said and "--tls-own-authority" in said
        kind, said = await greeted(served.address, hello("alice"), access)
        assert kind is UNKNOWN
    async with serving(server, subjects=True) as served:
        assert (await asked(served.address, "Stop", stop, access))[0] is STANDBY
        mine = authority.of("viewer", "v").access()
        assert (await asked(served.address, "Stop", stop, mine))[0] is DENIED, (
            "a URI says it where there is one"
        )


@pytest.mark.parametrize(
    "subject", [b"OU=viewer,OU=operator,CN=o", b"OU=operator+CN=o", b"CN=o\\,OU=operator", b"CN=x"]
)
def test_a_subject_that_says_two_things_says_none(subject: bytes) -> None:
    with pytest.raises(Unauthenticated):
        from_certificate(CLUSTER, {"x509_subject": [subject], "x509_common_name": [b"o"]}, subjects=True)


async def test_tokens_open_what_their_line_says(folder: Path) -> None:
    (viewer, first), (operator, second) = token_line("viewer", "v"), token_line("operator", "o", "mine")
    lines = folder / "tokens"
    lines.write_text(f"# callers\n\n{first}\n{second}\n")
    async with serving(tokens=Tokens(str(lines))) as served:

        async def call(token: str, name: str) -> grpc.StatusCode:
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            return (await asked(served.address, name, admin()[name], metadata=metadata))[0]

        assert await call(viewer, "Status") is STANDBY
        assert await call(viewer, "Submit") is DENIED
        assert await call(operator, "Submit") is STANDBY
        assert await call("", "Status") is UNKNOWN
        assert await call(viewer[:-1], "Status") is UNKNOWN
        assert await call("", "Submit") is UNKNOWN
        assert served.dropped("unauthenticated") == 3 and served.dropped("denied") == 1
        told = "".join(line.text for line in served.front.journal.lines())
        assert "no token was sent" in told and viewer[:-1] not in told
        lines.write_text(f"{second} \n")  # the viewer's line is gone: it is shut out at once
        assert await call(viewer, "Status") is UNKNOWN
        lines.write_text("nonsense")  # a file that will not do shuts nobody out, and lets nobody in
        assert await call(operator, "Submit") is STANDBY
        assert await call(viewer, "Status") is UNKNOWN


async def test_a_token_that_is_shown_decides_beside_a_certificate(authority: Authority, folder: Path) -> None:
    token, line = token_line("operator", "o")
    (folder / "tokens").write_text(line)
    (folder / "mine").write_text(token + "\n")
    viewer = authority.of("viewer", "v")
    async with serving(authority.issue("server").tls(), Tokens(str(folder / "tokens"))) as served:
        assert (await asked(served.address, "Stop", admin()["Stop"], viewer.access()))[0] is DENIED
        both = viewer.access(token_file=str(folder / "mine"))
        assert (await asked(served.address, "Stop", admin()["Stop"], both))[0] is STANDBY
        (folder / "mine").write_text("x" * 40)
        assert (await asked(served.address, "Status", admin()["Status"], both))[0] is UNKNOWN
    async with serving(authority.issue("server").tls()) as served:  # takes no tokens: none is passed over
        assert (await asked(served.address, "Status", admin()["Status"], both))[0] is UNKNOWN


async def test_tls_with_tokens_asks_for_no_certificate(authority: Authority, folder: Path) -> None:
    token, line = token_line("operator", "o")
    (folder / "tokens").write_text(line)
    (folder / "mine").write_text(token)
    server = authority.issue("server")
    async with serving(TlsFiles(server.cert, server.key), Tokens(str(folder / "tokens"))) as served:
        access = ClientCredentials(TlsFiles("", "", server.ca), str(folder / "mine"))
        assert (await asked(served.address, "Stop", admin()["Stop"], access))[0] is STANDBY
        access = ClientCredentials(TlsFiles("", "", server.ca))
        assert (await asked(served.address, "Stop", admin()["Stop"], access))[0] is UNKNOWN


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("operator o", "line 1: give ROLE NAME"),
        ("operator o sha256:12", "line 1: give ROLE NAME"),
        ("# x\nking o sha256:" + "0" * 64, "line 2: 'king' is not a role"),
        ("agent ../x sha256:" + "0" * 64, "line 1: the name"),
        ("viewer v sha256:" + "0" * 64 + " a,,b", "line 1: the job ''"),
        ("viewer v sha256:" + "0" * 64 + " ", "line 1 ends in a space where its jobs should be"),
        ("viewer v sha256:" + "0" * 64 + " ,", "line 1: the job ''"),
    ],
)
def test_a_line_of_tokens_that_will_not_do_is_named(folder: Path, text: str, told: str) -> None:
    (folder / "tokens").write_text(text)
    with pytest.raises(SettingsError, match=told):
        Tokens(str(folder / "tokens"))


def test_a_token_that_could_be_guessed_is_not_sent(folder: Path) -> None:
    for text in ("short", "with a space in the midst of it", ""):
        (folder / "token").write_text(text)
        with pytest.raises(SettingsError, match="token_urlsafe"):
            read_token(str(folder / "token"))


async def test_denials_are_all_counted_and_seldom_told(authority: Authority) -> None:
    access = authority.of("viewer", "v").access()
    async with (
        serving(authority.issue("server").tls()) as served,
        access.channel(served.address, ()) as channel,
    ):
        stop = channel.unary_unary("/holdfast.control.v1.Admin/Stop")
        for _ in range(200):
            with pytest.raises(grpc.aio.AioRpcError):
                await stop(b"", timeout=10)
        assert served.dropped("denied") == 200
        await until(served.front.journal.lines)
        assert len(served.front.journal.lines()) < 100


def test_nobody_is_asked_on_a_port_that_asks_nobody() -> None:
    assert Caller(None, "x").may_be("n1")
    assert not Caller(CallerRole.OPERATOR, "n1").may_be("n1")
    assert Caller(CallerRole.AGENT, "n1").may_be("n1")


def test_every_command_that_asks_a_coordinator_shows_its_credentials() -> None:
    cli = Path(__file__).parents[2] / "controlplane" / "cli"
    calls = [
        line
        for file in cli.rglob("*.py")
        for line in file.read_text().splitlines()
        if " AdminClient(" in line
    ]
    assert len(calls) > 5 and [line for line in calls if "access=" not in line] == []
