"""The page in a real browser: what it shows of a real job, by keyboard, on a phone, to a screen reader."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from controlplane.access.authentication import Authenticator
from controlplane.access.tls import TlsFiles
from controlplane.core.records.events import NodeBroken, NodeJoined
from controlplane.daemon.page.server import Page
from tests.e2e.cli_running import Run, running
from tests.page.browser import (
    BUILD,
    CUT_OFF,
    DESK,
    FRAMES,
    IN_CHROMIUM,
    ONE_ROW,
    PHONE,
    TOO_WIDE,
    axe_complaints,
    tab,
)
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.access.tokens import Tokens
    from tests.page.browser import Browser, Tab

pytestmark = IN_CHROMIUM
VIEWS = ("jobs", "nodes", "incidents", "time", "checkpoints", "login")
DRAWN = "document.documentElement.dataset.moment"
WATCH = """(() => {
  const look = () => {
    if (document.querySelectorAll("ol.timeline > li").length > %d) window.shown = Date.now() / 1000;
    else requestAnimationFrame(look);
  };
  look();
})()"""
"""Notes when the page shows more incidents than so many."""
COUNT = """(() => {
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--c2");
  const [r, g, b] = colour.trim().match(/[0-9a-f]{2}/g).map((each) => parseInt(each, 16));
  const map = document.querySelector("canvas.map");
  const all = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
  let count = 0;
  for (let i = 0; i < all.length; i += 4) {
    if (all[i] === r && all[i + 1] === g && all[i + 2] === b) count += 1;
  }
  return count;
})()"""
"""How many points of the map have the colour of those that are suspect."""


@pytest.fixture(scope="module")
def trained() -> Iterator[tuple[Run, str]]:
    """A real job of two ranks, and the address of its coordinator's page."""
    with running("--nproc-per-node", "2", "--spares", "1") as run:
        run.rank_pid(1)
        document = json.loads((run.layout.state / "coordinator.json").read_text())
        yield run, document["page"]


async def test_a_killed_rank_is_shown_within_two_seconds(browser: Browser, trained: tuple[Run, str]) -> None:
    run, url = trained
    async with tab(browser) as page:
        await page.sized(DESK)
        await page.open(f"{url}incidents")
        await page.until(DRAWN)
        number = len(run.journal("Judged"))
        await page.run(WATCH % number)
        pid = run.rank_pid(1, 0)
        os.kill(pid, signal.SIGKILL)
        await page.until("window.shown", timeout_s=60)
        shown_s = float(await page.run("window.shown"))
        assert 0 <= shown_s - _judged_s(run, number) < 2
        assert "rank 1 on n0 was killed by a signal" in await page.text("ol.timeline")
        run.rank_pid(1, 1)
        await page.until("document.querySelector('ol.timeline > li.recovered')", timeout_s=100)
        assert page.complaints == []


def _judged_s(run: Run, index: int) -> float:
    """When the incident of this place was judged (Unix time)."""
    lines = (run.layout.state / "journal.jsonl").read_text().splitlines()
    judged = [line for line in map(json.loads, lines) if line["type"] == "Judged"]
    return float(judged[index]["wall_s"])


async def visit(page: Tab, view: str) -> None:
    """Go there without loading the page anew."""
    await page.run(f"dispatchEvent(new CustomEvent('go', {{ detail: {json.dumps('/' + view)} }}))")
    await page.run(FRAMES)
    await page.until("!document.body.innerText.includes('loading')")


def _views(run: Run) -> tuple[str, ...]:
    return (
        *VIEWS,
        f"jobs/{run.job}",
        f"jobs/{run.job}/diagnosis",
        "nodes/n0",
        f"incidents/{run.job}/1",
        f"time/{run.job}",
    )


async def test_every_view_draws_without_a_complaint(browser: Browser, trained: tuple[Run, str]) -> None:
    run, url = trained
    async with tab(browser) as page:
        await page.sized(DESK)
        await page.open(url)
        await page.until(DRAWN)
        for view in _views(run):
            await visit(page, view)
            name = view.replace(f"/{run.job}", "-one").replace("/", "-")
            for kind in ("light", "dark", "phone"):
                await page.sized(PHONE if kind == "phone" else DESK, dark=kind == "dark")
                await page.run(FRAMES)
                await page.picture(BUILD / f"{kind}-{name}.png")
                wide = await page.run(TOO_WIDE)
                assert wide <= 0, f"{view} is {wide} px wider than a {kind} screen"
                assert await page.run(CUT_OFF) == [], f"{view}, {kind}"
                assert await page.run("document.querySelector('header').offsetHeight") < ONE_ROW
            assert await page.run(f"location.pathname === {json.dumps('/' + view)}")
        assert await page.text("#link") == "live"
        assert page.complaints == []


