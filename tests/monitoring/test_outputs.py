"""Every command that shows something shows it as a table, in full, as JSON and as YAML."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controlplane.cli.main import COMMANDS, main
from controlplane.cli.questions.outputs import FORMS
from tests.page.visiting import die, job
from tests.security.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = (
    *(f"get {what}" for what in ("jobs", "nodes", "ranks", "checkpoints")),
    *("describe job j", "describe node n0", "status", "why", "why --list", "quarantine"),
    *("doctor", "doctor j", "doctor j --tune"),
)
MANY = ("events", "top -n 1")
"""One after another: a line of JSON each, or a YAML document."""
NOT_ASKED = {"replay", "simulate", "checkpoint", "doctor", "check"}
"""These show something without a coordinator: see below."""
QUIET = {
    *("run", "submit", "stop", "delete", "pause", "resume", "drain", "cordon", "uncordon", "demo"),
    *("rehearse", "coordinator", "agent", "exec", "torchrun", "completion", "wait"),
}
"""These do something, and say in a sentence that it is done."""
OWN = {"plan", "kubernetes", "slurm", "profile", "stacks", "logs"}
"""`plan -o FILE` writes the layout (`--json` shows it); `kubernetes render` and `slurm render`
print what others run;
`profile` and `stacks` need ranks that train (tests/e2e/test_profile.py, tests/cli/questions/test_asking.py);
`logs` prints what ranks have written."""


def test_no_command_is_left_out() -> None:
    asked = {words.split()[0] for words in (*WHOLE, *MANY)}
    assert asked | NOT_ASKED | QUIET | OWN == set(COMMANDS)


def read(form: str, text: str, *, many: bool) -> Any:
    if form == "json":
        return list(map(json.loads, text.splitlines())) if many else json.loads(text)
    return list(yaml.safe_load_all(text)) if many else yaml.safe_load(text)


async def test_each_form_of_each_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(leads=True) as served:
        leader_term = served.front.leader_term
        assert leader_term is not None
        await job(leader_term)
        await die(leader_term)

        async def said(words: str, form: str) -> str:
            argv = [*words.split(), "--coordinator", served.address, "-o", form]
            assert await asyncio.to_thread(main, argv) == 0, argv
            return capsys.readouterr().out

        while not json.loads(await said("why --list", "json")):  # noqa: ASYNC110 -- asked over the wire
            await asyncio.sleep(0.05)
        for words in (*WHOLE, *MANY):
            table, full = await said(words, "table"), await said(words, "wide")
            assert table.strip() and len(full) >= len(table) - 8, words  # ages shrink and grow
            found = [read(form, await said(words, form), many=words in MANY) for form in ("json", "yaml")]
            assert [type(each) for each in found] == [type(found[0])] * 2, words
            if isinstance(found[0], dict):
                assert list(found[0]) == list(found[1]), words
        told = json.loads(await said("describe job j", "json"))
        assert set(told) == {"job", "ranks", "checkpoints", "incidents", "events"}
        assert told["job"]["job"] == "j" and len(told["ranks"]) == 4
        incident, row = json.loads(await said("why", "json")), told["job"]
        assert (incident["job"], incident["outcome"]) == ("j", "open")
        assert incident["now"].startswith(f"{row['phase']}: ") and row["reason"] in incident["now"]
        assert f"\nNow: {row['phase']}: " in await said("why", "table")
        assert json.loads(await said("why j/1", "json"))["now"] == "", "an older one is asked for"


def test_those_that_ask_nobody(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    times = folder / "times.csv"
    times.write_text("worker,time,seconds\n" + "".join(f"{at % 3},{at},1\n" for at in range(60)))
    simulate = ["simulate", "--mtbf-s", "3600", "--nodes", "4", "--days", "0.2"]
    check = ["check", "node", "--seconds", "0.01", "--folder", str(folder)]
    for words in (simulate, ["doctor", "--iterations", str(times)], check):
        for form in FORMS:
            assert main([*words, "-o", form]) == 0
            text = capsys.readouterr().out
            assert text.strip() and (form not in ("json", "yaml") or isinstance(yaml.safe_load(text), dict))
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("words", ["events -o text", "replay -o text"])
def test_a_word_that_was_taken_before_still_is(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag = {"events": ["--journal", "/nowhere"], "replay": ["/nowhere"]}[words.split(maxsplit=1)[0]]
    assert main([*words.split(), *flag]) == 1
    assert "nowhere" in capsys.readouterr().err
