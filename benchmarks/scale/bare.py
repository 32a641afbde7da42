"""Be the limit that a coordinator is held against: a grpc.aio server that reads each message and drops it.

    python -m benchmarks.scale.bare null

Prints its address, and serves until standard input ends, with the options and the event loop that a
coordinator has; over mTLS with an object of certificates instead of null."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import uvloop

from benchmarks.scale.certificates import Certificates
from controlplane.daemon.server.ports import OPTIONS


async def _read(_requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    while await context.read() is not grpc.aio.EOF:
        pass


async def serve(tls: Certificates | None) -> None:
    """Serve the method that agents call."""
    server = grpc.aio.server(options=OPTIONS)
    handler = grpc.stream_stream_rpc_method_handler(_read, None, None)
    control = grpc.method_handlers_generic_handler("holdfast.control.v1.Control", {"Link": handler})
    server.add_generic_rpc_handlers((control,))
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", tls.server().server_credentials())
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(serve(Certificates.of(json.loads(sys.argv[1]))))
