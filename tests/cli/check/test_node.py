"""`holdfast check node`, on this machine: real readings, files of peers, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.access.client_credentials import plain
from controlplane.analysis import node_check_policy
from controlplane.cli.check import measuring
from controlplane.cli.main import main
from tests.leashed import leashed

READINGS = {
    *(f"cpu.gemm.{kind}" for kind in ("float32", "bfloat16", "float16")),
    *("memory.copy", "disk.write", "disk.read", "disk.sync"),
}
STATED = {"clock.max_error", "clock.estimated_error"}
"""What has a number here, or a reason."""


def test_a_node_is_measured_and_compared_with_peers(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    command = ["check", "node", "--seconds", "0.02", "--folder", str(folder), "--json"]
    code = main([*command, "--node", "n0"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0 and answer["findings"] == []
    assert {row["name"] for row in answer["readings"]} >= READINGS | STATED
    assert all(row["value"] or row["why"] for row in answer["readings"] if row["name"] in STATED), answer
    assert all(row["value"] > 0 for row in answer["readings"] if row["name"] in READINGS), answer
    assert list(folder.iterdir()) == []

    files = []
    for node in ("n1", "n2", "n3"):
        # Peers whose disks are a thousand times as fast, and which compute a thousand times more slowly.
        rows = [
            row | {"crowded": 0.0, "value": row["value"] * (1000 if row["name"] == "disk.write" else 0.001)}
            for row in answer["readings"]
            if row["name"] in ("disk.write", "cpu.gemm.float32")
        ]
        files.append(folder / f"{node}.json")
        files[-1].write_text(json.dumps({"node": node, "readings": rows}))
    code = main([*command, "--node", "n0", *(word for file in files for word in ("--baseline", str(file)))])
    answer = json.loads(capsys.readouterr().out)
    judged = {row["name"]: row for row in answer["readings"]}
    assert judged["cpu.gemm.float32"]["judgement"] == "fine"
    assert judged["memory.copy"]["judgement"] == "not judged"
    if judged["disk.write"]["crowded"] > node_check_policy.CROWDED_MAX:  # by the tests beside this one
        assert (code, judged["disk.write"]["judgement"]) == (0, "not judged")
        return
    (found,) = answer["findings"]
    assert code == 1
    assert (found["kind"], found["subject"]) == ("node_part_slow", {"node": "n0", "part": "disk.write"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "has no node and readings"),
        ('{"node": "n1"}', "has no node and readings"),
        ('{"node": "n1", "readings": [3]}', "reading 0 is 3: an object is needed"),
        ('{"node": "n1", "readings": [{"name": "a"}]}', "reading 0 needs a name and a unit"),
        ('{"node": "n1", "readings": [{"name": "a", "unit": "s", "value": "x"}]}', "value is 'x'"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_no_check_wrote_is_named(
    text: str, words: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "n1.json").write_text(text)
    assert main(["check", "node", "--baseline", str(folder / "n1.json")]) == 2
    err = capsys.readouterr().err
    assert words in err and "n1.json" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seconds", "0"], "--seconds 0"),
        (["--seconds", "1e9"], "--seconds 1e+09"),
        (["--folder", "/nowhere/at/all"], "--folder /nowhere/at/all is no folder"),
        (["--peer", "host"], "--peer host: give HOST:PORT"),
        (["--peer", "host:99999"], "--peer host:99999: give HOST:PORT"),
        (["--baseline", "/nowhere.json"], "/nowhere.json: No such file"),
    ],
)
def test_a_wrong_flag_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "node", *words]) == 2
    assert told in capsys.readouterr().err


def test_two_files_of_one_node_are_refused(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).write_text('{"node": "n1", "readings": []}')
    words = [each for name in ("a", "b") for each in ("--baseline", str(folder / name))]
    assert main(["check", "node", *words]) == 2
    assert "both of node n1" in capsys.readouterr().err


def test_a_refused_connection_is_a_reading(folder: Path) -> None:
    found: Any = measuring._connection("127.0.0.1:1")
    assert found.value is None and "refused" in found.broken


def test_a_part_whose_process_dies_is_broken_and_the_reason_is_told(folder: Path) -> None:
    (found,) = measuring._part("cuda:99", 0.01, folder)[:1]
    assert found.broken or found.reason
    lines, trouble = measuring._run("nonsense", 0.01, folder)
    assert lines == [] and "code 1" in trouble and "nonsense" in trouble


def test_a_folder_that_cannot_be_written_to_is_named(folder: Path) -> None:
    if os.geteuid() == 0:
        target = folder / "file"
        target.write_text("")
    else:
        target = folder
        folder.chmod(0o500)
    found = measuring._part("disk", 0.01, target)
    assert any(each.broken and str(target) in each.broken for each in found), found


def test_an_agent_at_a_peer_tells_the_time_and_takes_a_burst(folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "tests.agent.peering", str(folder), "far", "{}"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    with subprocess.Popen(
        leashed(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        peer = json.loads(process.stdout.readline())["address"]
        offset, bandwidth = measuring._links(peer, plain())
        process.kill()
    assert offset.name == f"clock.offset:{peer}" and offset.value is not None
    assert abs(offset.value) <= offset.within
    assert bandwidth.name == f"link.bandwidth:{peer}" and bandwidth.value


def test_an_address_without_an_agent_has_no_clock_and_no_bandwidth() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        peer = f"127.0.0.1:{deaf.getsockname()[1]}"
        assert measuring._connection(peer).value
        found = measuring._links(peer, plain())
    assert all(each.value is None and each.reason and not each.broken for each in found), found
