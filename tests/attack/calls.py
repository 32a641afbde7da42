"""Call every method of every service as every kind of caller without the right to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from tests.agent.peering import JOB
from tests.attack.messages import bodies, filled, hello, services
from tests.attack.stage import CALLERS, KEPT_STEP
from tests.security.authority import CLUSTER
from tests.security.serving import UNHEARD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.attack.stage import Stage

CODES = grpc.StatusCode
TURNED_AWAY = {
    "none": CODES.UNAVAILABLE,
    "foreign-authority": CODES.UNAVAILABLE,
    "expired": CODES.UNAVAILABLE,
}
"""Callers that do not get past the handshake."""
UNNAMED = {"foreign-cluster": "cluster 'elsewhere'", "empty-job": "job"}
"""Callers whose certificate names nobody of this cluster, and what the answer must name."""

OTHERS: dict[str, str] = {
    "Admin.Submit": "denied",
    "Admin.Stop": "denied",
    "Admin.Delete": "denied",
    "Admin.Pause": "denied",
    "Admin.Checkpoint": "denied",
    "Admin.Adopt": "denied",
    "Admin.Release": "denied",
    "Admin.Drain": "denied",
    "Admin.Cordon": "denied",
    "Admin.Events": "denied",
    "Admin.Diagnose": "denied",
    "Admin.Mute": "denied",
    "Admin.Profile": "denied",
    "Admin.ListLogs": "denied",
    "Admin.ReadLog": "denied",
    "Admin.Stacks": "denied",
    "Admin.Status": "trimmed",
    "Control.Link": "refused",
    "Control.SendLog": "denied",
    "Control.Clock": "trimmed",
    "Peer.Put": "denied",
    "Peer.Get": "denied",
    "Peer.Have": "denied",
    "Peer.Drop": "denied",
    "Peer.Echo": "denied",
    "Peer.Relay": "of no job",
}
"""How a call by a caller of another job must end, by method. A method without a row fails the attack."""


class Answer:
    """How a call ended."""

    def __init__(self, code: grpc.StatusCode, said: str) -> None:
        self.code, self.said = code, said


async def attack(stage: Stage) -> AsyncIterator[dict[str, Any]]:
    """One row per method and caller."""
    for name, method in services().items():
        before = await stage.rows()
        for caller in CALLERS:
            answer = await _called(stage, name, method, caller)
            wrong = judged(name, caller, answer)
            wrong += await stage.unchanged(before)
            yield {
                "row": f"{name}/{caller}",
                "code": answer.code.name,
                "said": answer.said[:200],
                "wrong": wrong,
            }


def judged(name: str, caller: str, answer: Answer) -> list[str]:
    if caller in TURNED_AWAY:
        return _is(answer, TURNED_AWAY[caller], "")
    if caller in UNNAMED:
        return _is(answer, CODES.UNAUTHENTICATED, UNNAMED[caller])
    row = OTHERS.get(name)
    if row is None:
        return [f"{name} has no row: say in tests/attack/calls.py what a caller of another job hears"]
    if row == "denied":
        return _is(answer, CODES.PERMISSION_DENIED, JOB)
    if row == "of no job":
        return _is(answer, CODES.UNAVAILABLE, "no leader hears this agent now")
    if row == "refused":
        return _is(answer, CODES.OK, f"has ranks of job \\'{JOB}\\'")
    told = f'"{JOB}"' in answer.said
    return [*_is(answer, CODES.OK, ""), *(["it tells of a job that is not theirs"] if told else [])]


def _is(answer: Answer, code: grpc.StatusCode, words: str) -> list[str]:
    if answer.code is code and words in answer.said:
        return []
    return [f"expected {code.name} naming {words!r}, got {answer.code.name}: {answer.said[:200]}"]


async def _called(stage: Stage, name: str, method: Any, caller: str) -> Answer:
    service = name.partition(".")[0]
    role = "operator" if service == "Admin" else "agent"
    address = stage.keeper.peers.address if service == "Peer" else stage.coordinator.listen
    job = JOB if caller == "other-job" else "nobody"
    truth = {"job": job, "member": stage.member if job == JOB else "nobody.1", "step": KEPT_STEP}
    truth["vouched"] = "0" * 64
    truth |= hello("n9", CLUSTER if caller == "other-job" else "elsewhere")
    truth |= {} if job == JOB else {"argv": ""}  # a caller that is let in by mistake must do no harm
    body = bodies(method.input_type)[0]
    request = filled(method.input_type, truth)
    if body:
        part = filled(method.input_type.fields_by_name[body].message_type, truth)
        getattr(request, body).CopyFrom(part)
    async with stage.channel(caller, role, address) as channel:
        return await ended(channel, method, request)


async def ended(channel: grpc.aio.Channel, method: Any, request: Any) -> Answer:
    """Call a method with one message until the server's own answer is heard. Returns how it ended, and all
    that was answered."""
    for _ in range(9):
        answer = await _ended(channel, method, request)
        if (answer.code, answer.said) != UNHEARD:
            break
    return answer


async def _ended(channel: grpc.aio.Channel, method: Any, request: Any) -> Answer:
    """Call a method with one message. Returns how it ended, and all that was answered."""
    make = channel.stream_stream if method.client_streaming else channel.unary_stream
    path = f"/{method.containing_service.full_name}/{method.name}"
    call = make(path, type(request).SerializeToString, method.output_type._concrete_class.FromString)
    said: list[str] = []
    try:
        async with asyncio.timeout(20):
            stream = call(timeout=20) if method.client_streaming else call(request, timeout=20)
            if method.client_streaming:
                await stream.write(request)
            while (reply := await stream.read()) is not grpc.aio.EOF:
                said.append(str(reply))
    except grpc.aio.AioRpcError as error:
        return Answer(error.code(), error.details() or "")
    except asyncio.InvalidStateError:
        return Answer(await stream.code(), await stream.details() or "")
    return Answer(await stream.code(), await stream.details() or "".join(said))
