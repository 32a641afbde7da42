"""Filters and copies in a real browser: what passes is shown, what does not is said, names are copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.events import JobSubmitted, NodeBroken
from controlplane.core.records.model import JobSpec
from tests.page.browser import (
    DESK,
    IN_CHROMIUM,
    axe_complaints,
    pictures,
    tab,
)
from tests.page.visiting import die, job, paged

if TYPE_CHECKING:
    from tests.page.browser import Browser, Tab

pytestmark = IN_CHROMIUM
LISTED = """(() => {
  const tables = [...document.querySelectorAll('main .wide')].filter((each) => !each.hidden);
  return [...(tables.%s?.querySelectorAll('tbody tr') ?? [])].map((row) => row.querySelector('a').innerText);
})()"""
"""The names in a table: at(0) is the first that is shown, at(-1) the last."""


async def _choose(page: Tab, label: str, value: str) -> None:
    box = f"[...document.querySelectorAll('.filters label')].find((e) => e.innerText.startsWith('{label}'))"
    await page.run(
        f"((box) => {{ box.value = '{value}'; box.dispatchEvent(new Event('change')); }})"
        f"({box}.querySelector('select'))"
    )


async def _name(page: Tab, text: str) -> None:
    await page.run("(document.querySelector('#find').focus(), document.querySelector('#find').select())")
    await page.write(text)


async def _show_all(page: Tab) -> None:
    await page.run("[...document.querySelectorAll('.filters button')].at(-1).click()")


async def test_nodes_are_filtered_by_name_state_and_health(browser: Browser, axe: str) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term, nodes=120)
        await found.leader_term.loop.ask(NodeBroken("n17", 1, "the stream ended"))
        await page.sized(DESK)
        await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until("document.querySelector('main').innerText.includes('n17')")
        assert await page.run(LISTED % "at(-1)") == ["n17"]  # in trouble; too many to list all
        await _name(page, "n1")
        await page.until(f"{LISTED % 'at(-1)'}.length === 31")
        assert "Nodes that pass the filters (31)" in await page.text("main")
        await page.run(f"{axe}; 0")
        assert await axe_complaints(page) == []
        await pictures(page, "filters")
        await _choose(page, "Health", "in trouble")
        await page.until(f"{LISTED % 'at(-1)'}.length === 1")
        await _choose(page, "Health", "fine")
        await _choose(page, "State", "suspect")
        await page.until("document.querySelector('main').innerText.includes('None of 120 nodes passes')")
        await _show_all(page)
        await _name(page, "n")
        await page.until("document.querySelector('main').innerText.includes('Fewer than 100 are listed')")
        await _name(page, "n119")
        await page.press("Enter")
        await page.until("location.pathname === '/nodes/n119'")
        assert page.complaints == []


async def test_jobs_are_filtered_and_names_and_commands_copied(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await die(found.leader_term)
        await found.leader_term.loop.ask(JobSubmitted(JobSpec("later", ("train.py",), "/", (), 9, 9, 1)))
        url = f"http://localhost:{found.page.port}"
        apart = (await page.call("Target.getTargetInfo"))["targetInfo"]["browserContextId"]
        for name in ("clipboard-write", "clipboard-read"):
            allowed = {"permission": {"name": name}, "setting": "granted", "origin": url}
            await page.call("Browser.setPermission", browserContextId=apart, **allowed)
        await page.sized(DESK)
        await page.open(f"{url}/jobs")
        await page.until(f"{LISTED % 'at(0)'}.length === 2")
        await _name(page, "LAT")
        await page.until(f"{LISTED % 'at(0)'}.join() === 'later'")
        await _choose(page, "Phase", "pending")
        await _name(page, "no such job")
        await page.until("document.querySelector('main').innerText.includes('None of 2 jobs passes')")
        await _show_all(page)
        await page.until(f"{LISTED % 'at(0)'}.length === 2")
        await pictures(page, "jobs-filters")
        zone = await page.text("footer")
        assert zone.startswith("Times are those of your clock (") and "UTC" in zone
        for path, button, copied in (
            ("/jobs/j", "Copy the name", "j"),
            ("/incidents/j/1", "Copy the command", "holdfast why j/1"),
        ):
            await page.run(f"dispatchEvent(new CustomEvent('go', {{ detail: '{path}' }}))")
            found_button = f"[...document.querySelectorAll('button')].find((e) => e.innerText === '{button}')"
            await page.until(found_button)
            await page.run(f"{found_button}.click()")
            await page.until("[...document.querySelectorAll('button')].some((e) => e.innerText === 'Copied')")
            assert await page.run("navigator.clipboard.readText()") == copied
        assert page.complaints == []