async def test_a_browser_that_keeps_nothing_shows_everything(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        forbidden = (
            "Object.defineProperty(window, 'localStorage', { get() { throw new Error('forbidden'); } })"
        )
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=forbidden)
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(DRAWN)
        before = await page.run("document.documentElement.dataset.theme")
        await page.run("document.getElementById('theme').click()")
        assert await page.run("document.documentElement.dataset.theme") != before
        assert page.complaints == []


async def test_axe_finds_nothing(browser: Browser, trained: tuple[Run, str], axe: str) -> None:
    run, url = trained
    async with tab(browser) as page:
        await page.sized(DESK)
        await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
        await page.open(url)
        await page.until(DRAWN)
        await page.run(f"{axe}; 0")
        for view in _views(run):
            await visit(page, view)
            assert await axe_complaints(page) == [], view


async def _focused(page: Tab) -> str:
    return str(await page.run("document.activeElement.id || document.activeElement.innerText"))


async def test_by_keyboard_alone(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term, nodes=12)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(DRAWN)
        seen = []
        for _ in range(9):
            await page.press("Tab")
            seen.append(await _focused(page))
            assert await page.run("getComputedStyle(document.activeElement).outlineStyle") != "none", seen
        assert seen[:5] == ["Skip to the content", "Holdfast", "Jobs", "Nodes", "Incidents"]
        await page.run("document.querySelectorAll('nav a')[1].focus()")
        await page.press("Enter")
        await page.until("document.querySelector('canvas.map') && location.pathname === '/nodes'")
        assert await _focused(page) != "Nodes" and await page.run("document.activeElement.id") == "main"
        for _ in range(4):
            await page.press("Tab")
            if await page.run("document.activeElement.tagName") == "CANVAS":
                break
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            await page.press(key)
        assert (await page.text("#pointed")).startswith("n1: up")
        await page.press("Enter")
        await page.until("location.pathname === '/nodes/n1'")
        await page.run("history.back()")
        await page.until("location.pathname === '/nodes' && document.querySelector('canvas.map')")
        assert page.complaints == []


async def test_an_operator_logs_in_and_acts_after_a_question(
    browser: Browser, tokens: Tokens, known: dict[str, str]
) -> None:
    async with paged(tokens) as found, tab(browser) as page:
        await job(found.leader_term)
        nodes = found.leader_term.core.state.nodes
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes/n1")
        await page.until("document.querySelector('#token')")
        assert "n1" not in await page.text("main")
        await page.run("document.querySelector('#token').focus()")
        await page.write(known["operator"])
        await page.press("Enter")
        await page.until("document.querySelector('#who').innerText === 'operator operator'")
        assert known["operator"] not in await page.run("document.documentElement.outerHTML + document.cookie")
        await page.run("dispatchEvent(new CustomEvent('go', { detail: '/nodes/n1' }))")
        button = "[...document.querySelectorAll('main button')].find((each) => each.innerText === 'Cordon')"
        await page.until(f"{button} && !{button}.hidden")
        await page.run(f"{button}.click()")
        await page.until("document.querySelector('dialog[open]')")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog')")
        assert not nodes["n1"].cordoned
        await page.run(f"{button}.click()")
        await page.until("document.activeElement.id === 'reason'")
        await page.write("for a test")
        await page.press("Tab")
        await page.press("Enter")
        await page.until("document.querySelector('main').innerText.includes('cordoned')")
        assert found.leader_term.core.state.nodes["n1"].cordoned == "for a test"
        assert page.complaints == []


async def test_a_page_that_was_cut_off_comes_back_by_itself(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until("document.querySelector('#link').innerText === 'live'")
        await found.page.close()
        await page.until("document.querySelector('#link').innerText === 'connection lost'")
        await found.leader_term.loop.ask(NodeJoined("n7", 1, "l", "127.0.0.1", 1, 29500, ()))
        again = Page(found.served.front, ("127.0.0.1", found.page.port), TlsFiles(), Authenticator("c1"))
        again.start()
        try:
            await page.until("document.querySelector('#link').innerText === 'live'", timeout_s=40)
            await page.until("document.querySelector('main').innerText.startsWith('Nodes\\n\\n3 up')")
        finally:
            await again.close()


async def test_a_node_whose_stream_broke_is_drawn_at_its_place(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term, nodes=40)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until(f"{DRAWN} && document.querySelector('main').innerText.includes('40 up')")
        assert await page.run(COUNT) == 0
        await found.leader_term.loop.ask(NodeBroken("n17", 1, "the stream ended"))
        await page.until(f"{COUNT} > 0")
        assert "n17" in await page.text("table")
