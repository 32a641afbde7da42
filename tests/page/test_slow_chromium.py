"""A slow step is chosen from the list of slow steps, and shows what each rank did in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.page.browser import DESK, IN_CHROMIUM, axe_complaints, pictures, tab
from tests.page.training import EVERY_S, training
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens
    from tests.page.browser import Browser
    from tests.page.training import Training
    from tests.page.visiting import Paged

pytestmark = IN_CHROMIUM
SLOW = "/api/jobs/j/slow"
BUTTON = "document.querySelector('[aria-label^=\"Show step\"]')"
LANES = "[...document.querySelectorAll('ol.lanes')].at(-1)"


async def stumbled(found: Paged, trained: Training) -> None:
    """Rank 2 waits 0.9 s for data in one step; go on until the leader has heard of it."""
    await trained.steps()
    trained.stumbles = {2: 0.9}
    async with asyncio.timeout(60):
        while not found.leader_term.diagnosis.slow_steps("j").rows()["steps"]:
            await trained.steps()


async def test_who_may_not_see_the_job_sees_no_slow_step(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens, diagnose_every_s=EVERY_S) as found, training(found, {}) as trained:
        assert (await found.visitor.get(SLOW)).status == 401
        await found.visitor.log_in(known["viewer"])
        assert (await found.visitor.get(SLOW)).json() == {"steps": [], "more": 0}
        await stumbled(found, trained)
        (step,) = (await found.visitor.get(SLOW)).json()["steps"]
        assert (step["step"], step["ranks_known"], step["ranks_expected"]) == (2, 4, 4)
        whole = (await found.visitor.get(f"{SLOW}/{step['generation']}/2")).json()
        assert (whole["slowest_rank"], [each["rank"] for each in whole["ranks"]]) == (2, [0, 1, 2, 3])
        for wrong in ("1/3", "1", "x/2", "1/2/3", "1/-2"):
            assert (await found.visitor.get(f"{SLOW}/{wrong}")).status == 404
        await found.visitor.log_in(known["other"])
        assert (await found.visitor.get(SLOW)).status == 404


async def test_a_slow_step_is_chosen_and_shows_its_ranks(browser: Browser, axe: str) -> None:
    async with (
        paged(diagnose_every_s=EVERY_S) as found,
        training(found, {}) as trained,
        tab(browser) as page,
    ):
        await page.sized(DESK)
        await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
        await page.open(f"http://localhost:{found.page.port}/jobs/j/diagnosis")
        await page.until("document.querySelector('main').innerText.includes('twice as long as usual, since')")
        await stumbled(found, trained)
        await page.until(BUTTON)
        await page.run(f"{BUTTON}.focus()")
        await page.press("Enter")
        await page.until(f"{LANES}.children.length === 4 && {LANES}.offsetParent !== null")
        assert await page.run(f"{BUTTON}.getAttribute('aria-pressed')") == "true"
        main = await page.text("main")
        assert "Step 2 of generation 1 took 940 ms, and usually one takes 60.0 ms." in main
        assert "This step of each rank: where one rank works longer" in main
        parts = f"[...{LANES}.children[2].querySelectorAll('.bar span')].map((each) => each.title)"
        assert await page.run(parts) == ["data 900 ms, 95.7 %", "forward 40.0 ms, 4.26 %"]
        assert "slowest" in await page.run(f"{LANES}.children[2].className")
        other = parts.replace("children[2]", "children[0]")
        assert await page.run(other) == ["forward 40.0 ms, 4.26 %", "communication 900 ms, 95.7 %"]
        await page.run(f"{axe}; 0")
        assert await axe_complaints(page) == []
        await pictures(page, "slow-step")
        assert page.complaints == []


async def test_where_nothing_was_slow_the_view_says_so(browser: Browser) -> None:
    async with paged(diagnose_every_s=EVERY_S) as found, tab(browser) as page:
        await job(found.leader_term)
        await page.open(f"http://localhost:{found.page.port}/jobs/j/diagnosis")
        await page.until("document.querySelector('main').innerText.includes('twice as long as usual, since')")
        assert await page.run(BUTTON) is None
        assert page.complaints == []
