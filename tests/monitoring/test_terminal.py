"""Whatever a rank, a script or a person says: no command and no log hands a terminal what it would obey."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from controlplane.core.records.events import JobSubmitted, MemberReport, NodeJoined
from controlplane.core.records.model import Cause, Failure, JobSpec, MemberPhase, MemberStatus
from holdfast.logs import JsonFormatter, TextFormatter
from holdfast.neutral import neutral
from tests.monitoring.test_outputs import MANY, WHOLE
from tests.security.serving import serving

if TYPE_CHECKING:
    from controlplane.daemon.leadership.leader_term import LeaderTerm

PROGRAM = (sys.executable, "-P", "-m", "controlplane")
HOSTILE = {
    "the title of the window": "\x1b]0;owned\x07",
    "the screen": "\x1b[2J\x1b[H",
    "of one byte": "\x9b31m",
    "the line before": "all is well\rlost",
    "the way back": "abc\x08\x08\x08",
    "a deleted one": "\x7f",
    "the direction": "\u202egnp.exe\u2066",
    "an end of line of its own": "\u2028",
}
TEXT = " ".join(HOSTILE.values())
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ACTS = ("drain n0 --reason", "cordon n1 --reason", "pause j --reason")
"""They show the reason again."""
SAYS_IT = ("why", "events", "describe job j")
"""They show what was said in full."""
WRONG = ("get", "describe job", "submit", "checkpoint list", "--coordinator")
"""A word of theirs that cannot be is told to whoever gave it."""


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_terminal_obeys_is_shown_as_text(what: str) -> None:
    shown = neutral(f"a\tb\n{HOSTILE[what]}")
    assert shown.startswith("a\tb\n") and "\\u" in shown and not OBEYED.search(shown)
    assert neutral(shown) == shown


def test_words_of_people_stay_as_they_are() -> None:
    words = "naïve 模型 🏖️ größer\n\tżółć"
    assert neutral(words) == words
    assert neutral("half \ud83c").isprintable()


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_no_log_line_holds_it(form: logging.Formatter) -> None:
    try:
        raise ValueError(TEXT)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "of %s", (TEXT,), sys.exc_info())
    assert not OBEYED.search(form.format(record)) and "owned" in form.format(record)


async def test_no_command_hands_it_on() -> None:
    async with serving(leads=True) as served:
        assert served.front.leader_term is not None
        await _trouble(served.front.leader_term)

        async def told(*words: str) -> tuple[int, str]:
            argv = [*PROGRAM, *words]
            done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, timeout=60, check=False)
            text = (done.stdout + done.stderr).decode()
            assert not OBEYED.search(text), (words, text)
            return done.returncode, text

        where = ("--coordinator", served.address)
        while "owned" not in (await told("why", *where))[1]:  # noqa: ASYNC110 -- asked over the wire
            await asyncio.sleep(0.05)
        for words in ACTS:
            await told(*words.split(), TEXT, *where)
        for words in (*WHOLE, *MANY):
            code, text = await told(*words.split(), *where, "-o", "wide")
            assert code == 0 and ("\\u001b" in text or words not in SAYS_IT), (words, text)
        for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            assert "owned" in str(read((await told("describe", "job", "j", *where, "-o", form))[1]))
        for words in WRONG:
            code, said = await told(*words.split(), TEXT)
            assert code != 0 and said, words


async def _trouble(leader_term: LeaderTerm) -> None:
    """A job whose first rank has raised something that is written for terminals."""
    for number in range(2):
        joined = NodeJoined(f"n{number}", 1, "l", "127.0.0.1", slots=2, port=29500, members=())
        await leader_term.loop.ask(joined)
    await leader_term.loop.ask(JobSubmitted(JobSpec("j", ("train.py", TEXT), "/", (), 2, 2, 2)))
    while not (members := leader_term.core.state.jobs["j"].members):  # noqa: ASYNC110 -- decided in a task
        await asyncio.sleep(0.02)
    member = min(members.values(), key=lambda each: each.rank)
    status = MemberStatus(member.name, "j", MemberPhase.STARTING, elastic=True, pid=7)
    failure = Failure(Cause.RAISED, TEXT, exception=f"ValueError: {TEXT}", traceback=f"at\n{TEXT}")
    for seq, phase in enumerate((MemberPhase.STARTING, MemberPhase.EXITED), 1):
        gone = failure if phase is MemberPhase.EXITED else None
        leader_term.post(
            MemberReport(member.node, 1, seq, dataclasses.replace(status, phase=phase, failure=gone))
        )
