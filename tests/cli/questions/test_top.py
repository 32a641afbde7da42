"""`holdfast top` names ranks that make no progress, and nobody whose beat is merely a second old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.questions.top import screen
from controlplane.core import view
from controlplane.wire import codec
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def shown(stage: Play) -> str:
    rows = {
        "jobs": view.jobs(stage.cluster, stage.now),
        "nodes": view.nodes(stage.cluster, stage.now),
        "ranks": view.ranks(stage.cluster, stage.now),
        "health": view.health(stage.cluster, stage.now),
    }
    return screen(codec.status_message("c", 1, "here", rows), {})


def test_a_rank_whose_beat_is_older_is_not_accused() -> None:
    stage = running()
    stage.do("report j.1000000 running gen=1 step=25", "report j.1000001 running gen=1 step=20")
    assert "without progress" not in shown(stage) and "behind" not in shown(stage)


def test_a_rank_past_its_deadline_is_named_with_how_long() -> None:
    stage = running()
    stage.do("report j.1000000 running gen=1 step=25")
    stage.do("report j.1000001 running gen=1 step=24 stalled=130")
    text = shown(stage)
    named = text.partition("ranks past their deadline without progress:\n")[2].splitlines()
    assert named[0].split() == ["JOB", "RANK", "NODE", "PHASE", "STEP", "FOR"]
    assert named[1].split() == ["j", "1", "b", "running", "24", "2", "min", "10", "s"]
    assert not named[2:] or not named[2].startswith("j")


def test_a_reason_of_many_lines_breaks_no_table() -> None:
    stage = running("submit nodes=1 nproc=2", "a")
    stage.cluster.state.jobs["j"].reason = "it raised\n" + "  File x\n" * 400
    text = shown(stage)
    assert max(map(len, text.splitlines())) < 300
    assert "it raised ..." in text and "File x" not in text
