"""Every view of a job of 8, 64 and 4,096 ranks: it fits its screen, and is drawn for people to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.page import Swarm, elected
from benchmarks.scale.shape import name_of
from tests.page.browser import CUT_OFF, DESK, IN_CHROMIUM, pictures, tab
from tests.page.test_chromium import DRAWN, visit
from tests.page.visiting import die, paged, until

if TYPE_CHECKING:
    from tests.page.browser import Browser

pytestmark = IN_CHROMIUM
JOB = "train"
VIEWS = (
    *("jobs", f"jobs/{JOB}", f"jobs/{JOB}/diagnosis", "nodes", f"nodes/{name_of(0)}"),
    *("incidents", f"incidents/{JOB}/1", "time", f"time/{JOB}", "checkpoints"),
)


@pytest.mark.parametrize("nodes", [1, 8, 512])
async def test_every_view_fits_its_screen_at_every_size(browser: Browser, nodes: int) -> None:
    async with paged(elected=elected(nodes)) as found, tab(browser) as page:
        await Swarm(found.leader_term, nodes).begin()
        await die(found.leader_term, JOB)
        await until(lambda: found.leader_term.core.state.jobs[JOB].recovery.incident is not None)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(DRAWN)
        for view in VIEWS:
            await visit(page, view)
            name = view.replace(f"/{JOB}", "-one").replace("/", "-")
            await pictures(page, f"{nodes * 8}-ranks-{name}")
            assert await page.run(CUT_OFF) == [], view
        assert page.complaints == []
