"""A real Chromium, driven over its own DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
START_TIMEOUT_S = 30.0
PHONE, DESK = (390, 844), (1280, 900)
ONE_ROW = 60
"""No header of one row is as high, in px."""
BUILD = Path(__file__).parents[2] / "build" / "page"
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
"""Resolves when the page has drawn whatever was waiting."""
CUT_OFF = (
    "[...document.querySelectorAll('.wide')].filter((each) => each.scrollWidth > each.clientWidth)"
    ".map((each) => each.ariaLabel)"
)
"""The tables that are wider than their place."""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""How many px the page is wider than its screen. A phone widens innerWidth to show all of it, so that is no
measure."""
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-extensions", "--no-proxy-server", "--remote-debugging-port=0", "about:blank"),
)


def chromium() -> str:
    """The path of a Chromium; "" when there is none."""
    named = os.environ.get("CHROMIUM", "")
    found = [shutil.which(name) for name in ((named,) if named else NAMES)]
    return next((path for path in found if path), "")


IN_CHROMIUM = [
    pytest.mark.skipif(not chromium(), reason="no Chromium here: apt-get install chromium, or set CHROMIUM"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]
"""Marks of a module whose tests ask for the fixture `browser`."""


class Tab:
    """One tab. `complaints`: errors on the page's console, and exceptions that nobody caught."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        self._task = asyncio.create_task(self._listen())

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(60):
            return await answer

    async def begin(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "Performance"):
            await self.call(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page, and return its value. A promise is waited for."""
        reply = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    async def until(self, script: str, timeout_s: float = 20.0) -> float:
        """Wait until an expression is true in the page. Returns how long that took, in s."""
        begun = time.monotonic()
        while not await self.run(f"Boolean({script})"):
            assert time.monotonic() < begun + timeout_s, f"waited in vain for {script}: {await self.text()}"
            await asyncio.sleep(0.02)
        return time.monotonic() - begun

    async def text(self, selector: str = "body") -> str:
        return str(await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def press(self, key: str) -> None:
        """One key, as a keyboard sends it."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40, "ArrowLeft": 37}
        codes |= {"ArrowUp": 38, "Home": 36, "End": 35, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def write(self, text: str) -> None:
        """Text into whatever has the focus."""
        await self.call("Input.insertText", text=text)

    async def sized(self, size: tuple[int, int], *, dark: bool = False) -> None:
        """Set the size of the window, and the colour scheme (light or dark)."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, path: Path) -> None:
        """A screenshot."""
        reply = await self.call("Page.captureScreenshot", format="png")
        _keep(path, base64.b64decode(reply["data"]))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._socket.close()

    async def _listen(self) -> None:
        async for message in self._socket:
            document = json.loads(message.data)
            answer = self._waiting.pop(document.get("id", 0), None)
            if answer is not None and not answer.done():
                if "error" in document:
                    answer.set_exception(AssertionError(document["error"]))
                else:
                    answer.set_result(document["result"])
            self._hear(document.get("method", ""), document.get("params", {}))

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry'].get('url')}: {params['entry']['text']}")


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class Browser:
    """One Chromium process with a profile of its own."""

    def __init__(self, path: str) -> None:
        self._folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
        argv = [path, f"--user-data-dir={self._folder}", *_FLAGS]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(argv, stderr=log, stdout=log, start_new_session=True)

    async def address(self) -> str:
        """host:port of its DevTools."""
        path, ends = self._folder / "DevToolsActivePort", time.monotonic() + START_TIMEOUT_S
        while not path.exists() or "\n" not in path.read_text():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < ends, "Chromium does not start"
            await asyncio.sleep(0.05)
        return f"127.0.0.1:{path.read_text().split()[0]}"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    """A fresh tab with cookies of its own; closed afterwards."""
    address = await browser.address()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/json/version") as reply:
            whole = (await reply.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(whole) as socket:
            apart = (await _once(socket, "Target.createBrowserContext"))["browserContextId"]
            params = {"url": "about:blank", "browserContextId": apart}
            target = (await _once(socket, "Target.createTarget", params))["targetId"]
            page = await session.ws_connect(f"ws://{address}/devtools/page/{target}", max_msg_size=64 << 20)
            found = Tab(page)
            try:
                await found.begin()
                yield found
            finally:
                await found.close()
                await _once(socket, "Target.disposeBrowserContext", {"browserContextId": apart})


async def axe_complaints(page: Tab) -> list[str]:
    """What axe, which has been run in the tab, finds wrong with the view, in light and in dark."""
    found: list[str] = []
    for dark, rules in ((False, "{}"), (True, "{ runOnly: ['color-contrast'] }")):
        await page.sized(DESK, dark=dark)
        await page.run(FRAMES)
        script = f"axe.run({rules}).then((told) => JSON.stringify(told.violations))"
        violations = json.loads(await page.run(script))
        found += [f"{each['id']}: {each['help']}: {each['nodes'][0]['html']}, {dark=}" for each in violations]
    return found


async def _once(
    socket: aiohttp.ClientWebSocketResponse, method: str, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    await socket.send_json({"id": 1, "method": method, "params": params or {}})
    while True:
        document = await socket.receive_json(timeout=30)
        if document.get("id") == 1:
            assert "result" in document, document
            result: dict[str, Any] = document["result"]
            return result


async def pictures(page: Tab, name: str) -> None:
    """Screenshots for people, in light, in dark, and on a phone; none is wider than its screen."""
    for kind in ("light", "dark", "phone"):
        await page.sized(PHONE if kind == "phone" else DESK, dark=kind == "dark")
        await page.run(FRAMES)
        wide = await page.run(TOO_WIDE)
        assert wide <= 0, f"{wide} px wider than a {kind} screen"
        await page.picture(BUILD / f"{kind}-{name}.png")
    await page.sized(DESK)
