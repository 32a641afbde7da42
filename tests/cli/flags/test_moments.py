"""Moments as people give them: ages, and dates with and without a zone."""

from __future__ import annotations

import argparse
import datetime
import time

import pytest

from controlplane.cli.flags.moments import moment


@pytest.mark.parametrize(
    ("text", "age_s"),
    [("10m", 600), ("2h30m", 9000), ("1.5s", 1.5), ("250ms", 0.25), ("1d", 86_400), ("0s", 0)],
)
def test_ages(text: str, age_s: float) -> None:
    before = time.time()
    assert before - age_s <= moment(text) <= time.time() - age_s


def test_dates() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=1))
    assert (
        moment("2026-03-01T14:05:00+01:00") == datetime.datetime(2026, 3, 1, 14, 5, tzinfo=zone).timestamp()
    )
    assert moment("2026-03-01T13:05:00Z") == moment("2026-03-01 14:05:00+01:00")
    assert moment("2026-03-01T13:05:00.250Z") == moment("2026-03-01T13:05:00Z") + 0.25
    assert moment("2026-03-01 14:05") == datetime.datetime(2026, 3, 1, 14, 5).timestamp(), "local time"
    assert moment("2026-03-01") == datetime.datetime(2026, 3, 1).timestamp()
    today = datetime.date.today()
    assert moment("9:05") == datetime.datetime.combine(today, datetime.time(9, 5)).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "10",
        "10 minutes",
        "-5m",
        "m",
        "5x",
        "25:00",
        "2026-13-01",
        "99999d",
        "20260301",
        "\x1b[2J",
    ],
)
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"10m, 2h30m|ten years"):
        moment(text)
