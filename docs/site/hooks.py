"""Build the site: mkdocs calls these functions (see mkdocs.yml); `make site` calls mkdocs.

Three things are added to what lies in docs: pages from elsewhere in the repository (README.md is the home
page), files that pages link to, and what is made from code (the commands, the picture of the demo)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import commands
import pages
import picture
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "docs" / "site" / "demo.txt"
SHOWN_BEGIN, SHOWN_END = "<!-- demo: begin -->", "<!-- demo: end -->"
"""Around the text of the demo in README.md; the site shows the picture instead."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by its pages; leave out those that have none yet."""
    config.nav = _with_folders(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not lie in docs."""
    names = [*pages.OUTSIDE, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    wanted: set[str] = set()
    for page in names:
        wanted |= pages.targets((ROOT / page).read_text(), page)
    for path in sorted(wanted - set(names)):
        text = _shown(path)
        files.append(File.generated(config, pages.place(path), content=text))
    for path, name in pages.OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    files.append(File.generated(config, "reference/commands.md", content=commands.page()))
    files.append(
        File.generated(config, "demo.svg", content=picture.picture(DEMO.read_text(), "holdfast demo"))
    )
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make a page that GitHub shows one that mkdocs shows."""
    outside = {name: path for path, name in pages.OUTSIDE.items()}
    source = outside.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if page.file.src_uri.startswith(("files/", "reference/")):
        return text
    text = pages.lists(pages.linked(text, source))
    if page.file.src_uri == "index.md":
        before, _, rest = text.partition(SHOWN_BEGIN)
        text = f"{before}![A terminal: the demo's output](demo.svg){rest.partition(SHOWN_END)[2]}"
    return text


def _with_folders(nav: list) -> list:  # type: ignore[type-arg]
    made = []
    for entry in nav:
        ((title, what),) = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(what, str) and what.endswith("/"):
            what = [f"{what}{path.name}" for path in sorted((ROOT / "docs" / what).glob("*.md"))]
        elif isinstance(what, list):
            what = _with_folders(what)
        if what:
            made.append({title: what} if title else what)
    return made


def _shown(path: str) -> str:
    """A page that shows a file of the repository, or what a folder holds."""
    place, title = ROOT / path, f"# `{path}`\n\n"
    if place.is_dir():
        names = sorted(child.name for child in place.iterdir() if not child.name.startswith((".", "__")))
        return title + "".join(f"- `{name}`\n" for name in names)
    return f"{title}````{_LANGUAGES.get(place.suffix, 'text')}\n{place.read_text()}````\n"


_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".proto": "protobuf", ".json": "json"}
