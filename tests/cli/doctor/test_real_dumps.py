"""Dumps of real ranks over gloo: the doctor names the rank that went apart, with file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

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
    fault: str, kind: str, lines: tuple[str, ...], tmp_path: Path, answer: Callable[[Path], dict[str, Any]]
) -> None:
    words = [sys.executable, str(SCRIPT), str(tmp_path)]
    running = [
        subprocess.Popen([*words, str(rank), str(RANKS), fault], stderr=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    try:
        ends = [each.communicate(timeout=240)[1] for each in running]
    finally:
        for each in running:
            each.kill()
            each.communicate()
    assert [each.returncode for each in running] == [0] * RANKS, ends
    found = answer(tmp_path)
    (culprit,) = found["culprits"]
    assert (culprit["rank"], culprit["kind"], culprit["op"], culprit["seq"]) == (2, kind, "all_reduce", 4)
    assert all(line(marker) in culprit["reason"] for marker in lines), culprit["reason"]
    assert found["missing"] == [] and found["undetermined"] == []
