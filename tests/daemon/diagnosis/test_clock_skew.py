"""Nodes whose clocks differ by minutes, or are set while a job runs: nobody is accused for it."""

from __future__ import annotations

import dataclasses

import pytest

from tests.daemon.diagnosis.stage import EVERY_S, STEPS, Stage
from tests.daemon.diagnosis.test_diagnosing import newest

SKEW_S = 300.0


async def windows(stage: Stage, count: int, skew_s: float, slow: dict[int, float]) -> None:
    """Let windows pass. The clock of node b differs, and is set by `skew_s` in the middle of every third."""
    for at in range(count):
        stage.wall_s += EVERY_S
        stage.step += STEPS
        for times in stage.times(slow):
            span_s = max(0.0, EVERY_S + skew_s) if times.node == "b" and at % 3 == 2 else EVERY_S
            stage.diagnosis.take(dataclasses.replace(times, span_s=span_s))
        await stage.diagnosis.look()


@pytest.mark.parametrize("skew_s", [-SKEW_S, SKEW_S])
async def test_a_clock_that_is_set_accuses_nobody(skew_s: float) -> None:
    stage = Stage()
    await windows(stage, 40, skew_s, {})
    assert not stage.posted or newest(stage) == ()


@pytest.mark.parametrize("skew_s", [-SKEW_S, SKEW_S])
async def test_a_slow_rank_is_named_and_nobody_else_whatever_the_clocks_say(skew_s: float) -> None:
    stage, skewed = Stage(), Stage()
    await windows(stage, 40, 0.0, {0: 1.6})
    await windows(skewed, 40, skew_s, {0: 1.6})
    assert newest(stage) and newest(skewed) == newest(stage)
