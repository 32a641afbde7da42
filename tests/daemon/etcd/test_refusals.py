"""What the log says while etcd refuses writes: each reason once, and when it is over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.refusals import REASONS_MAX, Refusals

if TYPE_CHECKING:
    import pytest

log = logging.getLogger("test.refusals")


def made() -> Refusals:
    return Refusals(log, "it")


def test_each_reason_is_said_once_and_the_end_with_the_number(caplog: pytest.LogCaptureFixture) -> None:
    refusals = made()
    for _ in range(50):
        refusals.refused(["a"], ValueError("away"))
        refusals.refused(["a"], ValueError("full"))
    refusals.taken(["a"])
    refusals.taken(["a"])
    assert caplog.messages == [
        "etcd did not accept it: away",
        "etcd did not accept it: full",
        "etcd accepts it again, after 100 refusals",
    ]


def test_it_is_over_when_etcd_holds_all_that_it_has_refused(caplog: pytest.LogCaptureFixture) -> None:
    refusals = made()
    for _ in range(50):
        refusals.refused(["bad"], ValueError("too large"))
        refusals.taken(["good", "other"])
    assert caplog.messages == ["etcd did not accept it: too large"]
    refusals.taken(["bad"])
    assert caplog.messages[1:] == ["etcd accepts it again, after 50 refusals"]
    refusals.refused(["bad"], ValueError("too large"))
    assert caplog.messages[2:] == ["etcd did not accept it: too large"]


def test_reasons_that_always_differ_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    refusals = made()
    for number in range(1000):
        refusals.refused(["a"], ValueError(f"no answer within {number} s"))
    assert len(caplog.messages) == REASONS_MAX
