"""Read and write etcd by the independent package `etcd3`, in a process of its own, to compare with our
client. Commands are JSON lines.

Run with PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python (its stubs are older than today's protobuf), and never
import it beside our client: that setting slows all parsing of a process 200 times."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import etcd3  # type: ignore[import-untyped]


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def rows(client: Any, command: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": meta.key.decode(),
            "value": text(value),
            "create_revision": meta.create_revision,
            "mod_revision": meta.mod_revision,
            "version": meta.version,
            "lease": meta.lease_id,
        }
        for value, meta in client.get_prefix(command["prefix"])
    ]


def put(client: Any, command: dict[str, Any]) -> int:
    return int(client.put(command["key"], base64.b64decode(command["value"])).header.revision)


def lease(client: Any, command: dict[str, Any]) -> dict[str, Any]:
    info = client.get_lease_info(command["id"])
    return {"ttl": info.TTL, "granted": info.grantedTTL, "keys": [key.decode() for key in info.keys]}


def create(client: Any, command: dict[str, Any]) -> bool:
    """Put a key if it is absent, by a transaction of the `etcd3` package."""
    key, own = command["key"], client.transactions
    done, _ = client.transaction(
        compare=[own.create(key) == 0], success=[own.put(key, command["value"])], failure=[]
    )
    return bool(done)


COMMANDS = {"rows": rows, "put": put, "lease": lease, "create": create}


def main(host: str, port: str) -> None:
    client = etcd3.client(host=host, port=int(port), timeout=10)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(COMMANDS[command.pop("do")](client, command)), flush=True)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
