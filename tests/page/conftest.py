from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from controlplane.access.tokens import Tokens
from tests.daemon.etcd_fixtures import etcd_server
from tests.page.browser import BUILD, Browser, chromium
from tests.security.authority import token_line
from tests.security.conftest import authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["authority", "etcd_server"]

AXE = BUILD / "node_modules" / "axe-core" / "axe.min.js"
NPM = (
    "npm",
    "install",
    "--no-save",
    "--silent",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",
    "axe-core@4",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests: each tab has cookies and storage of its own (`tab`)."""
    found = Browser(chromium())
    yield found
    found.end()


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's source, fetched when it is not there."""
    if not AXE.exists() and shutil.which("npm"):
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run([*NPM, "--prefix", str(BUILD)], check=False, timeout=120)
    if not AXE.exists():
        pytest.skip("no axe-core here: `make page` fetches it by npm")
    return AXE.read_text()


@pytest.fixture
def known(folder: Path) -> dict[str, str]:
    """A token of each kind of caller; the file `tokens` in the test's folder holds their digests."""
    lines, found = [], {}
    for name, role, jobs in (
        *(("operator", "operator", ""), ("viewer", "viewer", ""), ("agent", "agent", "")),
        *(("other", "viewer", "other"), ("restricted", "operator", "j")),
    ):
        found[name], line = token_line(role, name, jobs)
        lines.append(line)
    (folder / "tokens").write_text("\n".join(lines))
    return found


@pytest.fixture
def tokens(folder: Path, known: dict[str, str]) -> Tokens:
    """The tokens of `known`, as a coordinator reads them from that file."""
    assert known
    return Tokens(str(folder / "tokens"))
