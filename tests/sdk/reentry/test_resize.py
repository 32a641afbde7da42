"""Ranks of a living job are numbered anew: it shrinks, it grows at a step boundary, and learns the same."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from holdfast import Session, SessionError
from holdfast.data import sampling
from holdfast.data.weighting import Weighting
from holdfast.reentry import misuse
from tests.sdk.node import Node, samples
from tests.sdk.reentry import uneven

if TYPE_CHECKING:
    from tests.sdk.node import Member
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("uneven.py")


class ElasticNode(Node):
    """The tests' node, for a job that may shrink and grow."""

    def reap(self) -> None:
        """Nobody takes the place of a dead rank."""
        super().reap()
        left = [name for name in self.seats if not self.members[name].gone]
        if not self.complete and len(left) < len(self.seats):
            self.seats, self.world_size = left, len(left)

    def decide(self) -> None:
        """Nobody is left to form a group when all have ended."""
        if self.world_size:
            super().decide()

    def grow(self) -> Member:
        """One more rank: brought to the barrier first; then all stop at the end of a step."""
        newcomer = self.start()
        self.run(lambda: newcomer.ready is not None)
        self.world_size += 1
        frame = {"op": "interrupt", "generation": self.generation, "reason": "grows", "gentle": True}
        self.everyone(frame)
        (self.folder / "go").touch()
        number = self.generation
        self.run(lambda: self.generation > number)
        return newcomer

    def trained(self, step: int) -> bool:
        return all(self.members[name].board.completed >= step for name in self.seats)


def reference() -> list[float]:
    """One process, whole batches."""
    model, optimizer, data, target = uneven.build()
    for step in range(uneven.STEPS):
        chosen = sampling.indices(uneven.N, step * uneven.BATCH, uneven.BATCH, seed=3)
        optimizer.zero_grad()
        (model(data[chosen]) - target[chosen]).square().mean().backward()
        optimizer.step()
    return [float(parameter.detach().sum()) for parameter in model.parameters()]


def every_sample() -> dict[int, list[int]]:
    batch = uneven.BATCH
    return {
        step: sampling.indices(uneven.N, step * batch, batch, seed=3).tolist() for step in range(uneven.STEPS)
    }


def test_four_three_four_ranks_learn_what_one_process_learns(zygote: Zygote) -> None:
    with ElasticNode(zygote, SCRIPT, 4) as node:
        node.run(lambda: bool(node.seats) and node.trained(6))
        first, pids = node.seats[0], [node.members[name].pid for name in node.seats]
        os.kill(pids[1], signal.SIGKILL)
        node.run(lambda: node.world_size == 3 and node.generation > 1 and node.trained(12))
        node.grow()
        node.run()
        results = node.results()
        consumed = samples(node.folder / "ledger")
        formed = [[node.members[seat["member"]].pid for seat in each["seats"]] for each in node.generations]
        resumes = [(each["resume"]["tier"], each["world_size"]) for each in node.generations]
        said = {name: member.log.read_text() for name, member in node.members.items()}
    assert resumes == [("fresh", 4), ("donor", 3), ("donor", 4)]
    assert formed[1] == [pids[0], pids[2], pids[3]] and formed[2][:3] == formed[1], "their order is kept"
    assert consumed == every_sample(), "every sample of every step, once"
    stale = [
        name for name, text in said.items() if "with 3 ranks, it had 4, and uneven.py reads WORLD_S" in text
    ]
    assert stale == [first], "rank 0 alone tells it"
    assert not any("takes no samples from the session" in text for text in said.values())
    wanted = reference()
    assert [line["env"] for line in results] == ["4"] * 4
    for line in results:
        assert line["sums"] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    seen = {tuple(each[1:]) for line in results for each in line["seen"]}
    assert {world for world, _ in seen} == {3, 4} and len({weight for _, weight in seen}) > 2


def test_a_gentle_stop_is_at_a_step_boundary(zygote: Zygote) -> None:
    """All ranks come with the same number of completed steps, and no step is begun in vain."""
    with ElasticNode(zygote, SCRIPT, 3) as node:
        node.run(lambda: bool(node.seats) and node.trained(5))
        node.grow()
        grown = len(node.generations[-1]["seats"])
        node.run()
        attempts: dict[int, set[int]] = {}
        for path in (node.folder / "ledger").glob("*.jsonl"):
            for line in map(json.loads, path.read_text().splitlines()):
                if line["kind"] == "committed":
                    attempts.setdefault(line["step"], set()).add(line["generation"])
    assert grown == 4
    assert all(len(generations) == 1 for generations in attempts.values()), "a completed step ran twice"


def test_equal_shares_cost_nothing_and_unequal_ones_are_weighted() -> None:
    model, weighting = torch.nn.Linear(2, 1, bias=False), Weighting()
    weighting.watch(model)
    weighting.share(5, 20, 4)
    assert not weighting._handles, "equal shares: no hook is there"
    gradients = []
    for share in (4, 5, 0):
        weighting.begin()
        weighting.share(share, 20, 4)
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        assert model.weight.grad is not None
        gradients.append(model.weight.grad.tolist()[0])
    assert gradients == [pytest.approx([wanted] * 2) for wanted in (0.8, 1.0, 0.0)]
    weighting.reset()
    assert not weighting._handles and weighting.weight == 1.0


@pytest.mark.parametrize("sizes", [(10, 9), (9, 10), (9, 18, 10)])
def test_a_pass_over_samples_of_two_weights_is_refused(sizes: tuple[int, ...]) -> None:
    """Three ranks: their shares of 9 are equal, those of 10 are not."""
    model, weighting = torch.nn.Linear(2, 1, bias=False), Weighting()
    weighting.watch(model)
    for _ in range(2):
        weighting.begin()
        for size in sizes:  # each has a pass of its own
            weighting.share(3, size, 3) if size < 18 else weighting.share(6, size, 3)
            model(torch.ones(1, 2)).sum().backward()
    weighting.begin()
    for size in sizes:
        weighting.share(3, size, 3) if size < 18 else weighting.share(6, size, 3)
    with pytest.raises(SessionError, match=r"samples with the weights \[0.9, 1.0\] were taken before this"):
        model(torch.ones(1, 2)).sum().backward()


def test_a_script_that_deals_out_its_samples_is_told_when_there_are_other_ranks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session(seed=None)
    state = session.runtime.state
    state.entry.fresh, state.world_size = False, 3
    for before, dealt in ((0, False), (3, False), (2, True)):
        misuse.tell_resized(state, before, dealt=dealt)
    assert "no samples" not in caplog.text
    misuse.tell_resized(state, 2, dealt=False)
    assert "goes on with 3 ranks, it had 2, and the script takes no samples from the session" in caplog.text
    session.close()
