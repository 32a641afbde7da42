"""A rank's log and stacks in a real browser: only by a button, as text, and a viewer is told why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.page.browser import (
    DESK,
    IN_CHROMIUM,
    axe_complaints,
    pictures,
    tab,
)
from tests.page.reading import reading

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens
    from tests.page.browser import Browser, Tab

pytestmark = IN_CHROMIUM


async def _opened(page: Tab, port: int, token: str) -> None:
    await page.sized(DESK)
    await page.open(f"http://localhost:{port}/login")
    await page.until("document.querySelector('#token')")
    await page.run("document.querySelector('#token').focus()")
    await page.write(token)
    await page.press("Enter")
    await page.until("document.querySelector('#who').innerText !== 'Log in'")
    await page.run("dispatchEvent(new CustomEvent('go', { detail: '/jobs/j' }))")
    await page.until("document.querySelectorAll('.buttons').length >= 2")


async def _press(page: Tab, name: str, place: str = "document") -> None:
    button = f"[...{place}.querySelectorAll('button')].find((each) => each.innerText === '{name}')"
    await page.until(f"{button} && !{button}.hidden")
    await page.run(f"{button}.click()")


async def test_a_log_is_read_by_a_button_and_a_viewer_is_told_why_not(
    browser: Browser, tokens: Tokens, known: dict[str, str], axe: str
) -> None:
    async with reading(tokens) as found:
        found.stage.log(0, b"".join(b"step %d loss 0.25 <b>bold</b>\n" % step for step in range(3000)))
        async with tab(browser) as page:
            await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
            await _opened(page, found.page.port, known["operator"])
            await page.run(f"{axe}; 0")
            await _press(page, "Log")
            await page.until("document.querySelector('dialog pre.log')")
            text = await page.text("dialog")
            assert "step 2999 loss 0.25 <b>bold</b>" in text and "before that are kept" in text
            assert await page.run("document.querySelector('pre.log').scrollTop > 0")
            assert await axe_complaints(page) == []
            await pictures(page, "log")
            await _press(page, "The process before", "document.querySelector('dialog')")
            await page.until("document.querySelector('dialog').innerText.includes('No log of an earlier')")
            await _press(page, "Close", "document.querySelector('dialog')")
            await page.until("!document.querySelector('dialog')")
            await _press(page, "Stacks")
            await page.until("document.querySelector('dialog pre.log')")
            assert "train.py, line 7, in forward\\u001b[2J" in await page.text("dialog")
            await pictures(page, "stacks")
            assert page.complaints == []
        async with tab(browser) as page:
            await _opened(page, found.page.port, known["viewer"])
            assert "A viewer may read neither logs nor stacks" in await page.text("main")
            assert not await page.run(
                "[...document.querySelectorAll('.buttons button')].some((b) => !b.hidden)"
            )
            assert page.complaints == []
