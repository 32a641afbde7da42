"""Replicas differ, and real ranks run the steps again: what the runs give is judged by the core's table."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.failures import step_replays
from controlplane.core.records.evidence import ReplayPass
from tests.sdk.agreement.test_replicas import flip
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parent / "declaring.py"
FLAGS = {
    "HOLDFAST_CHECK_REPLICAS_EVERY": "4",
    "HOLDFAST_SNAPSHOT_EVERY": "4",
    "HOLDFAST_ON_CORRUPT_STATE": "act",
}


class Replayed:
    """One run until all ranks have reported how their replicas differ and what a replay gave."""

    def __init__(self, zygote: Zygote, fault: str, world_size: int = 3, at: str = "1:9", **more: str) -> None:
        step = at.split(":")[1]
        env: Any = FLAGS | more
        with Node(zygote, SCRIPT, world_size, FAULT=fault, AT=at, **env) as node:
            path = node.folder / f"addresses.{step}.json"
            while not self._over(node):
                node.turn()
                if path.exists() and not (node.folder / f"flipped.{step}").exists():
                    flip(json.loads(path.read_text()), "parameter", random.Random(f"{fault} {at}"))
                    (node.folder / f"flipped.{step}").touch()
            self.world_size = world_size
            said = [each for member in node.members.values() for each in member.said]
            self.results = node.results() if node.complete else []
            self.first = [each for each in said if each["op"] == "replicas" and each["ranks"]][:1]
            self.last = [_last(member.said) for member in node.members.values()]
            self.tried = [
                (each["rank"], each["step"])
                for path in (node.folder / "ledger").glob("*.jsonl")
                for each in map(json.loads, path.read_text().splitlines())
                if each["kind"] == "attempt" and each["generation"] == 1
            ]

    def _over(self, node: Node) -> bool:
        if node.ended():
            return True
        found = [_last(member.said) for member in node.members.values()]
        return all(each and each["replay"] != "running" for each in found)

    def answer(self) -> tuple[str, str, tuple[int, ...]]:
        """What all ranks' reports prove, which must be the same."""
        found = {self._judged(each) for each in self.last}
        assert len(found) == 1, self.last
        return found.pop()

    def _judged(self, said: dict[str, Any]) -> tuple[str, str, tuple[int, ...]]:
        passes = [
            ReplayPass(**{**each, "ranks": tuple(each["ranks"]), "digests": tuple(each["digests"])})
            for each in said["passes"]
        ]
        found = step_replays.judge(said["replay"], passes, self.world_size, said["odd"])
        return found.origin.value, found.why, found.ranks


def _last(said: list[dict[str, Any]]) -> dict[str, Any]:
    return next((each for each in reversed(said) if each["op"] == "replicas" and each["ranks"]), {})


@pytest.mark.parametrize(("world_size", "at"), [(3, "0:9"), (3, "2:10"), (4, "1:11")])
def test_a_flipped_bit_is_hardware_of_its_rank(zygote: Zygote, world_size: int, at: str) -> None:
    run = Replayed(zygote, "bit", world_size, at)
    assert run.first[0]["replay"] == "running", "it is reported before the steps run again"
    assert run.answer() == ("hardware", "not_again", (int(at[0]),))
    assert sorted(run.tried) == sorted(set(run.tried)), "what runs again consumes no samples"
    kinds = [each["kind"] for each in run.last[0]["passes"]]
    assert kinds in (["seen", "again", "again"], ["seen", "again", "again", "kept", "before"])


def test_of_two_replicas_with_a_flipped_bit_it_is_hardware_of_nobody_in_particular(zygote: Zygote) -> None:
    origin, why, ranks = Replayed(zygote, "bit", 2, "1:9").answer()
    assert (origin, why) == ("hardware", "not_again") and ranks in ((), (1,))


@pytest.mark.parametrize(("world_size", "at"), [(2, "1:9"), (3, "1:9"), (4, "3:10")])
def test_a_step_that_treats_one_rank_differently_is_software(
    zygote: Zygote, world_size: int, at: str
) -> None:
    run = Replayed(zygote, "place", world_size, at)
    ranks = () if world_size == 2 else (int(at[0]),)
    assert run.answer() == ("software", "follows_the_place", ranks), run.last[0]
    shifts = [each["shift"] for each in run.last[0]["passes"] if each["kind"] == "exchanged"]
    assert shifts == ([1] if world_size == 2 else [1, 2])


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("process", "follows_the_process"),
        ("clock", "not_deterministic"),
        ("schedule", "not_shown_faithful"),
        ("outside", "left_function"),
        ("undeclared", "no_step_function"),
        ("seedless", "own_random"),
        ("loader", "own_loader"),
    ],
)
def test_what_a_replay_cannot_decide_is_unknown_with_its_reason(zygote: Zygote, fault: str, why: str) -> None:
    assert Replayed(zygote, fault).answer() == ("unknown", why, ())


def test_gradients_that_are_carried_over_the_comparison_refuse_a_replay(zygote: Zygote) -> None:
    more = {"HOLDFAST_CHECK_REPLICAS_EVERY": "5", "HOLDFAST_SNAPSHOT_EVERY": "4"}
    assert Replayed(zygote, "carried", 3, "1:12", **more).answer() == ("unknown", "carried_gradients", ())


def test_where_the_policy_is_to_report_no_step_runs_again(zygote: Zygote) -> None:
    run = Replayed(zygote, "bit", HOLDFAST_ON_CORRUPT_STATE="report")
    assert run.results and {line["calls"] for line in run.results} == {16}
    (speaker,) = [each for each in run.last if each]
    assert (speaker["replay"], speaker["passes"]) == ("only_reported", [])


def test_a_declared_step_changes_no_bit_and_runs_once(zygote: Zygote) -> None:
    declared = Replayed(zygote, "never")
    plain = Replayed(zygote, "undeclared", at="9:0")
    assert {line["calls"] for line in declared.results} == {16}
    assert len({line["digest"] for line in (*declared.results, *plain.results)}) == 1
