"""The health report of a job on the page: who gets it, what it says, and that operators mute findings."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from controlplane.daemon.page import health
from controlplane.daemon.page.health import HealthAnswers
from tests.page.training import EVERY_S, judge, training
from tests.page.visiting import job, paged

if TYPE_CHECKING:
    from controlplane.access.tokens import Tokens

REPORT = "/api/jobs/j/diagnosis"
SLOW = {3: 2.0}


async def test_the_report_is_that_of_the_command_with_all_ranks_as_columns() -> None:
    async with paged(diagnose_every_s=EVERY_S) as found, training(found, SLOW) as trained:
        await trained.until_found()
        seen, whole = (await found.visitor.get(REPORT)).json(), trained.report()
        assert seen["findings"] == whole["findings"] and seen["findings"][0]["subject"]["rank"] == 3
        assert seen["anatomy"].keys() == whole["anatomy"].keys()
        columns = seen["anatomy"]["columns"]
        assert columns["ranks"] == [0, 1, 2, 3] and columns["ratios"] == [1.0, 1.0, 1.0, 2.0]
        assert [columns["node_names"][node] for node in columns["nodes"]] == [
            row["node"] for row in whole["anatomy"]["ranks"]
        ]
        assert seen["anatomy"]["slowest_rank"] == 3 and seen["anatomy"]["typical_rank"] != 3


async def test_a_large_job_is_told_in_full_only_where_ranks_differ() -> None:
    slow = dict.fromkeys(range(3), 1.3) | {100: 2.0}
    async with paged() as found:
        await job(found.leader_term)
        judge(found.leader_term, 10_000, slow)
        reply = await found.visitor.get(REPORT, accept_encoding="gzip")
        assert reply.headers["content-encoding"] == "gzip"
        anatomy = json.loads(gzip.decompress(reply.body))["anatomy"]
        assert len(anatomy["columns"]["ranks"]) == 10_000
        shown = {row["rank"] for row in anatomy["ranks"]}
        assert set(slow) | {anatomy["typical_rank"]} <= shown and len(shown) <= health.ROWS_MOST + 2


async def test_without_reports_it_says_why_nothing_is_known() -> None:
    async with paged() as found:
        await job(found.leader_term)
        seen = (await found.visitor.get(REPORT)).json()
        assert seen["findings"] == [] and "--diagnose-every-s" in seen["anatomy"]["reason"]
    async with paged(diagnose_every_s=EVERY_S) as found:
        await job(found.leader_term)
        anatomy = (await found.visitor.get(REPORT)).json()["anatomy"]
        assert "no rank has reported" in anatomy["reason"] and anatomy["ranks"] == []


async def test_whoever_may_not_see_the_job_learns_nothing(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens) as found:
        await job(found.leader_term)
        assert (await found.visitor.get(REPORT)).status == 401
        await found.visitor.log_in(known["other"])
        hidden, none = await found.visitor.get(REPORT), await found.visitor.get("/api/jobs/x/diagnosis")
        assert hidden.status == none.status == 404
        await found.visitor.log_in(known["restricted"])
        assert (await found.visitor.get(REPORT)).json()["job"] == "j"
        for path in ("/api/jobs/j/diagnosis/x", "/api/jobs/j/other", "/api/jobs//diagnosis"):
            assert (await found.visitor.get(path)).status == 404, path
    async with paged(leads=False) as standby:
        assert (await standby.visitor.get(REPORT)).status == 409


async def test_operators_mute_a_finding_and_viewers_do_not(tokens: Tokens, known: dict[str, str]) -> None:
    async with paged(tokens, diagnose_every_s=EVERY_S) as found, training(found, SLOW) as trained:
        await trained.until_found()
        visitor, (finding,) = found.visitor, trained.report()["findings"]
        body = {"job": "j", "id": finding["id"], "for_s": 86400, "reason": "the card is on order"}
        await visitor.log_in(known["viewer"])
        assert (await visitor.post("/api/act/mute", body)).status == 403
        await visitor.log_in(known["restricted"])
        assert (await visitor.post("/api/act/mute", body, x_holdfast_csrf="guessed")).status == 403
        other = await visitor.post("/api/act/mute", body | {"job": "other"})
        assert other.status == 403 and "for j only" in other.json()["error"]
        assert not (await visitor.get(REPORT)).json()["findings"][0]["muted"]
        reply = await visitor.post("/api/act/mute", body)
        assert reply.status == 200 and reply.json()["outcome"] == "muted"
        assert (await visitor.get(REPORT)).json()["findings"][0]["muted"]
        again = await visitor.post("/api/act/mute", body | {"for_s": 0})
        assert again.json()["outcome"] == "unmuted"
        assert (await visitor.post("/api/act/mute", body | {"id": "slow_rank:9"})).status == 404
        assert (await visitor.post("/api/act/mute", body | {"for_s": "NaN"})).status == 400


async def test_many_viewers_cost_as_much_as_one() -> None:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 0.01
        return now_s

    async with paged() as found:
        await job(found.leader_term)
        answers = HealthAnswers(clock)
        first = answers.answer(found.leader_term, "j")
        assert answers.answer(found.leader_term, "j") is first, "what took 10 ms is kept for half a second"
        now_s += 1.0
        assert answers.answer(found.leader_term, "j") is not first
        second = answers.answer(found.leader_term, "j")
        answers.forget()
        assert answers.answer(found.leader_term, "j") is not second
