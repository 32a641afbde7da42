"""Mark what `make test` leaves to `make exhaustive`: long repeats of what a shorter test shows.

A test is exhaustive when another one in `make test` asks the same question of the same code with fewer seeds,
fewer storages or a shorter run. Without `--exhaustive` it is skipped, and pytest prints that it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

OPTION = "--exhaustive"
REASON = "`make exhaustive` runs it: a long repeat of what a shorter test shows"


def all_but(kept: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the first `kept` values run always, the others are exhaustive."""
    return [
        value if place < kept else pytest.param(value, marks=pytest.mark.exhaustive)
        for place, value in enumerate(values)
    ]


def skip_unless_asked(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Skip the exhaustive tests, except when they were asked for."""
    if config.getoption(OPTION):
        return
    for item in items:
        if item.get_closest_marker("exhaustive") is not None:
            item.add_marker(pytest.mark.skip(reason=REASON))
