"""Make the environment of the framework tests; run in it those of the integrations, then all cases or some.

    python -m tests.frameworks.environment FOLDER [--case NAME ...]

FOLDER gets a virtual environment with torch, Holdfast and what requirements.txt names; it is brought up to
date when a file that it depends on has changed. Where pip can find no torch at all, because there is no index
or it cannot be reached, no case can run: each is printed as skipped, by name and with the reason, and the
exit code is 0. If pip fails otherwise, that is a mistake to be seen: exit code 1. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.frameworks.cases import CASES
from tests.frameworks.log_cases import LOG_CASES, TRAINER_LOG_CASES
from tests.frameworks.rows import Row

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/sdk/integrations", "tests/frameworks/test_trainer_logs.py")
"""The tests that need a framework or a logger: elsewhere they are skipped."""
INPUTS = ("pyproject.toml", "constraints.txt", "tests/frameworks/requirements.txt")


def is_fresh(stamp: Path, root: Path = ROOT) -> bool:
    """Whether the environment with this stamp was made after its inputs."""
    inputs = [(root / name).stat().st_mtime for name in INPUTS]
    return stamp.exists() and stamp.stat().st_mtime >= max(inputs)


def install(python: Path) -> str:
    """Install torch, Holdfast and the frameworks. Returns why that cannot be done here; "": it is done.

    Raises SystemExit if pip fails although it finds torch."""
    for asked in (["torch"], ["-e", ".[torch,local]", "pytest", "pytest-timeout", "pytest-asyncio"]):
        words = [str(python), "-m", "pip", "install", "-q", "-c", "constraints.txt", *asked]
        if code := subprocess.run(words, cwd=ROOT, check=False).returncode:
            if reason := unavailable(python):
                return f"the environment cannot be installed: {reason}"
            raise SystemExit(f"pip install {' '.join(asked)}: exit code {code}")
    subprocess.run([str(python), "tests/frameworks/install.py", "constraints.txt"], cwd=ROOT, check=True)
    return ""


def unavailable(python: Path) -> str:
    """What pip says if it finds no torch of any version; "": it finds one."""
    words = [str(python), "-m", "pip", "index", "versions", "torch"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines() or ["pip index versions torch fails"]
    return said[-1].removeprefix("ERROR: ") if done.returncode else ""


def skip_all(reason: str) -> None:
    """Print every case as skipped."""
    kills = {case.name: str(case.kill) for case in CASES}
    kills |= {case.name: case.kill_at for case in LOG_CASES}
    kills |= {case.name: case.kill_at for case in TRAINER_LOG_CASES}
    for name, kill_at in kills.items():
        print(Row(name, kill_at=kill_at, skipped=reason).as_json(), flush=True)
    print(f"skipped: {', '.join(kills)}: {reason}", file=sys.stderr)


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not is_fresh(stamp):
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        if reason := install(python):
            skip_all(reason)
            return
        stamp.touch()
    tests = [str(python), "-m", "pytest", "-q", *TESTS]
    if code := subprocess.run(tests, cwd=ROOT, check=False).returncode:
        raise SystemExit(f"{' '.join(tests)}: exit code {code}")
    sys.stdout.flush()
    os.execv(python, [str(python), "-m", "tests.frameworks", *sys.argv[2:]])


if __name__ == "__main__":
    main()
