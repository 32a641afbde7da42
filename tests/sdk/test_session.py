"""One rank and its agent: alone, with workers, with mistakes, with an agent that is hostile or away."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.ipc.frames import encode
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("small.py")
ROOT = Path(__file__).resolve().parents[2]


def alone(zygote: Zygote, folder: Path, script: Path = SCRIPT, **env: str) -> tuple[int, dict[str, Any], str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    log = folder / "log"
    log.touch()
    pid = zygote.spawn(script, {**clean, "PYTHONPATH": str(ROOT), "OUT": str(folder), **env}, log)
    deadline = time.monotonic() + 60
    while (code := zygote.poll(pid)) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
    found = folder / "result.0.json"
    return code, json.loads(found.read_text()) if found.exists() else {}, log.read_text()


def trained(*results: dict[str, Any]) -> list[float]:
    """The weights that plain torch comes to with the inputs of these ranks: small.py without Holdfast."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = model.weight.detach().clone()
    for inputs in zip(*(result["inputs"] for result in results), strict=True):
        optimizer.zero_grad()
        torch.stack([model(torch.tensor(x)).pow(2).mean() for x in inputs]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert not torch.allclose(model.weight, before, atol=1e-2), "that would show nothing"
    return [float(value) for value in model.weight.detach().flatten()]


def test_alone_the_same_code_trains(zygote: Zygote, tmp_path: Path) -> None:
    code, result, log = alone(zygote, tmp_path)
    assert code == 0, log
    assert (result["result"], result["world_size"], result["passes"]) == (6, 1, 1)
    assert len(set(result["noise"])) == 6
    assert len(result["inputs"]) == 6
    assert result["weights"] == pytest.approx(trained(result), abs=2e-6)


def test_alone_and_under_an_agent_are_the_same_training(zygote: Zygote, tmp_path: Path) -> None:
    _, result, _ = alone(zygote, tmp_path)
    with Node(zygote, SCRIPT, 1) as node:
        node.run()
        (ours,) = node.results()
        assert ours["noise"] == result["noise"], "random numbers are those of (seed, step, rank)"


def test_under_torchrun(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OUT": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--standalone", str(SCRIPT)], check=False, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads((tmp_path / f"result.{rank}.json").read_text()) for rank in (0, 1)]
    assert [line["world_size"] for line in results] == [2, 2]
    assert results[0]["weights"] == results[1]["weights"]
    assert [len(line["inputs"]) for line in results] == [6, 6]
    assert results[0]["inputs"] != results[1]["inputs"], "one rank's gradients would do"
    assert results[0]["weights"] == pytest.approx(trained(*results), abs=2e-6)


def test_forked_workers_have_no_gate(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 2, MODE="workers") as node:
        node.run()
        assert [line["result"] for line in node.results()] == [6, 6]


def test_tracking_too_late_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    code, _, log = alone(zygote, tmp_path, MODE="late")
    assert code == 0 and "refused: track: call it before" in log


@pytest.mark.parametrize(
    ("mode", "error"), [("raise", "ValueError: the script's own"), ("timeout", "timed out")]
)
def test_the_scripts_own_exception_ends_it(zygote: Zygote, mode: str, error: str) -> None:
    with Node(zygote, SCRIPT, 1, MODE=mode) as node:
        member = node.members["job.0"]
        node.run(lambda: member.gone)
        assert node.zygote.poll(member.pid) == 1
        assert error in member.log.read_text()
        assert not node.results()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 1 << 31) + b"x" * 64,
        struct.pack(">I", 5) + b"[1,2]",
        struct.pack(">I", 3) + b"\xff\xfe\x00",
    ],
)
def test_garbage_ends_the_connection_and_nothing_else(zygote: Zygote, garbage: bytes) -> None:
    with Node(zygote, SCRIPT, 1) as node:
        node.hold = True
        member = node.members["job.0"]
        node.run(lambda: member.ready is not None)
        assert member.connection is not None
        member.connection.sendall(garbage)
        node.run(lambda: len([m for m in member.said if m["op"] == "hello"]) == 2)
        node.run(lambda: len([m for m in member.said if m["op"] == "ready"]) == 2)
        node.hold = False
        node.run()
        assert node.results()[0]["result"] == 6


HOSTILE: list[dict[str, Any]] = [
    {"op": "no such thing"},
    {"op": ["form"]},
    {},
    {"op": "interrupt"},
    {"op": "interrupt", "generation": "1"},
    {"op": "interrupt", "generation": -7},
    {"op": "interrupt", "generation": 1 << 80},
    {"op": "release", "step": None},
    {"op": "arena"},
    {"op": "welcome", "beat_interval_s": -1},
    {"op": "form", "generation": None},
    {"op": "form", "generation": {"number": 1}},
    {"op": "form", "generation": {"number": 0, "rank": 0, "seats": []}},
    {
        "op": "form",
        "generation": {
            "number": 1,
            "rank": 0,
            "local_rank": 0,
            "world_size": 1,
            "local_world_size": 1,
            "seats": [{"rank": 0, "member": "job.0", "node": "n", "local_rank": 0}],
            "store": "127.0.0.1:1",
            "resume": {"tier": "fresh", "step": 0, "rank": 0, "skip": 7},
        },
    },
]


def test_hostile_messages_are_dropped_and_counted(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 1) as node:
        node.hold = True
        member = node.members["job.0"]
        node.run(lambda: member.ready is not None)
        assert member.connection is not None
        member.connection.sendall(b"".join(map(encode, HOSTILE)))
        node.hold = False
        node.run()
        assert node.results()[0]["result"] == 6
        assert len([m for m in member.said if m["op"] == "hello"]) == 1, "the connection lived on"


def test_training_goes_on_without_the_agent(zygote: Zygote) -> None:
    train = Path(__file__).with_name("train.py")
    with Node(zygote, train, 2, STEPS="400") as node:
        node.run(lambda: node.generation == 1 and node.seat(0).board.completed > 3)
        node.deafen()
        before = node.seat(1).board.completed
        deadline = time.monotonic() + 60
        while node.seat(1).board.completed < before + 50:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        node.listen_again()
        node.run(timeout_s=120)
        assert len(node.generations) == 1 and len(node.results()) == 2


def test_a_report_reaches_the_agent(zygote: Zygote) -> None:
    with Node(zygote, Path(__file__).with_name("train.py"), 1, STEPS="300") as node:
        node.run(lambda: node.members["job.0"].last("report") is not None)
        report = node.members["job.0"].last("report")
        assert report is not None and set(report["values"]) == {"loss"} and report["values"]["loss"] > 0
