"""What torch and gloo raise is recognised by type or place, and a script's own words never are."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.groups import torch_texts
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

BREAKING = Path(__file__).parents[1] / "breaking.py"
GUARDING = Path(__file__).parents[1] / "guarding.py"
RAISING = Path(__file__).parents[1] / "raising.py"
WAYS = {
    "closed": "of_gloo",
    "killed": "of_gloo",
    "silent": "of_gloo",
    "backward": "of_gloo",
    "absent": "typed",
    "patience": "wait_over",
}
WORDS = (
    "request timed out",
    "the upload was aborted",
    "process group of the cgroup: timeout",
    "nccl-tests and gloo are not installed",
)


def raised(zygote: Zygote, folder: Path, script: Path, *words: str) -> Any:
    """What rank 0 of two has printed: what it raised."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    logs = [folder / str(rank) for rank in (0, 1)]
    pids = [
        zygote.spawn(script, dict(os.environ), logs[rank], *words, str(rank), str(port)) for rank in (0, 1)
    ]
    deadline = time.monotonic() + 90
    try:
        while zygote.poll(pids[0]) is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        for pid in pids:
            if zygote.poll(pid) is None:
                os.kill(pid, signal.SIGKILL)
    said = [line for line in logs[0].read_text().splitlines() if line.startswith(("{", '"'))]
    assert said, f"rank 0 raised nothing in {script}: {logs[0].read_text()}"
    return json.loads(said[-1])


@pytest.mark.parametrize("way", WAYS)
def test_a_break_is_known_by_type_or_place(zygote: Zygote, tmp_path: Path, way: str) -> None:
    found = raised(zygote, tmp_path, BREAKING, way)
    kinds = {kind for kind in ("typed", "of_gloo", "wait_over") if found[kind]}
    assert kinds == {WAYS[way]}, found["text"]


def test_who_waits_in_ddp_for_what_never_ends_is_freed(zygote: Zygote, tmp_path: Path) -> None:
    """As where gloo has forgotten an operation: here its peer lives, and takes no part."""
    found = raised(zygote, tmp_path, GUARDING)
    assert "a collective did not end although its group is broken" in found


@pytest.mark.parametrize("words", WORDS)
def test_words_alone_are_no_break(words: str) -> None:
    error = RuntimeError(words)
    assert not torch_texts.is_of_gloo(error) and not torch_texts.is_wait_over(error)


@pytest.mark.parametrize("kind", ["RuntimeError", "ConnectionResetError"])
def test_what_the_script_raises_with_such_words_ends_it_at_once(zygote: Zygote, kind: str) -> None:
    """Both ranks raise, each for itself, while their group stands whole."""
    with Node(zygote, RAISING, 2, KIND=kind) as node:
        with pytest.raises(AssertionError, match="ended with 1"):
            node.run()
        first = [member for member in node.members.values() if zygote.poll(member.pid) == 1]
        assert first and all("request timed out" in member.log.read_text() for member in first)
        assert all(member.last("broken") is None for member in first)
        assert node.generation == 1
