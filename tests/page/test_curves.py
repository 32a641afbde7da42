"""The curves of a job on the page: what the ranks report, kept by the leader, drawn with axes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controlplane.core.records.diagnosis import GradientReport
from tests.page.browser import (
    DESK,
    IN_CHROMIUM,
    axe_complaints,
    pictures,
    tab,
)
from tests.page.training import EVERY_S, training
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens
    from tests.page.browser import Browser
    from tests.page.training import Training
    from tests.page.visiting import Paged

pytestmark = IN_CHROMIUM
CURVES = "/api/jobs/j/curves"
PLOTS = "[...document.querySelectorAll('.curve')].filter((each) => !each.hidden)"


async def _train(found: Paged, trained: Training, points: int, bad: int = -1) -> dict[str, Any]:
    """Train until the loss has so many points; it is NaN from `bad` on until a point is a break."""
    diagnosis = found.leader_term.diagnosis
    curves: dict[str, Any] = {}
    async with asyncio.timeout(60):
        step = 0
        while len(curves.get("loss", {"values": ()})["values"]) < points:
            step += 1
            values = diagnosis.curves("j")["loss"]["values"]
            state = "nan" if bad >= 0 and len(values) >= bad and None not in values else "known"
            diagnosis.take(_report(step, 4.0 / step, state))
            await trained.steps()
            curves = (await found.visitor.get(CURVES)).json()
    return curves


def _report(step: int, loss: float, state: str) -> GradientReport:
    return GradientReport(*("n00", 1, "j", "j.0", 0, 1, step, 2, 200), norm=1.0, loss=loss, loss_state=state)


async def test_what_ranks_report_is_kept_and_only_shown_to_who_may_see_the_job(
    tokens: Tokens, known: dict[str, str]
) -> None:
    async with paged(tokens, diagnose_every_s=EVERY_S) as found, training(found, {}) as trained:
        assert (await found.visitor.get(CURVES)).status == 401
        await found.visitor.log_in(known["viewer"])
        curves = await _train(found, trained, 4)
        assert curves["loss"]["values"] == sorted(curves["loss"]["values"], reverse=True)
        assert all(0.05 < value < 0.07 for value in curves["step_s"]["values"])
        assert curves["step_s"]["at_s"] == sorted(curves["step_s"]["at_s"])
        assert set(curves) == {"loss", "step_s", "goodput"}
        assert (await found.visitor.get("/api/jobs/none/curves")).status == 404
        assert (await found.visitor.get(f"{CURVES}/more")).status == 404
        await found.visitor.log_in(known["other"])
        assert (await found.visitor.get(CURVES)).status == 404


async def test_curves_have_axes_gaps_and_values_to_read(browser: Browser) -> None:
    async with (
        paged(diagnose_every_s=EVERY_S) as found,
        training(found, {}) as trained,
        tab(browser) as page,
    ):
        curves = await _train(found, trained, 8, bad=3)
        assert None in curves["loss"]["values"]
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/jobs/j")
        await page.until(f"{PLOTS}.length >= 2")
        loss = f"{PLOTS}[0]"
        assert (await page.run(f"{loss}.innerText")).startswith("Loss")
        assert await page.run(f"{loss}.querySelector('.line').getAttribute('d').split('M').length") == 3
        assert await page.run(f"{loss}.querySelectorAll('text.left').length") >= 3
        assert await page.run(f"{loss}.querySelectorAll('text.below').length") >= 1
        await page.run(f"{loss}.querySelector('svg').focus()")
        await page.press("Home")
        first = f"{curves['loss']['values'][0]:.4g}"
        assert f"{first} ·" in await page.run(f"{loss}.innerText")
        assert "UTC" in await page.text("footer") and "A gap: not known" in await page.text("main")
        await pictures(page, "curves")
        await page.open(f"http://localhost:{found.page.port}/jobs/j")  # a reload loses nothing
        await page.until(f"{PLOTS}.length >= 2")
        points = await page.run(f"{loss}.querySelector('.line').getAttribute('d').split(/[ML]/).length")
        assert points >= len(curves["loss"]["values"])
        assert page.complaints == []


async def test_a_job_that_reports_nothing_has_no_curve_and_the_page_says_why(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await page.open(f"http://localhost:{found.page.port}/jobs/j")
        await page.until("document.querySelector('main').innerText.includes('No loss is known')")
        assert "No rank has reported the time of its steps" in await page.text("main")
        assert page.complaints == []


async def test_axe_finds_nothing_in_curves(browser: Browser, axe: str) -> None:
    async with (
        paged(diagnose_every_s=EVERY_S) as found,
        training(found, {}) as trained,
        tab(browser) as page,
    ):
        await _train(found, trained, 4)
        await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
        await page.open(f"http://localhost:{found.page.port}/jobs/j")
        await page.until(f"{PLOTS}.length >= 2")
        await page.run(f"{axe}; 0")
        assert await axe_complaints(page) == []
