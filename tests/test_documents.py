"""What pages name is there: flags, tests, files, and the places that they lead to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.cli.completion import flags

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*DOCS.glob("runbooks/*.md"), *DOCS.glob("failures/*.md"), DOCS / "page.md", DOCS / "storage.md"]
)
LINE_MAX = 110
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flag_of_a_page_is_one(page: Path) -> None:
    assert set(FLAG.findall(page.read_text())) - flags() == set()


def prose(page: Path) -> list[str]:
    """The lines of a page that are not in a block of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip().lower() for line in prose(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


ALL = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_every_place_that_a_page_leads_to_is_there(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_the_lines_of_a_page_fit_a_terminal(page: Path) -> None:
    assert [line for line in prose(page) if len(line) > LINE_MAX and not line.lstrip().startswith("|")] == []


def test_every_file_and_test_that_the_map_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tests = sorted((ROOT / "tests").rglob("*.py"))
    sources = "".join(path.read_text() for path in tests)
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named and {name for name in named if f"def {name}(" not in sources} == set()
    files = set(re.findall(r"`(tests/[\w/]+\.[\w.]+)`", text))
    assert files and {name for name in files if not (ROOT / name).exists()} == set()
