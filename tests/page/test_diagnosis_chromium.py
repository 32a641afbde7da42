"""The diagnosis of a job in a real browser: a slow rank is on the map and in a finding, and can be muted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.page.browser import BUILD, DESK, FRAMES, IN_CHROMIUM, PHONE, TOO_WIDE, axe_complaints, tab
from tests.page.training import EVERY_S, judge, training
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens
    from tests.page.browser import Browser, Tab

pytestmark = IN_CHROMIUM
FINDING = "document.querySelector('.findings li')"
WORST = "document.querySelector('[aria-label$=\"from their peers\"] table')"
LANES = "[...document.querySelectorAll('.lanes > li')]"
COLOURS = """(() => {
  const style = getComputedStyle(document.documentElement);
  const counts = { "--c1": 0, "--c2": 0, "--c3": 0, "--c7": 0 };
  const names = new Map(Object.keys(counts).map((name) => [style.getPropertyValue(name).trim(), name]));
  const hex = (value) => value.toString(16).padStart(2, "0");
  const map = document.querySelector("canvas.map");
  const all = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
  for (let i = 0; i < all.length; i += 4) {
    const text = `#${hex(all[i])}${hex(all[i + 1])}${hex(all[i + 2])}`;
    if (names.has(text) && all[i + 3] === 255) counts[names.get(text)] += 1;
  }
  return counts;
})()"""
"""How many points of the map have each colour that says how long a rank's work takes."""


async def _open(page: Tab, port: int) -> None:
    await page.sized(DESK)
    await page.open(f"http://localhost:{port}/jobs/j")
    await page.until(
        "[...document.querySelectorAll('main a')].some((each) => each.innerText === 'What slows it')"
    )
    await page.run(
        "[...document.querySelectorAll('main a')].find((each) => each.innerText === 'What slows it').click()"
    )
    await page.until("location.pathname === '/jobs/j/diagnosis'")


async def _pictures(page: Tab, name: str) -> None:
    """Screenshots for people, in light, in dark, and on a phone; none is wider than its screen."""
    for kind in ("light", "dark", "phone"):
        await page.sized(PHONE if kind == "phone" else DESK, dark=kind == "dark")
        await page.run(FRAMES)
        wide = await page.run(TOO_WIDE)
        assert wide <= 0, f"{wide} px wider than a {kind} screen"
        high = int(await page.run("document.documentElement.scrollHeight"))
        size = (PHONE if kind == "phone" else DESK)[0], min(high, 4000)
        await page.sized(size, dark=kind == "dark")
        await page.run(FRAMES)
        await page.picture(BUILD / f"{kind}-diagnosis-{name}.png")
    await page.sized(DESK)
    await page.run(FRAMES)


async def test_a_slow_rank_is_found_on_the_map_and_muted(
    browser: Browser, tokens: Tokens, known: dict[str, str]
) -> None:
    async with (
        paged(tokens, diagnose_every_s=EVERY_S) as found,
        training(found, {3: 2.0}) as trained,
        tab(browser) as page,
    ):
        await trained.until_found()
        await page.sized(DESK)
        await page.open(f"http://localhost:{found.page.port}/login")
        await page.until("document.querySelector('#token')")
        await page.run("document.querySelector('#token').focus()")
        await page.write(known["operator"])
        await page.press("Enter")
        await page.until("document.querySelector('#who').innerText === 'operator operator'")
        await page.run("dispatchEvent(new CustomEvent('go', { detail: '/jobs/j/diagnosis' }))")
        await page.until(FINDING)
        text = await page.text(".findings li")
        assert "slow rank: rank 3 (n01, device 1)" in text and "holdfast drain" in text and "effort" in text
        main = await page.text("main")
        assert "Slowest rank: rank 3 on n01" in main and "1.67 times as long as if" in main
        assert (await page.run(f"{FINDING}.querySelector('details').innerHTML")).count("own ratio") == 1
        await _read_map(page)
        await _mute(page)
        assert trained.report()["findings"][0]["muted"]
        await _pictures(page, "4")
        assert page.complaints == []


async def _read_map(page: Tab) -> None:
    """By keyboard: rank by rank, with its numbers."""
    points = await page.run(COLOURS)
    assert points["--c3"] > 0 and points["--c7"] > 0 and points["--c2"] == points["--c1"] == 0
    await page.run("document.querySelector('canvas.map').focus()")
    assert (await page.text("#pointed")).startswith("rank 0 on n00: own work 40.0 ms, 1.00 times")
    await page.press("End")
    pointed = await page.text("#pointed")
    assert pointed.startswith("rank 3 on n01: own work 80.0 ms, 2.00 times") and "forward 80.0 %" in pointed
    await page.press("Enter")
    await page.until("location.pathname === '/nodes/n01'")
    await page.run("history.back()")
    await page.until(f"location.pathname === '/jobs/j/diagnosis' && {FINDING}")


