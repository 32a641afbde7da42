"""What would train on wrong samples without a word is refused, with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sdk.node import Node
from tests.sdk.test_session import alone

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("misusing.py")
ALONE = {
    "twice": "sample_indices(n=20, global_batch=4, seed=0) was called twice in step 0",
    "twice in parts": "give micro=(i, count) for the i-th of count micro-batches, or another seed",
    "one seed": "seed 0 is used for n=20, global_batch=4, seed=0 already: give each data set a seed",
    "two batches": "seed 0 is used for n=20, global_batch=4, seed=0 already: give each data set",
    "two places": "seed 0 is used for two iterable data sets",
    "two places in turn": "seed 0 is used for two iterable data sets",
    "two kinds": "seed 0 is used for a map data set and for an iterable one",
    "two kinds turned": "seed 0 is used for a map data set and for an iterable one",
    "steps' seed": "steps: seed must be \"session\", an integer or None, not '0'",
    "half": "step 0 took 1 of 2 micro-batches of n=20, global_batch=4, seed=0: the others would be skipped",
    "loader twice": "step 0 has taken its batch already",
    "loader first": "for step, batch in zip(session.steps(n), loader), the steps first",
    "parts left": "step 0 took 1 of its 2 micro-batches",
    "sampler": "step 1 has not taken its 1 batches from a DataLoader over session.sampler(n=20",
    "sampler outside": "iterate over its DataLoader inside of the function under @session.elastic",
    "track": "track(data=...): a Keeping holds the position of one rank in its data",
    "endless": "a Endless cannot report its position: give a map data set",
    "plain loader": "if you have a DataLoader, give its data set",
    "option": "shuffle follows from global_batch, micro and seed: leave it out",
    "data_change": "data_change must be 'refuse' or 'continue', not 'maybe'",
}


@pytest.mark.parametrize("mode", ALONE)
def test_it_is_refused_by_name(zygote: Zygote, tmp_path: Path, mode: str) -> None:
    code, _, log = alone(zygote, tmp_path, SCRIPT, MODE=mode)
    assert code == 0 and f"refused: {session_part(log)}" in log and ALONE[mode] in log, log


def session_part(log: str) -> str:
    return log.partition("refused: ")[2].partition("\n")[0] or "nothing was refused"


@pytest.mark.parametrize("mode", ["fine", "small", "made anew"])
def test_what_is_right_is_not_refused(zygote: Zygote, tmp_path: Path, mode: str) -> None:
    code, _, log = alone(zygote, tmp_path, SCRIPT, MODE=mode)
    assert code == 0 and not log, log


@pytest.mark.parametrize("what", ["rank", "world_size", "layout"])
def test_a_process_without_a_place_does_not_say_0(zygote: Zygote, what: str) -> None:
    with Node(zygote, SCRIPT, 1, MODE=what) as node:
        node.hold = True
        member = node.members["job.0"]
        node.run(lambda: node.zygote.poll(member.pid) is not None)
        assert f"refused: session.{what}: this process has no rank yet" in member.log.read_text()


def test_a_process_of_multiprocessing_is_no_rank(zygote: Zygote) -> None:
    """It runs the script's module level, with its Session, and may not train, nor speak for its rank."""
    with Node(zygote, SCRIPT, 1, MODE="worker") as node:
        node.run()
        member = node.members["job.0"]
        log = member.log.read_text()
        assert "in the worker 0" in log and "cannot call an elastic function" in log
        assert [message["pid"] for message in member.said if message["op"] == "hello"] == [member.pid]
