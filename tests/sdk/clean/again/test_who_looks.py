"""After a failure everybody waits for what each rank looks at: one compares, and the next look at steps
begins anew."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING

from holdfast.clean.forgotten import ForgottenState
from holdfast.state.tracked import TrackedState
from tests.sdk.clean.again.called import Entry, called_again

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Trained:
    """A function that trains in a process of rank 0, and is called again whenever it has failed."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.config, self.meter = SimpleNamespace(batch=64), SimpleNamespace(count=0)
        self._entry, tracked = Entry(), TrackedState()
        self.looks = ForgottenState(tracked)
        self._calls, self._caplog = called_again(self.looks, tracked, self._entry), caplog
        caplog.set_level(logging.WARNING, "holdfast.sdk")
        self._calls.entered()

    def generation(self, first: int, step: Callable[[], None], steps: int) -> list[str]:
        """Call the function and take these steps. `first`: the first rank that was there before. Returns what
        was told."""
        self._entry.first = first

        def train() -> None:
            rate = self.config.batch / 64
            self._calls.called()
            self.config.batch //= 2
            self._calls.steps_begin(10, seeded=True, tells=True)
            for _ in range(steps):
                step()
                self.looks.step_ended()
            assert rate

        if first < 0:
            config, meter = self.config, self.meter
            self.looks.entered(lambda: (config, meter), ())
        told = len(self._caplog.records)
        train()
        return [each.getMessage() for each in self._caplog.records[told:]]

    def counts(self) -> None:
        self.meter.count += 1


def nothing() -> None:
    """Change nothing."""


def test_the_first_rank_compares_and_the_others_do_not(caplog: pytest.LogCaptureFixture) -> None:
    one, other = Trained(caplog), Trained(caplog)
    assert one.generation(-1, nothing, 5) == other.generation(-1, nothing, 5) == []
    (said,) = one.generation(0, nothing, 5)
    assert "has changed once more before its steps: config.batch" in said
    assert other.generation(1, nothing, 5) == []


def test_what_a_function_that_is_called_again_changes_is_not_the_steps_doing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trained = Trained(caplog)
    assert trained.generation(-1, nothing, 5) == []
    assert trained.generation(1, nothing, 12) == []
    trained.looks.broken_off()
    assert trained.generation(1, nothing, 0) == []
    trained.looks.broken_off()  # before any step: what the function has changed is no rest of one
    assert len(caplog.records) == 0


def test_what_steps_change_is_still_found_after_it(caplog: pytest.LogCaptureFixture) -> None:
    trained = Trained(caplog)
    assert trained.generation(-1, nothing, 5) == []
    assert trained.generation(1, trained.counts, 1) == [], "the first look has nothing to compare with"
    (said,) = trained.generation(1, trained.counts, 10)
    assert "the steps change what is not tracked: meter.count" in said


def test_what_a_broken_step_has_left_is_found_after_it(caplog: pytest.LogCaptureFixture) -> None:
    trained = Trained(caplog)
    assert trained.generation(-1, nothing, 5) == trained.generation(1, nothing, 1) == []
    trained.counts()
    trained.looks.broken_off()
    (said,) = caplog.messages
    assert "a step broke off" in said and "meter.count" in said and "config" not in said