async def _mute(page: Tab) -> None:
    """Press the button that a finding has for operators, and answer its question."""
    button = "[...document.querySelectorAll('.findings button')].find((each) => each.innerText === '%s')"
    mute, alert = button % "Mute for a day", button % "Alert again"
    await page.until(f"{mute} && !{mute}.hidden")
    assert await page.run(f"{alert} === undefined || {alert}.hidden")
    await page.run(f"{mute}.click()")
    await page.until("document.activeElement.id === 'reason'")
    await page.write("the card is on order")
    await page.press("Tab")
    await page.press("Enter")
    await page.until(
        f"{FINDING}.innerText.includes('muted until') && !{alert}.hidden && {mute}?.hidden !== false"
    )


async def test_whoever_only_looks_has_no_button(browser: Browser) -> None:
    async with (
        paged(diagnose_every_s=EVERY_S) as found,
        training(found, {3: 2.0}) as trained,
        tab(browser) as page,
    ):
        await trained.until_found()
        await _open(page, found.page.port)
        await page.until(FINDING)
        assert "Mute" not in await page.text("main")
        trained.slow.clear()
        await trained.until_found(0)
        await page.until("document.querySelector('main').innerText.includes('Resolved findings (1)')")
        assert "No finding: nobody is to blame." in await page.text("main")
        await page.run("document.querySelector('main details summary').click()")
        assert "resolved" in await page.text("details .findings li")
        assert page.complaints == []


async def test_a_thousand_ranks_are_one_map(browser: Browser) -> None:
    slow = dict.fromkeys(range(512, 576), 1.3) | {100: 2.0}
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        judge(found.leader_term, 1024, slow)
        await _open(page, found.page.port)
        await page.until(FINDING)
        assert await page.run("document.querySelectorAll('.findings li.card').length") == 5
        await page.run("document.querySelector('.findings + button').click()")
        assert await page.run("document.querySelectorAll('.findings li.card').length") == 9
        points = await page.run(COLOURS)
        assert points["--c7"] > points["--c2"] > points["--c3"] > 0
        await page.run("document.querySelector('canvas.map').focus()")
        await page.press("End")
        assert (await page.text("#pointed")).startswith("rank 1023 on n0127: own work 40.0 ms, 1.00 times")
        rows = await page.run(f"{WORST}.rows.length")
        assert rows == 33 and "992 ranks more are nearer" in await page.text("main")
        await _read_lanes(page)
        await _pictures(page, "1024")
        assert page.complaints == []


async def _read_lanes(page: Tab) -> None:
    """The bar of each rank: 16, then 64; the parts of the slowest one, which the others wait for."""
    assert await page.run(f"{LANES}.length") == 16
    slowest = f"{LANES}.find((each) => each.className === 'slowest')"
    assert (await page.run(f"{slowest}.innerText")).startswith("rank 100 (slowest) n0012")
    parts = f"[...{slowest}.querySelectorAll('.bar span')]"
    assert await page.run(f"{parts}.map((each) => each.className)") == ["s7", "s4", "s6", "s1"]
    assert await page.run(f"{parts}[2].title") == "communication 20.0 ms, 20.0 %"
    shares = await page.run(f"{parts}.map((each) => parseFloat(each.style.width))")
    assert [round(share) for share in shares] == [32, 40, 20, 8]
    other = f"{LANES}.find((each) => each.innerText.startsWith('rank 512 '))"
    assert (
        await page.run(f"{other}.querySelectorAll('.bar span')[2].title") == "communication 48.0 ms, 48.0 %"
    )
    assert "16 of 1,024 ranks: the slowest" in await page.text("main")
    await page.run("document.querySelector('.lanes + button').click()")
    assert await page.run(f"{LANES}.length") == 64


async def test_what_is_not_known_is_said_to_be_unknown(browser: Browser) -> None:
    async with paged(diagnose_every_s=EVERY_S) as found, tab(browser) as page:
        await job(found.leader_term)
        await _open(page, found.page.port)
        await page.until(
            "document.querySelector('main').innerText.includes('no rank has reported a step yet')"
        )
        assert await page.run("document.querySelector('canvas.map').offsetParent === null")
        await page.open(f"http://localhost:{found.page.port}/jobs/none/diagnosis")
        await page.until("document.querySelector('main .notice:not([hidden])')")
        assert "no job" in await page.text("main .notice") and "nobody is to blame" not in await page.text(
            "main"
        )
        assert [each for each in page.complaints if "404" not in each] == []


async def test_axe_finds_nothing_in_a_diagnosis(browser: Browser, axe: str) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        judge(found.leader_term, 64, {5: 2.0})
        await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
        await _open(page, found.page.port)
        await page.until(FINDING)
        await page.run("document.querySelector('.findings details').open = true")
        await page.run(f"{axe}; 0")
        assert await axe_complaints(page) == []


async def test_names_are_shown_as_text_even_if_they_are_markup(browser: Browser) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        evil = "<img src=x onerror=alert(1)>"
        judge(found.leader_term, 16, {5: 2.0}, node=evil)
        await _open(page, found.page.port)
        await page.until(FINDING)
        assert evil in await page.text(".findings li")
        await page.run("document.querySelector('canvas.map').focus()")
        assert evil in await page.text("#pointed") and evil in await page.text(".steps")
        assert await page.run("document.querySelectorAll('img').length") == 0
        assert page.complaints == []
