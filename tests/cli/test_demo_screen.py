"""The demo's lines where no terminal is: progress is said when there is some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.cli.demo.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


class Steps:
    """How far the ranks are, look by look."""

    def __init__(self, *looks: Sequence[int]) -> None:
        self._looks = [dict(enumerate(each)) for each in looks]

    def progress(self) -> dict[int, int]:
        return self._looks.pop(0)


def told(training: Any, looks: int, capsys: pytest.CaptureFixture[str], title: str = "with failures") -> str:
    with Screen(60, to_stderr=False, every_s=0.0) as screen:
        for _ in range(looks):
            screen.update(training, title)
    return capsys.readouterr().out


def test_no_step_is_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(Steps([-1, -1], [0, 0], [3, 4], [3, 4], [60, 60], [60, 60]), 6, capsys)
    assert found.split("with failures: ")[1:] == [f"step {n} of 60\n" for n in (0, 3, 60)]


def test_a_process_that_is_new_takes_nobody_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Its page says no step until it has one; a job that went back says which step it is at."""
    found = told(Steps([30, 30], [30, -1], [30, 0], [20, 20], [31, 31]), 5, capsys)
    assert found.split("with failures: ")[1:] == [f"step {n} of 60\n" for n in (30, 20, 31)]
