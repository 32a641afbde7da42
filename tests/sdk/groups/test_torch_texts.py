"""What torch and gloo raise is recognised by type or place, and a script's own words never are."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
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


def raised(*script: str) -> Any:
    """What rank 0 of two has printed: what it raised."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, *script]
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, str(rank), str(port)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd=BREAKING.parents[2],
                )
            )
            for rank in (0, 1)
        ]
        try:
            said = ranks[0].communicate(timeout=90)[0]
        finally:
            for rank in ranks:
                rank.kill()
    assert said, f"rank 0 raised nothing in {script}"
    return json.loads(said)


@pytest.mark.parametrize("way", WAYS)
def test_a_break_is_known_by_type_or_place(way: str) -> None:
    found = raised(str(BREAKING), way)
    kinds = {kind for kind in ("typed", "of_gloo", "wait_over") if found[kind]}
    assert kinds == {WAYS[way]}, found["text"]


def test_who_waits_in_ddp_for_what_never_ends_is_freed() -> None:
    """As where gloo has forgotten an operation: here its peer lives, and takes no part."""
    assert "a collective did not end although its group is broken" in raised(str(GUARDING))


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
