"""What pages name is there: flags, tests, files, and the places that they lead to."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.completion import flags

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(*DOCS.glob("runbooks/*.md"), *DOCS.glob("failures/*.md")),
        *(DOCS / f"{name}.md" for name in ("clusters", "page", "quickstart", "recipes", "storage")),
        *(DOCS / "troubleshooting.md", DOCS / "faq.md"),
    ]
)
LINE_MAX = 110
OF_OTHERS = {"--index-url", "--shm-size", "--system"}  # of pip, docker, useradd
OF_SLURM = {"--exclusive", "--kill-on-bad-exit", "--no-kill", "--nodes", "--ntasks-per-node", "--requeue"}
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flag_of_a_page_is_one(page: Path) -> None:
    assert set(FLAG.findall(page.read_text())) - flags() - OF_OTHERS - OF_SLURM == set()


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


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"(?:: |- )(\S+\.md|\S+/)$", nav, re.MULTILINE))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert {page for page in pages if not named & {page, f"{page.partition('/')[0]}/"}} == set()
    made = {*site_pages().OUTSIDE.values(), "reference/commands.md"}
    folders = {name for name in named if name.endswith("/")}
    assert named - folders - pages - made == set()


def site_pages() -> ModuleType:
    """The module docs/site/pages.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("site_pages", DOCS / "site" / "pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_for_github_becomes_one_for_the_site() -> None:
    pages = site_pages()
    text = "[a](../README.md#x) [b](failures/rank.md) [c](https://x) `x`\n```\n[d](../README.md)\n```\n"
    assert pages.targets(text, "docs/page.md") == {"README.md", "docs/failures/rank.md"}
    assert pages.linked(text, "docs/page.md").startswith(
        "[a](index.md#x) [b](failures/rank.md) [c](https://x)"
    )
    assert pages.linked("[e](docs/page.md)", "README.md") == "[e](page.md)\n"
    assert (
        pages.linked("[f](../../examples/x.py)", "docs/failures/rank.md")
        == "[f](../files/examples/x.py.md)\n"
    )
    listed = "Said:\n- one\n  - inner\n    goes on\n  ```\n  x\n  ```\n\nEnd\n  indented\n"
    shown = "Said:\n\n- one\n    - inner\n        goes on\n    ```\n    x\n    ```\n\nEnd\n  indented\n"
    assert pages.lists(listed) == shown


def test_the_front_page_shows_lines_of_the_recorded_demo() -> None:
    text = (
        (ROOT / "README.md")
        .read_text()
        .partition("<!-- demo: begin -->")[2]
        .partition("<!-- demo: end -->")[0]
    )
    shown = text.strip().removeprefix("```text\n").removesuffix("\n```").splitlines()
    recorded = (DOCS / "site" / "demo.txt").read_text().splitlines()
    assert len(shown) > 10 and [line for line in shown if line not in recorded] == []


def test_every_file_and_test_that_the_map_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tests = sorted((ROOT / "tests").rglob("*.py"))
    sources = "".join(path.read_text() for path in tests)
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named and {name for name in named if f"def {name}(" not in sources} == set()
    files = set(re.findall(r"`(tests/[\w/]+\.[\w.]+)`", text))
    assert files and {name for name in files if not (ROOT / name).exists()} == set()
