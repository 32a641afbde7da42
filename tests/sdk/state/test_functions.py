"""Several elastic functions without an agent, and the book of those that are over."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import RestoreError, SessionError
from holdfast.state import functions
from holdfast.state.functions import Functions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

ALONE = """
import torch
from holdfast import Session
seen = []
def fold(session, number):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.track(model=model, optimizer=optimizer)
    @session.elastic
    def train():
        for step in session.steps(3 + number):
            seen.append((number, step, session.step, session.data_step))
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        return session.step
    assert train() == session.step == 3 + number
session = Session()
fold(session, 0)
fold(session, 1)
session.close()
fold(Session(), 2)
assert seen == [(n, s, s, s) for n in range(3) for s in range(3 + n)], seen
"""


def test_alone_each_function_counts_its_own_steps(zygote: Zygote, tmp_path: Path) -> None:
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(ALONE)
    pid = zygote.spawn(script, dict(os.environ), log)
    deadline = time.monotonic() + 200
    while (code := zygote.poll(pid)) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
    assert code == 0, log.read_text()


def passed(*steps: int) -> Functions:
    book = Functions()
    for index, count in enumerate(steps):
        book.call(f"f{index}")
        done = book.base + count
        book.end(f"f{index}", done, [index], "", kept=True) if index % 2 else book.leave(f"f{index}", done)
    return book


def test_the_job_counts_steps_that_only_grow() -> None:
    book = passed(5, 7, 2)
    assert [(each.base, each.end, each.steps) for each in book.finished] == [
        (0, 5, 5),
        (6, 14, 7),
        (15, 17, 2),
    ]
    assert book.base == 18 and book.local(17) == 2
    book.call("next")
    assert book.local(18) == 0 and book.local(21) == 3


def test_who_joins_later_learns_what_is_over_in_the_state() -> None:
    text, joined = passed(5, 7).text(), Functions()
    joined.learn(text, 20)
    assert joined.call("f0") == 0 and joined.over(0) and joined.value(0) is None
    assert joined.call("f1") == 1 and joined.value(1) == [1] and joined.local(20) == 7
    older = Functions()
    older.learn(text, 13)
    assert [each.name for each in older.finished] == ["f0"], "its end is not in this state"
    with pytest.raises(SessionError, match="calls other as elastic function 1, but the other ranks"):
        older.call("other")


def test_batches_left_out_count_in_their_own_function() -> None:
    book = passed(5)
    windows = ((2, 4), (10, 11))
    assert [book.batch(step, windows) for step in (6, 7, 8, 9)] == [0, 1, 3, 4]
    assert book.batch(5, windows) == 7, "the state of a function that is over: what would come next in it"


def test_a_header_that_cannot_be_is_refused() -> None:
    for text in ('{"a": 1}', "[[1]]", '[["f", 0, "x", 1, null, ""]]', "["):
        with pytest.raises(RestoreError):
            functions.parse(text)
