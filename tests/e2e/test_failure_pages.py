"""The pages about failures: every one is in the index, has its three parts, and names only what exists."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from pathlib import Path

import pytest

from controlplane.cli.completion import flags
from controlplane.cli.main import COMMANDS
from controlplane.settings import AgentSettings, CoordinatorSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "failures").glob("*.md"))
PARTS = ("## What you will see", "## What Holdfast does", "## What you can do")
OF_COMMANDS = {"--wait", "--force", "--release", "--follow", "--model", "--cluster", "--domain", "--job"}
"""Flags of single commands, which their own tests know."""


ALL_PAGES = [DOCS.parent / "README.md", DOCS.parent / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"(?:`|^\s*|\$ )holdfast ([a-z]+)([^`\n]*)", re.MULTILINE)
"""A command in a page: between backticks, or on a line of its own."""


@cache
def flags_of(command: str) -> set[str]:
    return flags(command)


def known_flags() -> set[str]:
    found = flags("run")
    for settings in (AgentSettings, CoordinatorSettings):
        for field in dataclasses.fields(settings):
            found |= {"--" + field.name.replace("_", "-"), field.metadata["flag"]}
    return found | OF_COMMANDS


def test_the_index_names_every_page_and_every_page_is_there() -> None:
    named = re.findall(r"\(failures/([a-z-]+\.md)\)", (DOCS / "failures.md").read_text())
    assert sorted(named) == [page.name for page in PAGES]
    assert len(named) == len(set(named)) >= 13


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_parts_and_names_only_what_exists(page: Path) -> None:
    text = page.read_text()
    at = [text.find(part) for part in PARTS]
    assert -1 not in at and at == sorted(at), f"{page.name}: {PARTS} in this order"
    for command in re.findall(r"`holdfast ([a-z]+)", text):
        assert command in COMMANDS, f"{page.name}: holdfast {command} is no command"
    for link in re.findall(r"\]\(([a-z./-]+\.md)\)", text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
    unknown = set(FLAG.findall(text)) - known_flags()
    assert not unknown, f"{page.name}: {unknown} are no flags"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_a_command_in_a_page_has_the_flags_that_it_is_given(page: Path) -> None:
    for found in COMMAND.finditer(page.read_text().replace("\\\n", " ")):
        command, words = found[1], re.split(r"\S+\.py\b| -- ", found[2])[0]
        if command not in COMMANDS:
            continue  # prose that begins a line
        unknown = set(FLAG.findall(words)) - flags_of(command)
        assert not unknown, f"{page.name}: holdfast {command} has no {', '.join(unknown)}"
