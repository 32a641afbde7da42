"""Dumps of real ranks over gloo: the doctor names the rank that went apart, with file and line."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cli_running import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("apart.py")
RANKS = 4


def line(marker: str) -> str:
    """Where the script makes the call with this comment."""
    lines = SCRIPT.read_text().splitlines()
    (number,) = (at for at, text in enumerate(lines, 1) if text.endswith(f"# {marker}"))
    return f"apart.py:{number}"


@pytest.mark.parametrize(
    ("fault", "kind", "lines"),
    [
        ("skip", "not_arrived", ("the line of the others",)),
        ("shape", "other_shape", ("the line of rank 2", "the line of the others")),
    ],
)
def test_a_real_rank_that_goes_apart_is_named_with_file_and_line(
    fault: str,
    kind: str,
    lines: tuple[str, ...],
    tmp_path: Path,
    zygote: Zygote,
    answer: Callable[[Path], dict[str, Any]],
) -> None:
    logs = [tmp_path / f"{rank}.log" for rank in range(RANKS)]
    words = [(str(tmp_path), str(rank), str(RANKS), fault) for rank in range(RANKS)]
    ranks = [
        zygote.spawn(SCRIPT, dict(os.environ), log, *each) for log, each in zip(logs, words, strict=True)
    ]

    def codes() -> list[int | None]:
        return [zygote.poll(pid) for pid in ranks]

    try:
        until(lambda: None not in codes(), lambda: f"all ranks end: {codes()}")
    finally:
        for pid, code in zip(ranks, codes(), strict=True):
            if code is None:
                os.kill(pid, signal.SIGKILL)
    assert codes() == [0] * RANKS, [each.read_text() for each in logs]
    found = answer(tmp_path)
    (culprit,) = found["culprits"]
    assert (culprit["rank"], culprit["kind"], culprit["op"], culprit["seq"]) == (2, kind, "all_reduce", 4)
    assert all(line(marker) in culprit["reason"] for marker in lines), culprit["reason"]
    assert found["missing"] == [] and found["undetermined"] == []
