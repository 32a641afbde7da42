"""Send the same messages over a real socket to a real server: it must answer each one and keep serving."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.access.client_credentials import plain
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.security.authority import CLUSTER
from tests.security.fuzz.messages import damage, fill
from tests.security.serving import OPTIONS, asked, serving

if TYPE_CHECKING:
    from tests.security.serving import Served

TRY_S = 20.0
ADMIN = "/holdfast.control.v1.Admin/"
_METHODS = pb.DESCRIPTOR.services_by_name["Admin"].methods
FAULTS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
"""A method that raised, and one that hung."""


async def run(messages: int, seed: int) -> dict[str, Any]:
    """Send this many requests to each method of Admin, and as many messages on streams of Link. Returns
    counts by outcome."""
    begun = time.perf_counter()
    async with serving(leads=True) as served:
        found: Counter[str] = Counter()
        for method in _METHODS:
            await _unary(served, method, messages, seed, found)
        await _streams(served, messages, seed, found)
        code, _ = await asked(served.address, "Status", pb.StatusRequest())
        alive = code is grpc.StatusCode.OK and served.front.leader_term is not None
    return {"alive": alive, "seconds": round(time.perf_counter() - begun, 1), "outcomes": dict(found)}


async def _unary(served: Served, method: Any, messages: int, seed: int, found: Counter[str]) -> None:
    kind = getattr(pb, method.input_type.name)
    async with plain().channel(served.address, OPTIONS) as channel:
        make = channel.unary_stream if method.server_streaming else channel.unary_unary
        call = make(f"{ADMIN}{method.name}")
        for number in range(messages):
            rng = Random(f"{seed}/wire/{method.name}/{number}")
            request = fill(kind(), rng)
            if "follow" in kind.DESCRIPTOR.fields_by_name:
                request.follow = False
            data = damage(request.SerializeToString(), rng)
            found[f"{method.name} {(await _code(call(data, timeout=TRY_S), method)).name}"] += 1


async def _code(call: Any, method: Any) -> grpc.StatusCode:
    try:
        if method.server_streaming:
            async with asyncio.timeout(TRY_S):
                async for _ in call:
                    if call.done():
                        break
        else:
            await call
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    except TimeoutError:
        call.cancel()  # it asked to follow the journal: the lines are its answer
        return grpc.StatusCode.OK
    return grpc.StatusCode.OK


async def _streams(served: Served, messages: int, seed: int, found: Counter[str]) -> None:
    """Open streams, one after another: each begins with a good hello, then sends damaged messages until it is
    cut off."""
    said = 0
    async with plain().channel(served.address, OPTIONS) as channel:
        method = channel.stream_stream("/holdfast.control.v1.Control/Link")
        while said < messages:
            rng = Random(f"{seed}/wire/Link/{said}")
            call = method(timeout=TRY_S)
            hello = pb.AgentMessage()
            hello.hello.protocol_version, hello.hello.cluster = codec.PROTOCOL_VERSION, CLUSTER
            hello.hello.node, hello.hello.launcher, hello.hello.incarnation = "n1", "l1", 1 + said
            try:
                await call.write(
                    hello.SerializeToString() if rng.random() < 0.9 else damage(b"\x0a\x00", rng)
                )
                said += 1
                await call.read()
                while said < messages and not call.done():
                    said += 1
                    await call.write(damage(fill(pb.AgentMessage(), rng).SerializeToString(), rng))
                call.cancel()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                found[f"Link {(await call.code()).name}"] += 1
