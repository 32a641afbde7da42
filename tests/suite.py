"""Run all tests, and repeat those of real processes that failed once more, alone.

A deadline of a real process may be missed on a crowded machine. So a test that failed among the others may
pass by itself, and then the suite passes, within limits:

- A pure test (`tests/pure.py`) waits for nothing: one that fails, fails the suite at once.
- Tests that failed and then passed are written to build/flaky.txt, each with the last line of its first
  error.
- More than `flaky_max` of them (pyproject.toml, [tool.holdfast.tests]) fail the suite. The number may only go
  down.

`python -m tests.suite` runs it. The module is also the pytest plugin through which it learns which tests
failed."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

PASSED, FAILED = 0, 1
"""Exit codes of pytest: all tests passed; some failed. Any other code means that the run did not end
properly."""
FIRST_S, SECOND_S = 4500, 600
"""How long a run may take (s) before it is interrupted. It then reports what failed so far."""
ENDS_S = 60
_OPTION = "--failures-file"


class Failures:
    """Records which tests of a run failed: {test: {"error", "pure"}}, as JSON in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first error of a test."""
        if report.failed:
            said = {"error": _last_line(report.longreprtext), "pure": "pure" in report.keywords}
            self._found.setdefault(report.nodeid, said)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be collected as a pure failure: it is no matter of time."""
        if report.failed:
            self._found[report.nodeid] = {"error": _last_line(report.longreprtext), "pure": True}

    def pytest_sessionfinish(self) -> None:
        """Write the failures to the file, also when there are none."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._found))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file of failures."""
    parser.addoption(_OPTION, default="", help="write the tests that failed to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder, in the process that receives every test's report."""
    path = config.getoption(_OPTION)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(Path(path)))


def _last_line(text: str) -> str:
    """The last line of an error as pytest prints it; that of the exception, if it prints one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (said or lines or ["it says nothing"])[-1]


class Suite:
    """The tests of one repository."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._failures, self._flaky = root / "build" / "failures.json", root / "build" / "flaky.txt"
        document = tomllib.loads((root / "pyproject.toml").read_text())
        self._flaky_max = int(document["tool"]["holdfast"]["tests"]["flaky_max"])

    def run(self, words: Sequence[str]) -> int:
        """Run all tests, with these words for pytest. Returns the exit code."""
        self._flaky.unlink(missing_ok=True)
        code, first = self._pytest(FIRST_S, *words)
        if code != FAILED:
            return code
        pure = sorted(test for test, said in first.items() if said["pure"])
        if pure or not first:
            print(f"failed, and is not tried again: {', '.join(pure) or 'the run itself'}")
            return FAILED
        print(f"once more, alone: {', '.join(sorted(first))}", flush=True)
        code, second = self._pytest(SECOND_S, *sorted(first))
        return self._judged(code, first, second)

    def _pytest(self, limit_s: float, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
        self._failures.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.suite"]
        run = subprocess.Popen([*command, _OPTION, str(self._failures), *words], cwd=self._root)
        code = _ended(run, limit_s)
        found = json.loads(self._failures.read_text()) if self._failures.exists() else {}
        return code, found

    def _judged(self, code: int, first: dict[str, Any], second: dict[str, Any]) -> int:
        """Report which tests passed at the second try, and whether there are too many of them."""
        if code not in (PASSED, FAILED):
            return code
        flaky = {test: said["error"] for test, said in first.items() if test not in second}
        rows = [f"{test}\t{error}\n" for test, error in sorted(flaky.items())]
        if flaky:
            self._flaky.write_text("".join(rows))
            print(f"passed at the second try ({self._flaky}):\n{''.join(rows)}", end="")
        if len(flaky) > self._flaky_max:
            most = f"{self._flaky_max} at most ([tool.holdfast.tests] flaky_max)"
            print(f"{len(flaky)} tests passed only at the second try, {most}")
            return FAILED
        return code


def _ended(run: subprocess.Popen[bytes], limit_s: float) -> int:
    """The exit code of a run. It is interrupted at its limit, and killed when that does not end it."""
    try:
        return run.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"interrupted after {limit_s:.0f} s", flush=True)
        run.send_signal(signal.SIGINT)
    try:
        return run.wait(ENDS_S) or FAILED
    except subprocess.TimeoutExpired:
        run.kill()
        return run.wait() or FAILED


def main() -> None:
    """Run the tests of a repository. Words that are not known here go to pytest."""
    parser = argparse.ArgumentParser("python -m tests.suite", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    values, words = parser.parse_known_args()
    try:
        code = Suite(values.root.resolve()).run(words)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
