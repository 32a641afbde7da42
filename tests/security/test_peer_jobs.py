"""What the peer port does for a caller who may speak for some jobs only, message by message: real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from agent.links import checking
from agent.links.prober import OCCUPIED
from agent.peers import wire
from agent.peers.blocks import PeerError
from agent.peers.offer import newest
from controlplane.access.client_credentials import plain
from controlplane.core.records.model import PeerAddress
from controlplane.wire import peer_pb2 as pb
from tests.agent.peering import JOB, Side, values
from tests.security.authority import CLUSTER
from tests.security.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.access.client_credentials import ClientCredentials
    from tests.security.authority import Authority, Files

MEMBER = f"{JOB}.1"
DENIED = grpc.StatusCode.PERMISSION_DENIED


def side(folder: Path, name: str, files: Files, **more: Any) -> Side:
    return Side(folder, name, **files.settings(), cluster=CLUSTER, **more)


def announced(owner: Side, **changes: Any) -> pb.PutMessage:
    """The beginning of a Put of the owner's newest snapshot, with some of its words changed."""
    offer = newest(owner.paths.arena(MEMBER), owner.members[MEMBER], 1 << 60)
    assert offer is not None
    message = wire.message_of(offer.held)
    offer.close()
    for name, value in changes.items():
        setattr(message, name, value)
    return pb.PutMessage(snapshot=message)


async def refused(address: str, access: ClientCredentials, method: str, request: Any) -> tuple[Any, str]:
    """How a call ends that is to be turned away; the code is OK when it is answered."""
    async with wire.channel(address, access) as channel:
        calls = wire.PeerCalls(channel)
        try:
            if method == "put":
                call = calls.put()
                await wire.write(call, request, 10, "it")
                await wire.read(call, 10, "it")
                call.cancel()
            elif method == "get":
                await wire.read(calls.get(request), 10, "it")
            else:
                reply = await getattr(calls, method)(request, timeout=10)
                return grpc.StatusCode.OK, str(reply)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        except PeerError as error:
            return DENIED if "PERMISSION_DENIED" in str(error) else None, str(error)
    return grpc.StatusCode.OK, ""


def requests(job: str) -> dict[str, Any]:
    return {
        "get": pb.GetRequest(member=MEMBER, step=10, generation=1, job=job),
        "have": pb.HaveRequest(member=MEMBER, job=job),
        "drop": pb.DropRequest(member=MEMBER, job=job),
    }


async def test_another_jobs_copies_are_not_read_left_nor_dropped(folder: Path, authority: Authority) -> None:
    one, two = (authority.of("agent", name) for name in ("n1", "n2"))
    other = authority.of("agent", "n3", jobs=("other",)).access()
    async with side(folder, "b", two) as partner, side(folder, "a", one) as owner:
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        for address in (partner.peers.address, owner.peers.address):  # a copy, and what its rank left
            for job in ("", JOB, "other"):
                for method, request in requests(job).items():
                    code, said = await refused(address, other, method, request)
                    assert code is DENIED, (address, job, method, code, said)
                    assert JOB in said and ("add the job to its certificate" in said or "own job" in said)
        for changes in ({}, {"job": "other"}, {"step": 398}, {"member": f"{JOB}.77"}):
            code, said = await refused(partner.peers.address, other, "put", announced(owner, **changes))
            assert code is DENIED, (changes, code, said)
        listing = await refused(partner.peers.address, other, "have", pb.HaveRequest())
        assert listing == (grpc.StatusCode.OK, ""), "of everything, nothing is theirs"
        assert partner.steps(MEMBER) == [10]


async def test_in_plaintext_a_copy_is_of_its_own_job_only(folder: Path) -> None:
    async with Side(folder, "a") as owner, Side(folder, "b", jobs=f"{JOB},more") as partner:
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        for method, request in requests("other").items():
            code, said = await refused(partner.peers.address, plain(), method, request)
            assert code is DENIED and f"a member of job {JOB}" in said, (method, said)
        for changes in ({"job": "other"}, {"member": "other.1"}):
            code, said = await refused(partner.peers.address, plain(), "put", announced(owner, **changes))
            assert code is DENIED, (changes, said)
        strange = announced(owner, job="other", member="other.1")
        code, said = await refused(partner.peers.address, plain(), "put", strange)
        assert code is DENIED and f"takes copies of {JOB}, more only" in said
        for method, request in requests(JOB).items():
            assert (await refused(partner.peers.address, plain(), method, request))[0] is not DENIED, method


async def test_an_agent_of_an_older_version_names_no_job(folder: Path) -> None:
    async with Side(folder, "a") as owner, Side(folder, "b") as partner:
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        for method, request in requests("").items():
            assert (await refused(partner.peers.address, plain(), method, request))[0] is grpc.StatusCode.OK


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_owner_of_a_copy_is_known_through_restarts(
    folder: Path, authority: Authority, restarts: bool
) -> None:
    one, two, three = (authority.of("agent", name) for name in ("n1", "n2", "n3"))
    async with side(folder, "b", two) as partner, side(folder, "a", one) as owner:
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        if restarts:
            await partner.restart()
        for method, request in (("drop", requests(JOB)["drop"]), ("put", announced(owner, step=398))):
            code, said = await refused(partner.peers.address, three.access(), method, request)
            assert code is DENIED and "is node n1's, not n3's" in said, (method, said)
        assert partner.steps(MEMBER) == [10]
        await refused(partner.peers.address, one.access(), "drop", requests(JOB)["drop"])
        assert partner.steps(MEMBER) == []


async def test_a_coordinator_tells_the_time_to_agents_alone(authority: Authority) -> None:
    async with serving(authority.issue("server").tls()) as served:
        found = await checking.coordinator_offset(served.address, authority.of("agent", "n1").access())
        assert found.value is not None and abs(found.value) <= found.within, found
        denied = await checking.coordinator_offset(served.address, authority.of("reader", "x").access())
        assert denied.value is None and "PERMISSION_DENIED" in denied.reason
    gone = await checking.coordinator_offset(served.address, authority.of("agent", "n1").access())
    assert gone.value is None and gone.reason


async def test_a_check_of_a_node_needs_the_certificate_of_an_agent_and_its_own_job(
    folder: Path, authority: Authority
) -> None:
    async with side(folder, "b", authority.of("agent", "n2")) as far:
        peer = PeerAddress("b", far.peers.address)
        of_job = authority.of("agent", "n3", jobs=("other",)).access()
        for access in (authority.of("operator", "o").access(), authority.of("reader", "r").access(), of_job):
            found = await checking.peer_readings(peer, access)
            assert all(each.value is None and "PERMISSION_DENIED" in each.reason for each in found), found
        for access, job in ((of_job, "other"), (authority.of("agent", "n4").access(), "")):
            offset, bandwidth = await checking.peer_readings(peer, access, job)
            taken = bandwidth.value or bandwidth.reason == OCCUPIED  # by the burst just before
            assert offset.value is not None and taken, (offset, bandwidth)
