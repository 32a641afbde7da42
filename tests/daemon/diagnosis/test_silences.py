"""A node whose agent beats while its step reports have stopped is named, after a while and not before."""

from __future__ import annotations

from controlplane.daemon.diagnosis.silences import TelemetrySilence
from tests.daemon.diagnosis.stage import EVERY_S, STEPS, Stage
from tests.daemon.diagnosis.test_diagnosing import newest

KIND = "telemetry_silent"


async def windows(stage: Stage, count: int, *nodes: str) -> None:
    """Let so many windows pass in which only these nodes report."""
    for _ in range(count):
        stage.wall_s += EVERY_S
        stage.step += STEPS
        for times in stage.times({}):
            if times.node in nodes:
                stage.diagnosis.take(times)
        await stage.diagnosis.look()


def named(stage: Stage) -> list[str]:
    return [each.subject for each in newest(stage) if each.kind == KIND] if stage.posted else []


async def test_a_silent_node_is_named_while_others_report_and_until_it_speaks() -> None:
    stage = Stage()
    await windows(stage, 8, "a", "b")
    await windows(stage, 11, "a")
    assert named(stage) == []
    await windows(stage, 6, "a")
    assert named(stage) == ["node b"]
    (found,) = [each for each in newest(stage) if each.kind == KIND]
    assert found.node == "b" and "its agent beats, but has reported no steps" in found.reason
    await windows(stage, 12, "a", "b")
    assert named(stage) == []


async def test_what_comes_and_goes_is_named_by_nobody() -> None:
    stage = Stage()
    await windows(stage, 8, "a", "b")
    for _ in range(8):
        await windows(stage, 10, "a")
        await windows(stage, 1, "a", "b")
    assert named(stage) == []


async def test_a_node_that_is_away_or_has_never_reported_is_not_called_silent() -> None:
    never = Stage()
    await windows(never, 30, "a")
    assert named(never) == []
    away = Stage()
    await windows(away, 8, "a", "b")
    away.play.do("break b")
    await windows(away, 20, "a")
    assert named(away) == []


def test_silence_is_counted_against_the_node_that_reported_last() -> None:
    stage, silences = Stage(), TelemetrySilence()
    state, job = stage.play.cluster.state, stage.play.cluster.state.jobs["j"]
    first, second = stage.times({})
    silences.take(first, 100.0)
    silences.take(second, 100.0)
    assert silences.silent(state, job, 900.0) == {}  # nobody reports: the job or the coordinator stood still
    silences.take(second, 900.0)
    assert silences.silent(state, job, 901.0) == {first.node: 800.0}
    stage.play.do(f"report {job.seating.on(first.node)[0].member} exited cause=signaled signal=9")
    assert silences.silent(state, job, 901.0) == {}  # its rank is dead, which explains it
    silences.forget(set())
    assert silences.silent(state, job, 901.0) == {}
