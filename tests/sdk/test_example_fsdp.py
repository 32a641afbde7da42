"""examples/train_fsdp.py as torchrun would run it."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.checkpoint.load import listing
from holdfast.checkpoint.storage.store import Store

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

ROOT = Path(__file__).parents[2]
SMALL = "--steps 3 --layers 1 --width 16 --heads 2 --context 8 --text-bytes 4000 --global-batch 4".split()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_ranks_end_alike_and_save_with_dcp(dcp_zygote: Zygote, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    argv = [*SMALL, "--dcp", f"file://{tmp_path}/storage", "--digest-dir", str(tmp_path / "digests")]
    pids = [
        dcp_zygote.spawn(
            ROOT / "examples" / "train_fsdp.py",
            env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            tmp_path / f"{rank}.log",
            *argv,
        )
        for rank in range(2)
    ]
    deadline = time.monotonic() + 60
    while None in (codes := [dcp_zygote.poll(pid) for pid in pids]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert codes == [0, 0], "\n".join((tmp_path / f"{rank}.log").read_text()[-3000:] for rank in range(2))
    told = [json.loads((tmp_path / "digests" / f"{rank}.json").read_text()) for rank in range(2)]
    assert told[0]["digest"] == told[1]["digest"]
    found = listing(Store.open(f"file://{tmp_path}/storage"), "train-fsdp")
    assert [entry.id for entry in found] == ["3-0"]
