"""The page in a real browser says nothing that is not so: of what is gone, was not told, was missed."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import re
from typing import TYPE_CHECKING

from controlplane.access.authentication import Authenticator
from controlplane.access.tls import TlsFiles
from controlplane.core.records.events import NodeBeat, NodeBroken, NodeJoined
from controlplane.daemon.page.server import Page
from controlplane.daemon.page.watch import STORIES_MAX
from tests.page.browser import BUILD, DESK, FRAMES, IN_CHROMIUM, ONE_ROW, PHONE, TOO_WIDE, tab
from tests.page.visiting import NODES, die, job, paged, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.page.browser import Browser
    from tests.page.visiting import Paged

pytestmark = IN_CHROMIUM
LIVE = "document.querySelector('#link').innerText === 'live'"
LOST = "document.querySelector('#link').innerText.startsWith('connection lost')"
SEEN = (
    "[...document.querySelectorAll('main .wide:last-of-type td[data-name=\"Last seen\"]')]"
    ".map((each) => each.innerText).map((text) => /^2\\d{3}-.*:\\d\\d$/.test(text) ? 'at' : text)"
)
"""Of each node in the table of all: whether it is seen now, or was at a moment."""
DRAWN = f"document.documentElement.dataset.moment && {LIVE}"


def _joined(name: str) -> NodeJoined:
    return NodeJoined(name, 1, "l", "127.0.0.1", 1, 29500, ())


async def _incidents(found: Paged, numbers: range, **verdict: str) -> None:
    """The journal tells of as many more as the first one, but for what is said of the verdict."""
    journal = found.served.front.journal
    await until(lambda: any(json.loads(line.text)["type"] == "Judged" for line in journal.lines()))
    first = next(
        line for line in (json.loads(each.text) for each in journal.lines()) if line["type"] == "Judged"
    )
    for number in numbers:
        body = copy.deepcopy(first["body"]) | {"incident": number}
        body["verdict"] |= verdict
        journal.write_body(found.leader_term.term, first["kind"], "Judged", body)


async def test_incidents_that_are_kept_no_more_do_not_stop_the_page(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await die(found.leader_term)
        await _incidents(found, range(2, STORIES_MAX + 1))
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/incidents")
        await page.until(f"{DRAWN} && document.querySelectorAll('ol.timeline > li').length >= 100")
        newest = STORIES_MAX + 1
        await _incidents(found, range(newest, newest + 1))
        await page.until(f"document.querySelector('main').innerText.includes('j/{newest}')")
        assert page.complaints == []


async def test_a_standby_does_not_say_that_there_is_nothing(browser: Browser) -> None:
    async with paged(leads=False) as found, tab(browser) as page:
        await page.sized(DESK)
        for view, never in (
            ("jobs", "There is no job"),
            ("jobs/j", "There is no job"),
            ("nodes", "No node is known"),
            ("nodes", "None."),
            ("checkpoints", "There is no checkpoint"),
        ):
            await page.open(f"http://localhost:{found.page.port}/{view}")
            await page.until(DRAWN)
            text = await page.text("main")
            assert never not in text and "ask the leader" in text, (view, text)
        assert [each for each in page.complaints if "409" not in each] == []


@contextlib.asynccontextmanager
async def _beating(found: Paged, *names: str) -> AsyncIterator[None]:
    """Nodes without ranks that have joined, and whose heartbeats come."""

    async def beat() -> None:
        for seq in itertools.count(1):
            for name in names:
                found.leader_term.post(NodeBeat(name, 1, seq, 29500))
            await asyncio.sleep(0.2)

    for name in names:
        await found.leader_term.loop.ask(_joined(name))
    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)


async def test_what_is_shown_says_since_when_it_is_old(browser: Browser) -> None:
    async with paged() as found, _beating(found, "n0", "n1"), tab(browser) as page:
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until(f"{DRAWN} && document.querySelector('#health').innerText")
        before = await page.text("#health")
        await page.until(f"{SEEN}.length === {NODES}")
        assert await page.run(SEEN) == ["now"] * NODES
        await found.page.close()
        await page.until(LOST)
        assert "shows the state at" in await page.text("#notice")
        shown = await page.text("#health")
        assert re.fullmatch(r"unknown since \d\d:\d\d:\d\d", shown), shown
        assert shown.split()[-1] in await page.text("#notice")
        assert before in await page.run("document.querySelector('#health').title")
        assert await page.run("document.querySelector('#health').className") == "badge soft lost"
        assert await page.run(SEEN) == ["at"] * NODES
        await page.sized(PHONE)
        await page.run(FRAMES)
        assert await page.run(TOO_WIDE) <= 0
        assert await page.run("document.querySelector('header').offsetHeight") < ONE_ROW
        await page.picture(BUILD / "phone-lost.png")
        await page.sized(DESK, dark=True)
        await page.run(FRAMES)
        await page.picture(BUILD / "dark-lost.png")
        again = Page(found.served.front, ("127.0.0.1", found.page.port), TlsFiles(), Authenticator("c1"))
        again.start()
        try:
            await page.until(LIVE, timeout_s=40)
            await page.until("document.querySelector('#notice').hidden")
            await page.until(f"document.querySelector('#health').innerText === '{before}'")
            assert await page.run(SEEN) == ["now"] * NODES
        finally:
            await again.close()


async def test_a_story_that_could_not_be_had_is_asked_for_again(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await die(found.leader_term)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(f"{DRAWN} && document.querySelector('ol.timeline a')")
        await found.page.close()
        await page.until(LOST)
        await page.run("document.querySelector('ol.timeline a').click()")
        await page.until("document.querySelector('main .notice')")
        again = Page(found.served.front, ("127.0.0.1", found.page.port), TlsFiles(), Authenticator("c1"))
        again.start()
        try:
            await page.until(LIVE, timeout_s=40)
            await page.until("document.querySelector('main').innerText.includes('What happened')")
        finally:
            await again.close()


async def test_an_address_that_cannot_be_read_is_said_to_be_none(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/jobs/%zz")
        await page.until(f"{LIVE} && document.querySelector('main').innerText.includes('nothing at this')")
        assert page.complaints == []


async def test_the_node_that_was_chosen_stays_chosen_when_others_come(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        for name in ("n1", "n3", "n5"):
            await found.leader_term.loop.ask(_joined(name))
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until(f"{DRAWN} && document.querySelector('main').innerText.includes('3 up')")
        await page.run("document.querySelector('canvas.map').focus()")
        await page.press("ArrowRight")
        await page.until("document.querySelector('#pointed').innerText.startsWith('n3')")
        await found.leader_term.loop.ask(_joined("n2"))
        await page.until("document.querySelector('main').innerText.includes('4 up')")
        await page.press("Enter")
        await page.until("location.pathname.startsWith('/nodes/')")
        assert await page.run("location.pathname") == "/nodes/n3"


async def test_a_planned_change_is_no_incident(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await die(found.leader_term)
        await _incidents(found, range(2, 3))
        await _incidents(found, range(3, 4), cause="resized")
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/incidents")
        lists = "[...document.querySelectorAll('ol.timeline')].map((each) => "
        spans = "[...each.querySelectorAll('span.soft')].map((one) => one.innerText.split(' · ')[1])"
        names = f"{lists}{spans}).join(' | ')"
        await page.until(f"{DRAWN} && {names} === 'j/2,j/1 | j/3'")
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(f"{DRAWN} && {names} === 'j/2,j/1'")
        assert page.complaints == []


async def test_a_node_that_is_silent_says_when_it_was_seen(browser: Browser) -> None:
    async with paged() as found, _beating(found, "n0"), tab(browser) as page:
        await found.leader_term.loop.ask(_joined("n9"))
        await found.leader_term.loop.ask(NodeBroken("n9", 1, "the stream ended"))
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until(f"{DRAWN} && {SEEN}.length === {NODES}")
        assert await page.run(SEEN) == ["now", "at"]
        await page.run("dispatchEvent(new CustomEvent('go', { detail: '/nodes/n9' }))")
        await page.until("document.querySelector('main').innerText.includes('Last seen\\n2')")
        assert page.complaints == []
