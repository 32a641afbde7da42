"""The suite's second try on planted tests: what passes then is told and counted, what is pure has none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import pure

ROOT = Path(__file__).resolve().parents[1]
FLAKY = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({flaky}))
def test_flaky(number):
    seen = pathlib.Path(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        raise ValueError(f"too late: {{number}}")

def test_sound():
    assert True
"""
BROKEN = "\ndef test_broken():\n    assert 1 == 2, 'as ever'\n"
PURE = """
@pytest.mark.pure
def test_pure():
    with pathlib.Path("pure").open("a") as tries:
        tries.write(".")
    assert 1 == 2
"""
INI = '[tool.pytest.ini_options]\nmarkers = ["pure"]\naddopts = "--strict-markers -p no:cacheprovider"\n'


class Planted:
    """A repository of its own, with planted tests."""

    def __init__(self, folder: Path, text: str, flaky_max: int = 2) -> None:
        self.folder = folder
        (folder / "pyproject.toml").write_text(f"[tool.holdfast.tests]\nflaky_max = {flaky_max}\n{INI}")
        (folder / "test_planted.py").write_text(text)

    def run(self, *words: str) -> tuple[int, str]:
        """The exit code of `python -m tests.suite`, and all it said."""
        command = [sys.executable, "-m", "tests.suite", "--root", str(self.folder), *words]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    @property
    def flaky(self) -> list[str]:
        """The lines of build/flaky.txt."""
        path = self.folder / "build" / "flaky.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one process", "workers"])
def test_what_passes_at_the_second_try_is_told(folder: Path, words: tuple[str, ...]) -> None:
    planted = Planted(folder, FLAKY.format(flaky=2))
    code, said = planted.run(*words)
    assert code == 0, said
    assert planted.flaky == [
        f"test_planted.py::test_flaky[{number}]\tValueError: too late: {number}" for number in (0, 1)
    ]
    assert planted.flaky[0] in said


def test_more_of_them_than_allowed_fail_the_suite(folder: Path) -> None:
    planted = Planted(folder, FLAKY.format(flaky=3))
    code, said = planted.run()
    assert code == 1
    assert "3 tests passed only at the second try, 2 at most ([tool.holdfast.tests] flaky_max)" in said
    assert len(planted.flaky) == 3


def test_what_fails_twice_fails_the_suite(folder: Path) -> None:
    planted = Planted(folder, FLAKY.format(flaky=1) + BROKEN)
    code, said = planted.run()
    assert code == 1
    assert "once more, alone: test_planted.py::test_broken, test_planted.py::test_flaky[0]" in said
    assert [line.split("\t")[0] for line in planted.flaky] == ["test_planted.py::test_flaky[0]"]


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one process", "workers"])
def test_a_pure_test_has_one_try(folder: Path, words: tuple[str, ...]) -> None:
    planted = Planted(folder, FLAKY.format(flaky=1) + PURE)
    code, said = planted.run(*words)
    assert code == 1
    assert "failed, and is not tried again: test_planted.py::test_pure" in said
    assert (folder / "pure").read_text() == "."
    assert planted.flaky == []


def test_a_file_that_cannot_be_collected_has_one_try(folder: Path) -> None:
    planted = Planted(folder, "import nothing_of_this_name\n")
    code, said = planted.run()
    assert code not in (0, 5)
    assert "once more" not in said


def test_without_failures_there_is_one_run_and_no_old_list(folder: Path) -> None:
    planted = Planted(folder, FLAKY.format(flaky=0))
    (folder / "build").mkdir()
    (folder / "build" / "flaky.txt").write_text("of yesterday\n")
    code, said = planted.run("-k", "sound")
    assert code == 0 and "1 passed" in said and "once more" not in said
    assert planted.flaky == []


def test_the_number_allowed_is_small() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert 0 <= document["tool"]["holdfast"]["tests"]["flaky_max"] <= 8


def test_a_pure_test_starts_no_process_and_opens_no_connection() -> None:
    with pure.watched():
        with pytest.raises(AssertionError, match=r"may not do this: subprocess\.Popen"):
            subprocess.run([sys.executable, "-c", ""], check=False)
        with pytest.raises(AssertionError, match=r"may not do this: os\.fork"):
            os.fork()
        with socket.socket() as one, pytest.raises(AssertionError, match=r"may not do this: socket\.bind"):
            one.bind(("127.0.0.1", 0))
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0


def test_every_pure_file_is_there() -> None:
    tests = Path(__file__).parent
    assert [name for name in sorted(pure.FILES) if not (tests / name).is_file()] == []
    assert all((tests / name).is_dir() for name in pure.FOLDERS)
    assert not pure.is_pure(Path(__file__), tests)
    assert pure.is_pure(tests / "core" / "test_cluster.py", tests)
