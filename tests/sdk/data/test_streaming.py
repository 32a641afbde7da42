"""Iterable data: each replica's place in it outlives its ranks, is dealt anew to a world of another size, and
its end is the same step for everybody."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import SessionError
from holdfast.data.contract import StreamPosition
from holdfast.data.places import StreamPositions
from holdfast.data.stateful import decode, encode
from tests.sdk.data.test_loading import Told, read
from tests.sdk.node import Node
from tests.sdk.reentry.test_resize import ElasticNode
from tests.sdk.test_session import alone

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("streaming.py")
BATCH, STEPS = 8, 30
KILL = json.dumps([{"rank": 1, "step": 6, "phase": "part0"}, {"rank": 0, "step": 11, "phase": "part0"}])
ALL_DIE = json.dumps([{"rank": rank, "step": 8, "phase": "part0"} for rank in (0, 1)])


def wanted(steps: int, dp: int = 2) -> dict[int, list[int]]:
    """Replica by replica, each its own numbers."""
    share = BATCH // dp
    return {
        step: [rank + dp * (share * step + place) for rank in range(dp) for place in range(share)]
        for step in range(steps)
    }


def trained(zygote: Zygote, **env: Any) -> tuple[Told, list[dict[str, Any]], list[int]]:
    with Node(zygote, SCRIPT, 2, spares=1, **env) as node:
        node.run()
        return read(node.folder), node.results(), [one["resume"]["step"] for one in node.generations]


@pytest.mark.parametrize("mode", ["", "object", "batches"])
def test_a_replacement_goes_on_at_the_dead_ranks_place(zygote: Zygote, mode: str) -> None:
    calm, ends, _ = trained(zygote, MODE=mode)
    told, found, resumes = trained(zygote, MODE=mode, KILL=KILL)
    assert resumes == [0, 6, 11], "no step is lost"
    assert calm.samples == told.samples == wanted(STEPS)
    assert calm.noise == told.noise and [line["sums"] for line in ends] == [line["sums"] for line in found]


@pytest.mark.parametrize("mode", ["", "forgets"])
def test_a_generator_that_a_state_leaves_out_is_named(zygote: Zygote, mode: str) -> None:
    with Node(zygote, SCRIPT, 2, MODE=mode, STEPS="6") as node:
        node.run()
        said = [node.seat(rank).log.read_text() for rank in (0, 1)]
    named = "Numbers draws from a random generator that its state_dict leaves out: shuffle"
    assert (named in said[0]) == (mode == "forgets")
    assert "leaves out" not in said[1]


def test_all_die_and_the_snapshot_says_where_each_stood(zygote: Zygote) -> None:
    told, _, resumes = trained(zygote, KILL=ALL_DIE)
    assert resumes == [0, 5] and told.samples == wanted(STEPS)


def test_a_kill_in_the_very_first_step(zygote: Zygote) -> None:
    kill = json.dumps([{"rank": 0, "step": 0, "phase": "part0"}])
    for mode in ("", "object"):
        told, _, resumes = trained(zygote, MODE=mode, KILL=kill, STEPS="6")
        assert resumes == [0, 0] and told.samples == wanted(6)


def test_a_break_that_goes_back_over_many_steps(zygote: Zygote) -> None:
    """Gradients of six steps count in one step of the optimizer: a break goes back behind the last one."""
    env = {"EVERY": "6", "STEPS": "18"}
    calm, ends, _ = trained(zygote, **env)
    kill = json.dumps([{"rank": 1, "step": 11, "phase": "part0"}])
    told, found, resumes = trained(zygote, KILL=kill, **env)
    assert resumes == [0, 6] and calm.samples == told.samples == wanted(18)
    assert calm.noise == told.noise and [line["sums"] for line in ends] == [line["sums"] for line in found]


def test_a_place_that_is_not_kept_any_more_is_refused() -> None:
    places = StreamPositions()
    for step in range(1, 9):
        places.hold(3, step, StreamPosition(8, (b"%d" % step,)))
        places.trim(2, step)
    assert [places.at(3, step) for step in (0, 2, 8)] == [
        None,
        (2, StreamPosition(8, (b"2",))),
        (8, StreamPosition(8, (b"8",))),
    ]
    for step in (1, 5, 7):
        with pytest.raises(SessionError, match="seed 3 was consumed before step"):
            places.at(3, step)
    places.trim(2, 2)
    assert places.at(3, 9) == (2, StreamPosition(8, (b"2",))), "what was to come comes again"


def test_an_object_made_outside_begins_each_function_as_it_was_given(zygote: Zygote) -> None:
    """Killed in the first step of either of two functions, and once more in the second."""
    places = [(0, "part0", 0), (1, "later0", 0), (0, "later0", 3)]
    kills = json.dumps([{"rank": rank, "phase": phase, "step": step} for rank, phase, step in places])
    with Node(zygote, SCRIPT, 2, spares=1, MODE="lazy", FUNCTIONS="2", STEPS="6", KILL=kills) as node:
        node.functions = 2
        node.run()
        told = [read(node.folder, book).samples for book in ("book", "book1")]
        assert len(node.generations) == 5 and len(node.incidents) == 3
    assert told == [wanted(6)] * 2


def test_an_object_that_was_moved_between_functions_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    code, _, log = alone(zygote, tmp_path, SCRIPT, MODE="moved", FUNCTIONS="2", STEPS="2")
    assert code == 1 and "this Lazy was read in another elastic function and moved since" in log


def test_micro_batches_between_which_a_rank_dies(zygote: Zygote) -> None:
    kill = json.dumps([{"rank": 1, "step": 6, "phase": "part1"}])
    told, _, _ = trained(zygote, MICRO="3", KILL=kill)
    assert told.samples == wanted(STEPS) and told.weights[3] == [[1.0, 1.0]] * 2


def test_the_end_of_the_data_is_the_same_step_for_all(zygote: Zygote) -> None:
    """Replica 1 has 190 numbers: 47 whole shares of four. Replica 0 has 200."""
    told, results, resumes = trained(zygote, MODE="short", STEPS="100", KILL=KILL)
    assert [line["step"] for line in results] == [47, 47] and len(resumes) == 3
    assert told.samples == wanted(47)


def test_a_world_of_another_size_is_dealt_anew(zygote: Zygote) -> None:
    kill = json.dumps([{"rank": 1, "step": 4, "phase": "part0"}])
    env = {"DEALT": "1", "KILL": kill, "WAIT_FOR": "9", "STEPS": "20"}
    with ElasticNode(zygote, SCRIPT, 4, **env) as node:  # type: ignore[arg-type]
        node.run(lambda: node.world_size == 3 and node.generation > 1 and node.trained(9))
        node.grow()
        node.run()
        told = read(node.folder)
        assert [one["world_size"] for one in node.generations] == [4, 3, 4]
    taken = [number for step in sorted(told.samples) for number in told.samples[step]]
    assert len(taken) == len(set(taken)) == 20 * BATCH, "none twice"
    assert max(taken) < 22 * BATCH, "and none left behind for long"
    assert {tuple(map(tuple, each)) for step, each in told.weights.items() if step > 9} == {((1.0,),) * 4}


def test_a_world_of_another_size_is_refused_where_nobody_deals(zygote: Zygote) -> None:
    kill = json.dumps([{"rank": 1, "step": 4, "phase": "part0"}])
    with ElasticNode(zygote, SCRIPT, 3, KILL=kill, MODE="") as node:
        node.run(lambda: any(node.zygote.poll(member.pid) == 1 for member in node.members.values()))
        logs = "".join(member.log.read_text() for member in node.members.values())
    assert "a Numbers was read by 3 replicas and has no method redistribute(states, old_dp, new_dp)" in logs


@pytest.mark.skipif(importlib.util.find_spec("torchdata") is None, reason="torchdata is not installed")
def test_torchdatas_loader_with_workers(zygote: Zygote) -> None:
    told, _, resumes = trained(zygote, MODE="torchdata", KILL=KILL)
    assert resumes == [0, 6, 11] and told.samples == wanted(STEPS)


def test_states_are_plain_or_refused_by_name() -> None:
    numpy = pytest.importorskip("numpy")
    state = {
        "at": numpy.int64(3),
        "rows": numpy.arange(3),
        "t": torch.ones(2, 2).bfloat16(),
        5: (None, b"x", []),
    }
    found = decode(encode(state))
    assert found["at"] == 3 and type(found["at"]) is int and found[5] == (None, b"x", [])
    assert found["rows"].tolist() == [0, 1, 2] and torch.equal(found["t"], state["t"])
    assert torch.equal(decode(encode({"none": torch.empty(0, 3)}))["none"], torch.empty(0, 3))
    with pytest.raises(SessionError, match=r"state\[rng\]|state\['rng'\].*cannot be kept"):
        encode({"rng": object()})
