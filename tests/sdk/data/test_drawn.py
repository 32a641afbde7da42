"""The samples of the running step in words, however the script takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from holdfast import Session
from holdfast.data import drawn, sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N, BATCH = 64, 4
ITSELF = "batch not known: the script reads its data itself"


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(seed=None)
    yield made
    made.close()


def told(session: Session, take: Callable[[Any], Any], start: Callable[[], Any] = lambda: None) -> list[str]:
    """What is said in each of three steps, in which `take` gets what `start` has made."""
    model = torch.nn.Linear(2, 2)
    session.track(model=model)

    @session.elastic
    def train() -> list[str]:
        made, found = start(), []
        for _ in session.steps(3):
            take(made)
            found.append(drawn.described(session.runtime.streams))
        return found

    return list(train())


def expected(step: int, size: int = BATCH, seed: int = 0) -> list[int]:
    return list(sampling.indices(N, step * size, size, seed).tolist())


def named(step: int) -> str:
    return f"rank 0 has the samples {', '.join(map(str, expected(step)))}"


def test_a_script_that_draws_itself_is_told_so(session: Session) -> None:
    assert set(told(session, lambda _: torch.randn(4))) == {
        "batch not known: the script reads its data itself"
    }


def test_what_the_step_has_asked_for_is_named(session: Session) -> None:
    assert told(session, lambda _: session.sample_indices(N, BATCH)) == [named(step) for step in range(3)]


def test_only_a_step_that_takes_samples_names_them(session: Session) -> None:
    def take(_: Any) -> None:
        if session.step == 1:
            session.sample_indices(N, BATCH)

    found = told(session, take)
    assert found[1] == named(1) and "not known" in found[0] and "not known" in found[2]


def test_a_loader_and_a_sampler_count_like_the_indices(session: Session) -> None:
    data = torch.arange(N)
    assert told(session, next, lambda: iter(session.loader(data, BATCH)))[1] == named(1)
    batches = DataLoader(data, batch_sampler=session.sampler(N, BATCH))  # type: ignore[arg-type, var-annotated]
    assert "rank 0 has the samples" in told(session, next, lambda: iter(batches))[1]


def test_few_are_named_and_the_others_counted(session: Session) -> None:
    first = ", ".join(map(str, expected(0, size=20)[: drawn.SHOWN]))
    found = told(session, lambda _: session.sample_indices(N, 20))
    assert found[0] == f"rank 0 has the samples {first} and 12 more"


def test_of_two_data_sets_each_is_named(session: Session) -> None:
    def take(_: Any) -> None:
        session.sample_indices(N, BATCH)
        session.sample_indices(N, BATCH, seed=5)

    (found, *_) = told(session, take)
    other = ", ".join(map(str, expected(0, seed=5)))
    assert found.endswith(f"{other} of the data with n=64, global_batch=4, seed=5")
    assert f"{named(0)} of the data with n=64, global_batch=4, seed=0; " in found


class Counting(torch.utils.data.IterableDataset[int]):
    """Knows its position."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.at += 1
            yield self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_an_iterable_data_set_has_no_indices(session: Session) -> None:
    found = told(session, next, lambda: iter(session.loader(Counting(), BATCH)))
    assert set(found) == {"batch not known: an iterable data set has no indices"}
