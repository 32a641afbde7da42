"""An agent without ranks that is ended in order has left: its node is not lost."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.server import PrivateEtcd
from tests.e2e.cli_running import ASKED_S, until
from tests.e2e.test_cli_by_hand import daemon, folder, holdfast

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder"]


def states(where: tuple[str, str]) -> dict[str, str]:
    rows = json.loads(holdfast("get", "nodes", "-o", "json", *where).stdout)
    return {row["node"]: row["state"] for row in rows}


async def test_an_idle_agent_that_is_told_to_end_has_left(folder: Path) -> None:
    async with PrivateEtcd(folder / "etcd") as etcd:
        with ExitStack() as stack:
            flags = ("--etcd", etcd.endpoint, "--etcd-private", "--listen", "127.0.0.1:0")
            address = stack.enter_context(daemon(folder, "coordinator", "coordinator", *flags))
            where = ("--coordinator", address)
            places = ("--run-dir", str(folder / "run"), "--shm-dir", str(folder))
            with daemon(folder, "agent", "agent", *where, "--node", "n7", "--slots", "1", *places):
                until(lambda: states(where).get("n7") == "up", "the node joins", pause_s=ASKED_S)
            until(lambda: states(where)["n7"] != "up", "its end is noticed", pause_s=ASKED_S)
            assert states(where)["n7"] == "left"
            told = json.loads(holdfast("status", "-o", "json", *where).stdout)
            assert told["health"] == {"level": "healthy", "reasons": []}
    assert not [each for each in os.listdir(folder) if each.startswith("holdfast-")]
