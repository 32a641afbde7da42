"""What stands beside the steps and begins anew is told; what knows its place is not."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import Session
from holdfast.clean.loop_locals import unkept

if TYPE_CHECKING:
    from collections.abc import Iterator

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
