"""Bars of incidents have one scale, colours have one meaning, and small clusters name their nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from controlplane.core.records.model import Cause
from controlplane.core.records.words import in_words
from controlplane.daemon.telemetry.badput import NAMES
from tests.page.browser import BUILD, DESK, FRAMES, IN_CHROMIUM, PHONE, tab
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from tests.page.browser import Browser

pytestmark = IN_CHROMIUM
DRAWN = "document.documentElement.dataset.moment"
PLANNED = {Cause.RESIZED.value}


def _row(number: int, planned: bool = False, **phases_s: float) -> dict[str, Any]:
    words = {"happened": f"rank {number} was killed", "done": "a spare took its place", "repeated": "0 steps"}
    return words | {
        "job": "j",
        "incident": number,
        "outcome": "recovered",
        "begun_s": 1e9 + number,
        "ended_s": 1e9 + number + sum(phases_s.values()),
        "phases_s": phases_s,
        "total_s": sum(phases_s.values()),
        "planned": planned,
        "lines": 9,
    }


async def test_a_bar_is_as_long_as_its_incident_compared_with_the_longest(browser: Browser) -> None:
    rows = [_row(1, detect=1.0, restore=3.0), _row(2, detect=0.5, decide=0.1, first_step=0.4)]
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/jobs")
        await page.until(DRAWN)
        put = f"for (const row of {json.dumps(rows)}) feed.tables.incidents.set(`j/${{row.incident}}`, row)"
        await page.run(f"import('/static/feed.js').then((feed) => {{ {put}; }})")
        await page.run("dispatchEvent(new CustomEvent('go', { detail: '/incidents' }))")
        await page.until("document.querySelectorAll('ol.timeline > li').length === 2")
        bars = "[...document.querySelectorAll('ol.timeline .bar')]"
        widths = await page.run(f"{bars}.map((bar) => bar.getBoundingClientRect().width)")
        assert abs(widths[0] / widths[1] - 0.25) < 0.01
        assert await page.run(f"{bars}[1].firstChild.className") == "s3"
        text = await page.text("main")
        assert "All bars have one scale: a full one is 4.0 s." in text and "UTC" not in text
        assert "No planned changes." in text and "No incidents." not in text
        shown = "map((each) => !each.hidden && each.innerText)"
        legends = f"[...document.querySelectorAll('main .legend')].{shown}"
        told = await page.run(legends)
        assert "restore" in told[0] and told[1:] == [False], "colours are explained where there are bars"
        for kind in ("light", "dark", "phone"):
            await page.sized(PHONE if kind == "phone" else DESK, dark=kind == "dark")
            await page.run(FRAMES)
            await page.picture(BUILD / f"{kind}-bars.png")
        await page.run("dispatchEvent(new CustomEvent('go', { detail: '/jobs/j' }))")
        await page.until("document.querySelectorAll('ol.timeline > li').length === 2")
        assert any("restore" in text for text in await page.run(legends) if text)
        assert page.complaints == []


async def test_every_cause_and_phase_has_a_colour_of_its_kind(browser: Browser) -> None:
    failures = {cause.value for cause in Cause} - PLANNED | {"detect"}
    others = {*NAMES, "decide", "fence", "reform", "restore", "first_step", "training", "unknown"} - failures
    async with paged() as found, tab(browser) as page:
        await page.open(f"http://localhost:{found.page.port}/time")
        names = json.dumps(sorted(failures | others))
        script = f"import('/static/colours.js').then((made) => {names}.map(made.colour))"
        colours = dict(zip(sorted(failures | others), await page.run(script), strict=True))
        assert {name for name, colour in colours.items() if colour == "s3"} == failures
        values = {
            await page.run(f"getComputedStyle(document.documentElement).getPropertyValue('--c{colour[1:]}')")
            for colour in colours.values()
        }
        assert len(values) == len(set(colours.values())) and "" not in values
        plain = await page.run(f"import('/static/words.js').then((made) => {names}.map(made.plain))")
        assert plain == [in_words(name) for name in sorted(failures | others)]


async def test_few_nodes_have_a_large_map(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term, nodes=1)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until(f"{DRAWN} && !document.querySelector('canvas.map').hidden")
        high = "document.querySelector('canvas.map').getBoundingClientRect().height"
        alone = await page.run(high)
        assert alone >= 30, "one rank of one node"
        await job(found.leader_term, name="k", nodes=400)
        await page.until("document.querySelector('main').innerText.includes('400 up')")
        assert alone < await page.run(high) <= await page.run("Math.max(320, innerHeight - 220)")
        await page.picture(BUILD / "light-map-400.png")
        assert page.complaints == []


async def test_nodes_are_named_below_a_hundred(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term, nodes=99)
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/nodes")
        await page.until(f"{DRAWN} && document.querySelector('main').innerText.includes('99 up')")
        table = "document.querySelector('[aria-label=\"All nodes\"]')"
        assert await page.run(f"!{table}.hidden && {table}.querySelectorAll('tbody tr').length") == 99
        names = await page.run(f"[...{table}.querySelectorAll('tbody a')].map((link) => link.innerText)")
        assert names == [f"n{number}" for number in range(99)]
        await job(found.leader_term, name="k", nodes=100)
        await page.until(f"{table}.hidden && document.querySelector('main').innerText.includes('100 up')")
        assert page.complaints == []
