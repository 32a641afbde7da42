"""A profile of this process by torch's real profiler: whole steps, and each reason why there is none."""

from __future__ import annotations

import gzip
import json
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.profiler import profile, schedule

from holdfast.ipc.messages.agent import Profile
from holdfast.ipc.messages.profiles import Profiled, ProfileTaken
from holdfast.telemetry import profile_policy
from holdfast.telemetry.profiling import StepProfiler
from holdfast.telemetry.step_trace import OUTSIDE, StepTrace

if TYPE_CHECKING:
    from pathlib import Path

GENERATION = 3
WAIT_S = 120.0


class Rank:
    """A loop over steps with a profiler at its boundaries."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "j.0.profile-1-1.json.gz"
        self.said: queue.Queue[Profiled | ProfileTaken] = queue.Queue()
        self.profiler = StepProfiler(self.said.put)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(16, 16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.step = 7

    def ask(self, *, steps: int = 2, timeout_s: float = 60.0, bytes_max: int = 1 << 26) -> str:
        return self.profiler.ask(Profile("1-1", GENERATION, steps, str(self.path), timeout_s, bytes_max))

    def train(self, steps: int = 1, inside: Any = None) -> None:
        for _ in range(steps):
            self.profiler.begin_step(self.step, GENERATION)
            self.optimizer.zero_grad()
            self.model(torch.ones(4, 16)).square().mean().backward()
            if inside is not None:
                inside()
            self.optimizer.step()
            self.step += 1
            self.profiler.end_step()

    def answer(self) -> Profiled:
        while not isinstance(found := self.said.get(timeout=WAIT_S), Profiled):
            pass
        return found

    def events(self) -> list[dict[str, Any]]:
        with gzip.open(self.path) as file:
            found: list[dict[str, Any]] = json.load(file)["traceEvents"]
        return found


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def left(rank: Rank) -> list[str]:
    return [path.name for path in rank.path.parent.iterdir()]


def test_the_next_whole_steps_are_in_the_trace_and_no_more(rank: Rank) -> None:
    rank.train()
    assert rank.ask() == ""
    rank.train(5)
    found = rank.answer()
    assert found.reason == "" and found.path == str(rank.path) and found.bytes == rank.path.stat().st_size
    assert (found.first_step, found.steps, found.generation) == (8, 2, GENERATION)
    spans = {each["name"] for each in rank.events() if str(each.get("name", "")).startswith("holdfast step")}
    assert spans == {"holdfast step 8", "holdfast step 9"}
    calls = {each.name: each.calls for each in found.operators}
    assert calls["aten::addmm"] == 2 and calls[OUTSIDE] == 2
    assert found.cpu_s >= sum(each.cpu_s for each in found.operators) > 0
    assert len(found.operators) <= profile_policy.OPERATORS_MAX
    times = [each.cpu_s for each in found.operators]
    assert times == sorted(times, reverse=True)
    assert left(rank) == [rank.path.name] and rank.path.stat().st_mode & 0o777 == 0o600
    rank.path.unlink()
    assert rank.ask(steps=1) == "", "a rank can be profiled again"
    rank.train(2)
    assert rank.answer().steps == 1


def test_weights_are_the_same_by_every_bit(rank: Rank, tmp_path: Path) -> None:
    undisturbed = Rank(tmp_path)
    undisturbed.train(6)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    profiled = Rank(tmp_path)
    profiled.train(2)
    profiled.ask()
    profiled.train(4)
    assert profiled.answer().reason == ""
    assert torch.equal(profiled.model.weight, undisturbed.model.weight)
    assert torch.equal(profiled.model.bias, undisturbed.model.bias)
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_second_request_is_refused_by_name(rank: Rank) -> None:
    rank.ask()
    assert "request 1-1" in rank.ask()
    rank.train(1)
    assert "request 1-1" in rank.ask()
    rank.train(1)
    assert rank.answer().reason == ""


def test_no_profile_beside_one_of_the_script(rank: Rank) -> None:
    with profile() as theirs:
        rank.ask()
        rank.train()
    assert "profiles by itself" in rank.answer().reason
    assert theirs.key_averages(), "and theirs is whole"


def test_no_profile_in_the_warm_up_of_one_of_the_script(rank: Rank) -> None:
    with profile(schedule=schedule(wait=0, warmup=2, active=1, repeat=1)) as theirs:
        theirs.step()
        rank.ask()
        rank.train()
        assert "warm-up" in rank.answer().reason
        theirs.step()
        rank.train()
        theirs.step()
    names = {each.key for each in theirs.key_averages()}
    assert "aten::addmm" in names, "and theirs is whole"


def test_ours_ends_before_one_of_the_script_begins(rank: Rank) -> None:
    rank.ask(steps=5)
    rank.train()
    theirs = profile()
    theirs.start()
    assert "began to profile by itself" in rank.answer().reason
    rank.train()
    theirs.stop()
    assert "aten::addmm" in {each.key for each in theirs.key_averages()}
    rank.ask(steps=1)
    rank.train()
    assert rank.answer().reason == ""


def test_ours_ends_at_a_boundary_before_one_of_another_thread_begins(rank: Rank) -> None:
    rank.ask(steps=50)
    rank.train()
    began = threading.Event()

    def theirs() -> None:
        with profile():
            began.set()

    other = threading.Thread(target=theirs)
    other.start()
    while not began.is_set():
        rank.train()
    other.join()
    assert "began to profile by itself" in rank.answer().reason


def test_the_end_of_the_generation_and_of_the_loop_end_it(rank: Rank) -> None:
    rank.ask(steps=3)
    rank.train()
    rank.profiler.begin_step(rank.step, GENERATION + 1)
    assert f"generation {GENERATION} has ended" in rank.answer().reason
    rank.ask(steps=3)
    rank.train()
    rank.profiler.leave("the rank has left the generation")
    assert rank.answer().reason == "the rank has left the generation, with 1 of 3 steps recorded"
    rank.profiler.leave("again")
    assert rank.said.empty() and left(rank) == []


def test_its_time_is_over(rank: Rank) -> None:
    rank.ask(steps=3, timeout_s=0.01)
    rank.train()
    time.sleep(0.02)
    rank.train()
    assert "not complete within 0.01 s" in rank.answer().reason


def test_a_request_that_was_never_begun_makes_way_after_its_time(rank: Rank) -> None:
    rank.ask(timeout_s=0.001)
    time.sleep(0.01)
    assert rank.ask() == ""
    rank.train(2)
    assert rank.answer().reason == ""


def test_a_trace_over_the_limit_is_not_kept(rank: Rank) -> None:
    rank.ask(bytes_max=100)
    rank.train(2)
    assert "larger than 0 MiB" in rank.answer().reason
    assert left(rank) == []


def test_a_folder_that_is_gone_is_a_reason(rank: Rank) -> None:
    rank.path = rank.path.parent / "gone" / rank.path.name
    rank.ask()
    rank.train(2)
    assert "FileNotFoundError" in rank.answer().reason
    rank.train()


def test_too_many_events_for_a_table_are_named() -> None:
    trace = StepTrace()
    trace.start()
    trace.begin_step(0)
    torch.ones(4).add(1)
    trace.stop()
    assert trace.operators(events_max=1)[0] == () and "no table of" in trace.operators(events_max=1)[1]
    assert "aten::add" in {each.name for each in trace.operators()[0]}


def test_a_fork_ends_it(rank: Rank) -> None:
    rank.ask(steps=3)
    rank.train()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked" in rank.answer().reason
    rank.train(3)
    assert left(rank) == []
