"""Colour is for terminals, for the words of health and severity alone, and never for what others wrote."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.questions.colours import COLOURS, coloured
from controlplane.cli.questions.documents import shown
from controlplane.cli.questions.queries import overview
from controlplane.cli.questions.tables import JOBS
from controlplane.cli.questions.top import screen
from controlplane.core.records.events import NodeJoined
from controlplane.wire import control_pb2 as pb
from tests.page.visiting import die, job
from tests.security.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SGR = re.compile("\x1b\\[[0-9;]*m")
PROGRAM = (sys.executable, "-P", "-m", "controlplane")


def red(word: str) -> str:
    return f"\x1b[{COLOURS[word]}m{word}\x1b[0m"


def test_words_of_health_and_severity_are_coloured_where_we_write_them() -> None:
    status = pb.StatusReply(
        cluster="c",
        health=pb.HealthRow(level="critical", reasons=["critical: nodes, are lost"]),
        jobs=[
            pb.JobRow(job="critical", phase="running", health="degraded", reason="critical healthy"),
            pb.JobRow(job="b", phase="running", health="healthy"),
        ],
    )
    for text, words in (
        (overview(status), ["critical", "degraded", "healthy"]),
        (screen(status, {}), ["critical", "degraded", "healthy"]),
        (shown("table", JOBS, status), ["degraded", "healthy"]),
        ("Job:     critical\nHealth:  degraded; slow", ["degraded"]),
        ("job j: degraded\n\ncritical: slow_rank, rank 1, confidence 1.00", ["degraded", "critical"]),
        ("critical words of a script\nhealth: critical as they say", []),
    ):
        painted = coloured(text)
        assert SGR.sub("", painted) == text, "nothing but colours is added"
        found = re.findall("\x1b\\[[0-9;]+m(\\w+)\x1b\\[0m", painted)
        assert found == words and all(red(word) in painted for word in words), painted


def on_terminal(words: list[str], lines: int, **environment: str) -> str:
    """What a command writes to a terminal of 80 columns, up to its end or to so many lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    unset = ("LINES", "COLUMNS", "NO_COLOR")
    inherited = {name: each for name, each in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [*PROGRAM, *words], stdout=theirs, stderr=theirs, env=inherited | {"TERM": "xterm"} | environment
    )
    os.close(theirs)
    found = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while found.count(b"\n") < lines and (data := os.read(ours, 65_536)):
            found += data
    process.terminate()
    process.wait()
    os.close(ours)
    return found.decode()


@contextlib.asynccontextmanager
async def crowd() -> AsyncIterator[str]:
    """The address of a leader with a job in trouble and many nodes."""
    async with serving(leads=True) as served:
        leads = served.front.leader_term
        assert leads is not None
        await job(leads)
        await die(leads)
        for number in range(40):
            name = f"a-node-with-a-rather-long-name-{number}"
            await leads.loop.ask(NodeJoined(name, 1, "l", "127.0.0.1", slots=0, port=29500, members=()))
        yield served.address


@pytest.mark.parametrize("words", ["top", "status --watch"])
async def test_a_picture_fits_80_columns_and_24_lines_and_keeps_the_health(words: str) -> None:
    async with crowd() as address:
        argv = [*words.split(), "--coordinator", address]
        text = await asyncio.to_thread(on_terminal, argv, 23)
        bare = await asyncio.to_thread(on_terminal, argv, 23, NO_COLOR="1")
    head, clear, picture = text.partition("\x1b[H\x1b[2J")
    assert clear and not head
    picture = picture.partition(clear)[0]
    rows = SGR.sub("", picture).replace("\r", "").splitlines()
    assert max(map(len, rows)) <= 80 and len(rows) <= 23, rows
    level = next(row for row in rows if row.startswith("health: ")).removeprefix("health: ")
    assert f"health: {red(level)}" in picture
    assert "\x1b" not in bare.replace(clear, "") and "health: " in bare


async def test_what_is_no_terminal_gets_no_colour() -> None:
    async with crowd() as address:
        for words in (["get", "jobs"], ["status"], ["describe", "job", "j"], ["doctor"]):
            argv = [*words, "--coordinator", address]
            piped = await asyncio.to_thread(
                subprocess.run, [*PROGRAM, *argv], capture_output=True, text=True, check=True
            )
            assert "\x1b" not in piped.stdout and re.search("healthy|degraded|critical", piped.stdout)
            terminal = await asyncio.to_thread(on_terminal, argv, 10_000)
            assert SGR.search(terminal), words
            dumb = await asyncio.to_thread(on_terminal, argv, 10_000, TERM="dumb")
            assert "\x1b" not in dumb
