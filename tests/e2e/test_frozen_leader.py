"""A leader that is frozen, and keeps all its connections: its agents go to the next one in time."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.server import PrivateEtcd
from tests.e2e.cli_running import JournalLines, until
from tests.e2e.test_cli_by_hand import daemon, folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder"]


async def test_no_node_is_lost_with_a_frozen_leader(folder: Path) -> None:
    async with PrivateEtcd(folder / "etcd") as etcd:
        flags = ("--etcd", etcd.endpoint, "--etcd-private", "--listen", "127.0.0.1:0", "--lease-ttl-s", "2")
        journals = {name: JournalLines(folder / f"{name}.jsonl") for name in ("c1", "c2")}
        with ExitStack() as stack:
            addresses = [
                stack.enter_context(
                    daemon(folder, name, "coordinator", *flags, "--journal", str(folder / f"{name}.jsonl"))
                )
                for name in journals
            ]
            places = ("--run-dir", str(folder / "run"), "--shm-dir", str(folder), "--slots", "1")
            words = ("--coordinator", ",".join(addresses), "--node", "n7", *places)
            stack.enter_context(daemon(folder, "agent", "agent", *words))
            until(lambda: journals["c1"].bodies("NodeJoined"), "the node joins the first leader")
            pid = int(json.loads((folder / "c1.json").read_text())["pid"])
            os.kill(pid, signal.SIGSTOP)
            stack.callback(os.kill, pid, signal.SIGCONT)
            until(lambda: journals["c2"].bodies("NodeJoined"), "the node joins the next leader")
            assert "node_lost" not in [body["kind"] for body in journals["c2"].bodies("Note")]
