"""An order to mark a suspect checkpoint is refused: by the storage, or by an agent that cannot know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records.checkpoint_events import Published
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from controlplane.core.state.findings import Finding
    from controlplane.core.state.job import Job
    from tests.transcripts.language import Play

AWAY = "the storage does not answer"
UNKNOWN = "a manifest has a digest"


def suspected() -> Play:
    """Checkpoint 100-1 was committed before replicas were found to differ; 90 was the last step alike."""
    stage = running("submit nodes=3 nproc=1 check=10 on_corrupt=act storage=file:///s", "abc")
    stage.do("all running gen=1 step=101 snap=100 snapgen=1")
    for line in ("snapshot 100", "parts", "persisted", "stored", "published", "stored"):
        stage.do(line)
    stage.do("all running gen=1 step=125", "replicas 120 90 ranks=0,1,2 odd=1", "stored")
    return stage


def job(stage: Play) -> Job:
    return stage.cluster.state.jobs["j"]


def answer(stage: Play, reason: str = "", *, understood: bool = True) -> list[str]:
    """The node that was asked last answers."""
    stage.lines = []
    node = stage.last[fx.Publish].node
    life = stage.hosts[node].incarnation
    stage.feed(Published(node, life, "j", "100-1", reason, understood))
    return stage.lines


def finding(stage: Play) -> Finding | None:
    stage.do("wait 2")
    return next(
        (each for key, each in stage.cluster.state.findings.items() if key[0] == "marks_failing"), None
    )


def asked(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("Publish")]


def test_a_storage_that_fails_is_tried_again_after_ever_longer_times_and_that_is_one_finding() -> None:
    stage = suspected()
    gaps, told = [], []
    for _ in range(8):
        told += answer(stage, AWAY)
        for waited in range(1, 1000):
            lines = stage.do("live 1")
            told += lines
            if asked(lines):
                gaps.append(waited)
                break
    assert gaps == sorted(gaps) and gaps[0] <= 10 and gaps[3] > 3 * gaps[0], gaps
    assert gaps[-1] == gaps[-2] <= 600, "and it never gives up"
    opened = [line for line in told if line.startswith("Alert") and "marks_failing" in line]
    assert len(opened) == 1, opened
    found = finding(stage)
    assert found is not None and AWAY in found.reason and "100-1" in found.reason
    answer(stage)
    assert "100-1" in job(stage).checkpoints.marked and finding(stage) is None


def test_an_agent_that_does_not_know_the_order_is_named_once_and_another_one_is_asked() -> None:
    stage = suspected()
    lines = answer(stage, UNKNOWN, understood=False)
    (note,) = [line for line in lines if line.startswith("Note marks_unknown")]
    assert note.split()[2] == "c:" and asked(lines) == ["b"], lines
    answer(stage)
    assert "100-1" in job(stage).checkpoints.marked
    assert finding(stage) is None


def test_when_no_agent_knows_it_nothing_is_repeated_until_one_does() -> None:
    stage = suspected()
    for node in "cba":
        assert stage.last[fx.Publish].node == node
        answer(stage, UNKNOWN, understood=False)
    assert asked(stage.do("live 300")) == []
    found = finding(stage)
    assert found is not None and "a, b, c" in found.reason and "100-1" in found.reason
    assert asked(stage.do("hello b incarnation=2")) == ["b"], "it was upgraded"
    answer(stage)
    assert "100-1" in job(stage).checkpoints.marked and finding(stage) is None


def test_an_agent_that_is_named_once_is_not_named_again_for_another_checkpoint_or_life_of_the_job() -> None:
    stage = suspected()
    for node in "cba":
        assert stage.last[fx.Publish].node == node
        answer(stage, UNKNOWN, understood=False)
    lines = stage.do("hello b incarnation=2")
    lines += answer(stage, UNKNOWN, understood=False)
    assert len([line for line in lines if line.startswith("Note marks_unknown b")]) == 1
    assert asked(stage.do("live 60")) == []
