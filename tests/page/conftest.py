from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.access.tokens import Tokens
from tests.daemon.etcd_fixtures import etcd_server
from tests.page.browser import Browser, chromium
from tests.security.authority import token_line
from tests.security.conftest import authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["authority", "etcd_server"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium of the module's own."""
    found = Browser(chromium())
    yield found
    found.end()


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
