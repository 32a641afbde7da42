"""Set every number of every message that comes in to impossible values."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from controlplane.daemon.server.context import DROPS_TOLD_PER_S
from controlplane.wire import bounds
from controlplane.wire import control_pb2 as pb
from tests.agent.peering import JOB
from tests.attack.calls import CODES, ended
from tests.attack.messages import FLOATS, Spot, bodies, filled, hello, put, services, spots
from tests.attack.stage import KEPT_STEP
from tests.daemon.rig import until
from tests.security.authority import CLUSTER
from tests.security.serving import OPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterator

    from tests.attack.stage import Stage

VALUES = {"-1": -1, "0": 0, "2^31": 1 << 31, "2^63-1": (1 << 63) - 1, "NaN": math.nan}
GREETING = "hello"
NODE = "n3"
"""The node of these hellos; the other messages come from n4, where no job has a rank."""


def messages() -> Iterator[tuple[str, Any, str, list[Spot]]]:
    """Every incoming message with numbers: its method, which of its bodies, and the numbers."""
    for name, method in services().items():
        for body in bodies(method.input_type):
            kind = method.input_type.fields_by_name[body].message_type if body else method.input_type
            found = list(spots(kind)) if kind is not None else []  # None: the bytes of a block
            if found:
                yield name, method, body, found


async def attack(stage: Stage, only: Container[str] = ()) -> AsyncIterator[dict[str, Any]]:
    """One row per number of each incoming message, with how each value ended. `only`: these bodies, or
    methods."""
    for name, method, body, found in messages():
        if not only or (body or name) in only:
            before = await stage.rows()
            rows = [await _spot(stage, name, method, body, spot) for spot in found]
            mine = (stage.keys.node(NODE if body == GREETING else "n4"),)
            rows[-1]["wrong"] += await stage.unchanged(before, mine)
            for row in rows:
                yield row


async def _spot(stage: Stage, name: str, method: Any, body: str, spot: Spot) -> dict[str, Any]:
    row: dict[str, Any] = {"row": ".".join(filter(None, (name, body, *spot.path))), "values": {}, "wrong": []}
    for told, value in VALUES.items():
        request = _request(stage, method, body)
        inner = getattr(request, body) if body else request
        if (spot.kind in FLOATS) < (told == "NaN") or not put(inner, spot, value):
            row["values"][told] = "no message can hold it"
            continue
        beyond = is_beyond(name, spot, value, row)
        try:
            send = SENDS.get(name) or SENDS[name.partition(".")[0]]
            outcome = await send(stage, method, request, body, beyond)
        except AssertionError as error:
            outcome = f"no answer: {error}"
            row["wrong"].append(f"{told}: {outcome}")
        row["values"][told] = outcome[-160:]
        if beyond and NAMES.get(spot.field, _field(spot)) not in outcome:
            row["wrong"].append(f"{told} is not refused by name: {outcome[:160]}")
    return row


def is_beyond(name: str, spot: Spot, value: float, row: dict[str, Any]) -> bool:
    """Whether the table of bounds excludes this value. A number without a row fails the attack."""
    try:
        bound = bounds.of(ALIASES.get(name, spot.record), _field(spot))
    except KeyError as error:
        row["wrong"].append(str(error))
        return False
    one = bound if isinstance(bound, bounds.Bound) else bound[("rank", "step").index(spot.field)]
    return one is not None and one.refuses(value)


def _field(spot: Spot) -> str:
    """The field of a record that this number is: pairs are messages of their own on the wire."""
    return spot.path[-2] if spot.record == "RankStep" else spot.field


NAMES = {"protocol_version": "protocol"}
"""Numbers that the error message calls by another name."""

ALIASES = {"Admin.Adopt": "AdoptRequest"}
"""Where a number has narrower bounds than its record has elsewhere."""


def _request(stage: Stage, method: Any, body: str) -> Any:
    """A message that is valid and changes nothing.

    The job runs on with other settings; the node is not one of the job's, or is forgotten by everybody."""
    truth = {"job": JOB, "member": stage.member, "step": KEPT_STEP, **hello("n4", CLUSTER)}
    if body == GREETING:
        truth |= {"node": NODE, "jobs": JOB}
    if method.name in ("Drain", "ReadLog"):
        truth["node"] = "nobody"
    if method.name == "Events":
        truth["follow"] = False
    request = filled(method.input_type, truth)
    if body:
        part = filled(method.input_type.fields_by_name[body].message_type, truth)
        getattr(request, body).CopyFrom(part)
    return request


# ------------------------------------------------------------------ ways in


async def _admin(stage: Stage, method: Any, request: Any, _body: str, _beyond: bool) -> str:
    async with stage.operator.channel(stage.coordinator.listen, OPTIONS) as channel:
        answer = await ended(channel, method, request)
    return "taken" if answer.code is CODES.OK else f"{answer.code.name}: {answer.said}"


async def _peer(stage: Stage, method: Any, request: Any, _body: str, _beyond: bool) -> str:
    access = stage.authority.of("agent", "n2").access()
    async with access.channel(stage.keeper.peers.address, OPTIONS) as channel:
        answer = await ended(channel, method, request)
    return "taken" if answer.code is CODES.OK else f"{answer.code.name}: {answer.said}"


async def _agent(stage: Stage, method: Any, request: Any, body: str, beyond: bool) -> str:
    before, told = stage.dropped("malformed"), len(stage.coordinator.log())
    if body == GREETING:
        answer = await _greeted(stage, method, request)
        await asyncio.sleep(1.2 / DROPS_TOLD_PER_S)
        return answer + stage.coordinator.log()[told:]  # an impossible status is dropped alone
    await stage.n4.send(request.SerializeToString())
    if beyond:
        await until(lambda: stage.dropped("malformed") == before + 1)
        await asyncio.sleep(1.2 / DROPS_TOLD_PER_S)  # no faster than such drops are logged
        return stage.coordinator.log()[told:]
    # an impossible message follows it on the stream: once that is counted, the first has been read
    await stage.n4.send(pb.AgentMessage(user_fault=pb.UserFault(job=JOB)).SerializeToString())
    await until(lambda: stage.dropped("malformed") > before)
    await asyncio.sleep(1.2 / DROPS_TOLD_PER_S)
    return "heard"


async def _greeted(stage: Stage, method: Any, request: Any) -> str:
    """A stream ends with its hello, or this ends it."""
    access = stage.authority.of("agent", NODE).access()
    async with access.channel(stage.coordinator.listen, OPTIONS) as channel:
        call = channel.stream_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            type(request).SerializeToString,
            pb.CoordinatorMessage.FromString,
        )()
        try:
            async with asyncio.timeout(20):
                await call.write(request)
                reply = await call.read()
        except Exception:
            return f"{(await call.code()).name}: {await call.details()}"
        if hasattr(reply, "WhichOneof"):
            call.cancel()
            return str(reply)
        return f"{(await call.code()).name}: {await call.details()}"


async def _log(stage: Stage, method: Any, request: Any, _body: str, _beyond: bool) -> str:
    """A stream on which an agent sends a log that nobody has asked for."""
    access = stage.authority.of("agent", "n4").access()
    async with access.channel(stage.coordinator.listen, OPTIONS) as channel:
        answer = await ended(channel, method, request)
    return "taken" if answer.code is CODES.OK else f"{answer.code.name}: {answer.said}"


SENDS = {"Admin": _admin, "Peer": _peer, "Control": _agent, "Control.SendLog": _log}
"""By service, or by method where one differs."""
