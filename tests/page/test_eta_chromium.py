"""When a job ends stands at its head on the page, with the reader's date; or why that is not known."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.core.records.events import PauseRequested
from tests.page.browser import DESK, IN_CHROMIUM, pictures, tab
from tests.page.training import EVERY_S, training
from tests.page.visiting import paged

if TYPE_CHECKING:
    from tests.page.browser import Browser

pytestmark = IN_CHROMIUM
ENDS = "[...document.querySelectorAll('.facts dt')].find((each) => each.innerText === 'Ends')"
SAID = f"{ENDS}?.nextElementSibling.innerText"
LIST = "document.querySelector('main table')?.rows[1]?.innerText"


async def test_the_end_stands_at_the_head_of_a_job(browser: Browser) -> None:
    async with (
        paged(diagnose_every_s=EVERY_S) as found,
        training(found, {}) as trained,
        tab(browser) as page,
    ):
        await page.sized(DESK)
        await page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
        await page.open(f"http://localhost:{found.page.port}/jobs/j")
        await page.until(f"{SAID} === 'unknown: no rank has reported a step yet'")
        trained.told = {"end_kinds": "job", "end_steps": 1_000_000}
        job = found.leader_term.core.state.jobs["j"]
        async with asyncio.timeout(60):
            while found.leader_term.diagnosis.eta(job).at_s is None:
                await trained.steps()
        await page.until(f"{SAID}.startsWith('in ')")
        said = str(await page.run(SAID))
        assert "at step 1,000,000, by the script's total_steps" in said and said.startswith("in 16 h ")
        date = (
            f"((at) => new Date(at * 1000).toLocaleString('sv', {{ timeZone: 'Asia/Kolkata' }}).slice(0, 10))"
            f"({found.leader_term.diagnosis.eta(job).at_s})"
        )
        assert str(await page.run(date)) in said
        await pictures(page, "eta")
        await found.leader_term.loop.ask(PauseRequested("j", True, "lunch"))
        await page.until(f"/unknown: its (next|ranks)|unknown: it is paused/.test({SAID})")
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(f"/recovering|forming|paused/.test({LIST})")
        assert page.complaints == []
