"""Set up what tests of every folder use: their marks, early reports of failures, short folders."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import exhaustive, pure

if TYPE_CHECKING:
    from collections.abc import Iterator


TOLD_LINES = 20
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(exhaustive.OPTION, action="store_true", help="also run the tests marked `exhaustive`")


def pytest_configure(config: pytest.Config) -> None:
    keep_bytecode()
    hear_interrupts()
    have_own_states()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ToldAtOnce(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    exhaustive.skip_unless_asked(config, items)
    for item in items:
        ours = item.path.is_relative_to(TESTS) and item.get_closest_marker("process") is None
        if ours and pure.is_pure(item.path, TESTS):
            item.add_marker("pure")


def hear_interrupts() -> None:
    """Take SIGINT again where a shell has left it ignored, as of what it runs in the background: each process
    that a test starts would ignore it, too, and some tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def have_own_states() -> None:
    """Give this process a folder of all states of its own: a command that names no coordinator must find no
    run of another worker, and no run of whoever runs the tests."""
    folder = tempfile.mkdtemp(prefix="hf-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_STATE_HOME"] = folder


def keep_bytecode() -> None:
    """Let Python keep what it has compiled, here and in all processes that tests start.

    Images of containers often forbid it. Then each of some thousand daemons and commands would compile all of
    Holdfast again, which is half of what its start costs, and each worker all tests."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector away from what is imported and collected: a million objects that stay.

    It would look through them again and again, here and in every test that makes many objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("pure") is None:
        return (yield)
    with pure.watched():
        return (yield)


class ToldAtOnce:
    """Prints a failure when it happens, so that a run that is ended before its summary has still named it."""

    def __init__(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self.plugins.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            said = report.longreprtext.splitlines()[-TOLD_LINES:]
            reporter.write_line("\n".join(["", f"FAILED {report.nodeid} ({report.when})", *said]))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for one test, with a name that is short enough for the paths of Unix sockets."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    yield path
    shutil.rmtree(path)
