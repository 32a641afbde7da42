"""A picture fits the window, and what matters most stays in it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from controlplane.cli.questions.queries import overview
from controlplane.cli.questions.screens import CLEAR, fit
from controlplane.cli.questions.top import screen
from controlplane.wire import control_pb2 as pb


def crowded() -> pb.StatusReply:
    return pb.StatusReply(
        cluster="c",
        leader="127.0.0.1:7070",
        term=1,
        health=pb.HealthRow(level="critical", reasons=["checkpoints fail " * 9, "nodes are lost"]),
        jobs=[pb.JobRow(job=f"a-long-name-of-a-job-{n}", phase="running", reason="r" * 90) for n in range(9)],
        nodes=[pb.NodeRow(node=f"n{number}", state="lost", reason="x" * 90) for number in range(40)],
        ranks=[pb.RankRow(job="j", rank=number, role="rank", stalled_s=9.0) for number in range(99)],
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 50), (40, 10), (1, 1)])
def test_it_fits_and_the_health_stays(size: tuple[int, int]) -> None:
    for text in (screen(crowded(), {}), overview(crowded())):
        rows = fit(text, *size).splitlines()
        assert len(rows) < max(size[1], 4) and max(map(len, rows)) <= max(size[0], 40)
        assert size[1] < 10 or any("health: critical" in row for row in rows)
        assert rows[-1].startswith("... ") and "more lines" in rows[-1]


def test_what_is_small_enough_is_left_as_it_is() -> None:
    assert fit("a\nb\n", 80, 24) == "a\nb"
    assert fit("x" * 80 + "\n" + "y" * 81, 80, 24) == "x" * 80 + "\n" + "y" * 77 + "..."


def test_on_a_terminal_each_picture_takes_the_place_of_the_one_before() -> None:
    ours, theirs = pty.openpty()
    text = "from controlplane.cli.questions.screens import paint; paint('\\n'.join(map(str, range(99))))"
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=theirs, env={**os.environ, "LINES": "24", "COLUMNS": "80"}
    )
    os.close(theirs)
    found = b""
    try:
        while data := os.read(ours, 65_536):
            found += data
    except OSError:  # how a terminal ends
        pass
    assert process.wait() == 0
    os.close(ours)
    shown = found.decode()
    assert shown.startswith(CLEAR) and shown.rstrip().endswith("... 77 more lines: -o wide")
    assert len(shown.splitlines()) == 23


def test_long_names_lose_their_middle_before_anything_else_is_cut() -> None:
    name = "my-company-pretraining-of-the-large-language-model-number-{:03}"
    status = pb.StatusReply(
        jobs=[
            pb.JobRow(
                job=name.format(n),
                phase="running",
                health="degraded",
                step=19999,
                loss=2.71828,
                eta_s=2753.0,
                step_s=0.123,
            )
            for n in (7, 8)
        ],
        ranks=[
            pb.RankRow(job=name.format(7), member=f"{name.format(7)}.1", phase="running", node="n0", pid=77)
        ],
    )
    shown = fit(screen(status, {}), 80, 24)
    assert "my-com...ber-007  running" in shown and "my-com...ber-008  running" in shown
    assert all(
        word in shown
        for word in ("HEALTH", "STEP", "ETA", "STEP TIME", "LOSS", "45 min 53 s", "123 ms", "2.7183")
    )
    ranks = fit(overview(status), 80, 24).splitlines()[-1]
    assert all(word in ranks for word in ("my-com...ber-007", "running", "n0", "77"))
    whole = fit(screen(status, {}), 200, 24)
    assert name.format(7) in whole
