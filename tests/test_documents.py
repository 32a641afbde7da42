"""What the pages for operators name is there: flags, and pages that they lead to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.cli.completion import flags

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(
    [*DOCS.glob("runbooks/*.md"), *DOCS.glob("failures/*.md"), DOCS / "page.md", DOCS / "storage.md"]
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flag_of_a_page_is_one(page: Path) -> None:
    assert set(FLAG.findall(page.read_text())) - flags() == set()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_every_page_that_a_page_leads_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
