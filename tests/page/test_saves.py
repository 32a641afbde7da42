"""Ages of checkpoints and failed saves: from the journal to the page."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from controlplane.core.records.model import CheckpointRecord
from controlplane.daemon.page.saves import COMMITS_MAX, FAILURES_SHOWN, JOBS_MAX, Saves
from tests.page.browser import BUILD, CUT_OFF, DESK, FRAMES, IN_CHROMIUM, PHONE, TOO_WIDE, axe_complaints, tab
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens
    from controlplane.daemon.leadership.leader_term import LeaderTerm
    from tests.page.browser import Browser
    from tests.page.visiting import Paged

pytestmark = IN_CHROMIUM
DRAWN = "document.documentElement.dataset.moment"
WHY = "OSError: [Errno 28] No space left on device: " + "/mnt/checkpoints/" + "x" * 160


def _body(checkpoint: str, outcome: str, reason: str = "", job: str = "j") -> dict[str, Any]:
    return {"job": job, "checkpoint": checkpoint, "outcome": outcome, "reason": reason, "record": None}


def _line(number: int, **body: Any) -> dict[str, Any]:
    return {"type": "CheckpointChanged", "sequence": number, "wall_s": 1e9 + number, "body": _body(**body)}


def test_what_is_remembered_is_bounded_and_the_newest() -> None:
    saves = Saves()
    for number in range(COMMITS_MAX + 5):
        saves.add(_line(number, checkpoint=f"{number}-1", outcome="committed"))
    assert saves.committed_s("j", "4-1") is None and saves.committed_s("j", "5-1") == 1e9 + 5
    for number in range(FAILURES_SHOWN + 3):
        saves.add(_line(number, checkpoint=f"{number}-1", outcome="failed", reason="full"))
    found = dict(saves.failures("j"))
    assert list(found) == [f"j/{number}" for number in range(3, FAILURES_SHOWN + 3)]
    assert (found["j/3"]["id"], found["j/3"]["reason"], found["j/3"]["at_s"]) == ("3-1", "full", 1e9 + 3)
    for number in range(JOBS_MAX):
        saves.add(_line(number, checkpoint="1-1", outcome="bad", job=f"k{number}"))
    assert not list(saves.failures("j")) and list(saves.failures(f"k{JOBS_MAX - 1}"))


def test_what_is_no_failure_is_none() -> None:
    saves = Saves()
    for number, outcome in enumerate(
        ("started", "committed", "mirrored", "collected", "adopted", "provisional")
    ):
        saves.add(_line(number, checkpoint="1-1", outcome=outcome))
    saves.add({"type": "Judged", "sequence": 9, "wall_s": 1.0, "body": {"job": "j"}})
    assert not list(saves.failures("j"))


def _save(found: Paged, checkpoint: str, outcome: str, reason: str = "") -> None:
    found.served.front.journal.write_body(
        found.leader_term.term, "effect", "CheckpointChanged", _body(checkpoint, outcome, reason)
    )


def _durable(leader_term: LeaderTerm, step: int) -> None:
    record = CheckpointRecord(
        "j", f"{step}-1", step, 1, "full", f"{step}-1", "0" * 64, 3 << 30, 1 << 30, ((0, step),), True
    )
    leader_term.core.state.jobs["j"].checkpoints.records[record.id] = record


async def test_only_who_may_see_a_job_sees_its_failed_saves(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        await job(found.leader_term)
        _save(found, "20-1", "failed", WHY)
        for who, count in (("viewer", 1), ("restricted", 1), ("other", 0)):
            await found.visitor.log_in(known[who])
            tables = (await found.visitor.get("/api/state")).json()["tables"]
            assert len(tables["failed_saves"]) == count, who


async def test_ages_and_failed_saves_are_shown_and_nothing_is_cut_off(browser: Browser, axe: str) -> None:
    async with paged() as found, tab(browser) as page:
        await job(found.leader_term)
        found.leader_term.core.state.jobs["j"].spec = _stored(found)
        _durable(found.leader_term, 10)
        _durable(found.leader_term, 20)
        _save(found, "20-1", "committed", "step 20, full")
        await page.sized(DESK)
        await page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page's
        await page.open(f"http://localhost:{found.page.port}/checkpoints")
        await page.until(f"{DRAWN} && document.querySelector('main').innerText.includes('20-1')")
        text = await page.text("main")
        assert "has no failed save" in text
        _save(found, "30-1", "failed", WHY)
        _save(found, "25-1", "skipped", "rank 3 holds no whole snapshot")
        await page.until("document.querySelector('main').innerText.includes('was not saved')")
        text = await page.text("main")
        assert "The newest durable checkpoint is of step 20, " in text and " ago." in text
        ages = "[...document.querySelectorAll('td[data-name=Age]')].map((each) => each.innerText)"
        told = await page.run(ages)
        assert told[1] == "not known" and told[0].endswith(" ago"), told
        assert WHY in text and "was not begun" in text and "Since 2" in text
        await page.run(f"{axe}; 0")
        assert await axe_complaints(page) == []
        for kind in ("light", "dark", "phone"):
            await page.sized(PHONE if kind == "phone" else DESK, dark=kind == "dark")
            await page.run(FRAMES)
            assert await page.run(TOO_WIDE) <= 0
            assert await page.run(CUT_OFF) == [], kind
            await page.picture(BUILD / f"{kind}-saves.png")
        assert page.complaints == []


def _stored(found: Paged) -> Any:
    spec = found.leader_term.core.state.jobs["j"].spec
    return dataclasses.replace(spec, storage="file:///mnt/one", mirror="file:///mnt/two", commit_when="first")
