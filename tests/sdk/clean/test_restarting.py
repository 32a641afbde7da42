"""What stands beside the steps and begins anew is told; what knows its place is not."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from holdfast import Session
from holdfast.clean.forgotten import ForgottenState
from holdfast.clean.loop_locals import unkept
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

X = torch.ones(8, 2)


def batches() -> Iterator[torch.Tensor]:
    yield from X


def asking(session: Session) -> Iterator[torch.Tensor]:
    while True:
        yield X[session.sample_indices(8, 4)]


class Stream:
    """Begins anew with each `iter`."""

    def __init__(self, source: Any = None) -> None:
        self.source = source

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(X)

    def parts(self) -> Iterator[torch.Tensor]:
        return iter(X)


class Shared(Stream):
    """Gives each rank its share of the rows, from the first on."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(X[self.session.rank :: self.session.world_size])


class Asking(Shared):
    """Gives the rows of the step."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield self.rows()

    def rows(self) -> torch.Tensor:
        return X[self.session.step :]


def share(session: Session) -> Iterator[torch.Tensor]:
    yield from X[session.rank :: session.world_size]


def cycled() -> Iterator[torch.Tensor]:
    while True:
        yield from rows


def at_step(asked: Session) -> Iterator[torch.Tensor]:
    while True:
        yield X[asked.step :]


def sessions(loader: Any) -> Iterator[torch.Tensor]:
    yield from loader


load: Any = DataLoader
rows = load(X)


class Placed(Stream):
    """Says where it is."""

    def state_dict(self) -> dict[str, int]:
        return {"at": 0}


def told(main: Any, **values: Any) -> list[str]:
    """What begins anew in a function that asks for its steps in its first line."""
    found = unkept(main.__code__, main.__code__.co_firstlineno + 1, globals() | values)
    return [each.name for each in found if each.again]


def test_generators_and_objects_of_the_script_beside_the_steps_begin_anew() -> None:
    def main(session: Any, stream: Any) -> None:
        for _step, a, b, c in zip(session.steps(2), batches(), stream, Stream(), strict=False):
            print(a, b, c)
        for _step, a, b, c in zip(
            session.steps(2), torch.split(X, 2), (row for row in X), stream.parts(), strict=False
        ):
            print(a, b, c)
        for _step, a in zip(session.steps(2), X, strict=False):
            print(a)

    found = told(main, session=Session(), stream=Stream())
    assert found == [
        "batches()",
        "stream",
        "Stream()",
        "torch.split(X, 2)",
        "(row for row in X)",
        "stream.parts()",
        "X",
    ]


def test_a_rank_s_share_begins_anew_unless_the_session_is_asked_for_the_step() -> None:
    session = Session()
    loader = session.loader(TensorDataset(X), 4)

    def main(session: Any, begun: Any) -> None:
        for _step, a, b, c in zip(session.steps(2), share(session), Shared(session), cycled(), strict=False):
            print(a, b, c)
        for _step, a, b in zip(session.steps(2), begun, load(Shared(session)), strict=False):
            print(a, b)

    def placed(session: Any, asking: Any, loader: Any, begun: Any) -> None:
        for _step, a, b in zip(session.steps(2), asking, sessions(loader), strict=False):
            print(a, b)
        for _step, a, b, c in zip(session.steps(2), begun, Asking(session), at_step(session), strict=False):
            print(a, b, c)

    found = told(main, session=session, begun=Shared(session))
    assert found == ["share(session)", "Shared(session)", "cycled()", "begun", "load(Shared(session))"]
    given = {"asking": Asking(session), "loader": loader, "begun": sessions(loader)}
    assert told(placed, session=session, **given) == []


def test_loops_around_an_iterator_of_steps_begin_anew() -> None:
    def main(session: Any, data: Any) -> None:
        steps = iter(session.steps(9))
        for epoch in range(3):
            for x in data:
                step = next(steps, None)
                if step is None:
                    return
                print(x, step, epoch)

    found = unkept(main.__code__, main.__code__.co_firstlineno + 4, globals() | {"data": rows})
    assert [(each.name, each.again) for each in found] == [("range(3)", True), ("data", True)]


def test_what_the_session_places_and_what_never_changes_is_not_told() -> None:
    session = Session()
    loader = session.loader(TensorDataset(X), 4)
    own = DataLoader(TensorDataset(X), batch_sampler=session.sampler(8, 4))

    def main(session: Any, loader: Any, own: Any, placed: Any, around: Any, running: Any, steps: Any) -> None:
        for _step, a, b, c in zip(session.steps(2), asking(session), loader, own, strict=False):
            print(a, b, c)
        for _step, n, b, c in zip(session.steps(2), map(len, loader), placed, around, strict=False):
            print(n, b, c)
        for _step, a, b in zip(session.steps(2), itertools.repeat(X), running, strict=False):
            print(a, b)
        for number in list(steps):
            session.begin_step(number)

    values: dict[str, Any] = {"session": session, "loader": loader, "own": own, "placed": Placed()}
    values |= {"around": Stream(loader), "running": asking(session), "steps": session.steps(2)}
    assert told(main, **values) == []


class Endless(IterableDataset[torch.Tensor]):
    """A stream: its loader has no length, and nor has what samples for it."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return itertools.cycle(X)


def test_a_loader_without_a_length_begins_anew_like_others() -> None:
    loader = DataLoader(Endless(), 4)

    def main(session: Any, loader: Any) -> None:
        for _step, a in zip(session.steps(2), loader, strict=False):
            print(a)

    assert told(main, session=Session(), loader=loader) == ["loader"]
    assert told(main, session=Session(), loader=iter(loader)) == ["loader"]


class Closed(Stream):
    """Its attributes cannot be read."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(X)


def test_what_cannot_be_looked_at_beside_the_steps_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    looks, rows = ForgottenState(TrackedState()), []

    def steps() -> Iterator[int]:
        looks.begin()
        yield from range(3)

    def train() -> None:
        closed = Closed()
        for step, row in zip(steps(), closed, strict=False):
            rows.append((step, row))

    looks.entered(train, ())
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        train()
    assert len(rows) == 3
    assert [each for each in caplog.messages if "cannot be seen" in each and "here" in each]
