"""A trainer that owns the loop begins and ends steps by itself; it hears when groups come and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from holdfast.errors import SessionError
from tests.sdk.node import Node, samples

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "trainer.py"


def outcome(zygote: Zygote, loop: str, kill: dict[str, Any]) -> tuple[set[str], Any, list[list[Any]]]:
    """Digests, samples, and each rank's events."""
    with Node(zygote, SCRIPT, 3, spares=1, LOOP=loop, KILL=json.dumps(kill)) as node:
        node.run()
        results = node.results()
        assert [line["rank"] for line in results] == [0, 1, 2]
        digests = {line["digest"] for line in results}
        return digests, samples(node.folder / "ledger"), [line["events"] for line in results]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_loop_of_calls_survives_as_a_loop_over_steps_does(zygote: Zygote, victim: int) -> None:
    whole, order, quiet = outcome(zygote, "steps", {})
    assert len(whole) == 1
    assert quiet == [[["form", 1, rank, 3], ["leave", 1, True]] for rank in range(3)]
    found, taken, events = outcome(zygote, "calls", {"rank": victim, "step": 6})
    assert found == whole and taken == order
    for rank, lines in enumerate(events):
        numbers = [line[1] for line in lines if line[0] == "form"]
        assert numbers == ([2] if rank == victim else [1, 2])
        assert lines == [
            each for number in numbers for each in (["form", number, rank, 3], ["leave", number, True])
        ]


@pytest.mark.parametrize("loop", ["steps", "calls"])
def test_what_either_loop_changes_and_does_not_track_is_named(zygote: Zygote, loop: str) -> None:
    with Node(zygote, SCRIPT, 2, LOOP=loop) as node:
        node.run()
        said = [node.seat(rank).log.read_text() for rank in (0, 1)]
    assert "the steps change what is not tracked: losses." in said[0]
    assert "not tracked" not in said[1]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    found = Session()
    found.track(model=torch.nn.Linear(2, 2))
    return found


def test_calls_in_the_wrong_order_are_named(session: Session) -> None:
    with pytest.raises(SessionError, match="begin_step"):
        session.begin_step(3)

    @session.elastic
    def train() -> None:
        with pytest.raises(SessionError, match="no step has been begun"):
            session.end_step()
        assert session.begin_step(2) == 0
        with pytest.raises(SessionError, match="step 0 has not ended"):
            session.begin_step(2)
        with pytest.raises(SessionError, match="use one of the two"):
            next(iter(session.steps(2)))
        session.end_step()
        with pytest.raises(SessionError, match="total is 3, and was 2"):
            session.begin_step(3)
        assert session.begin_step(2) == 1
        session.end_step()
        assert session.begin_step(2) is None is session.begin_step(2)
        with pytest.raises(SessionError, match="no step has been begun"):
            session.end_step()
        with pytest.raises(SessionError, match="on_form: call it before the function"):
            session.on_form(print)

    train()
    with pytest.raises(SessionError, match="on_leave: 7 is not callable"):
        session.on_leave(7)  # type: ignore[arg-type]


def test_samples_of_later_steps_are_known_and_not_consumed(session: Session) -> None:
    @session.elastic
    def train() -> None:
        ahead = [session.indices_at(step, 100, 8).tolist() for step in range(4)]
        with pytest.raises(SessionError, match="step must be 0 or later, not -1"):
            session.indices_at(-1, 100, 8)
        for step in session.steps(4):
            assert session.sample_indices(100, 8).tolist() == ahead[step]
            halves = [session.indices_at(step, 100, 8, micro=(part, 2)).tolist() for part in (0, 1)]
            assert halves[0] + halves[1] == ahead[step]
            with pytest.raises(SessionError, match="seed 0 is used for n=100"):
                session.indices_at(3, 50, 8)

    with pytest.raises(SessionError, match="indices_at: call it in the function"):
        session.indices_at(0, 100, 8)
    train()


def test_samples_are_not_foretold_before_the_state_is_there() -> None:
    session = Session()

    @session.elastic
    def train() -> None:
        session.track(model=torch.nn.Linear(2, 2))
        with pytest.raises(SessionError, match="indices_at: the state is not restored yet: call restore"):
            session.indices_at(0, 100, 8)
        session.restore()
        assert len(session.indices_at(0, 100, 8)) == 8

    train()


def test_callbacks_come_in_pairs_though_the_function_raises(session: Session) -> None:
    events: list[str] = []
    session.on_form(lambda: events.append("form"))
    session.on_leave(lambda: events.append("leave"))

    @session.elastic
    def train() -> None:
        events.append("train")
        session.begin_step(3)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train()
    assert events == ["form", "train", "leave"]


def test_the_script_draws_other_numbers_after_each_function(session: Session) -> None:
    """Also after several that take as many steps: an evaluation of its own takes none."""

    @session.elastic
    def evaluate() -> None:
        session.restore()

    drawn = []
    for _ in range(3):
        evaluate()
        drawn.append(torch.rand(()).item())
    assert len(set(drawn)) == 3
