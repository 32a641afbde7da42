"""Which jobs an event touches: every event has a line, and no job that is in an event is left out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args

import pytest

from controlplane.core.records import events, touched
from controlplane.core.records.diagnosis import (
    GradientReport,
    LinksProbed,
    RankEnded,
    RankProfiled,
    StepTimes,
)
from controlplane.core.records.node_checks import NodeSensed
from tests.wire.test_codec import sample

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = get_args(events.Event)


def named(record: Any) -> Iterator[str]:
    """Every job that a record names, however deep."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name == "job":
            yield value
        if field.name == "jobs":
            yield from value
        for each in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(each):
                yield from named(each)


def test_every_event_has_a_line() -> None:
    others = {StepTimes, RankProfiled, LinksProbed, RankEnded, GradientReport, NodeSensed}
    assert set(touched.TOUCHED) == {*EVENTS, *others}


@pytest.mark.parametrize("kind", EVENTS)
def test_no_job_in_an_event_is_left_out(kind: type) -> None:
    event = sample(kind)
    assert set(touched.jobs(event)) == set(named(event))
