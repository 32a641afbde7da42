"""What newer agents report reaches detectors, account and report; without it they are quiet, not wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest

from controlplane.analysis.live.efficiency import Efficiency
from controlplane.analysis.live.eta import Eta
from controlplane.core.records.events import PauseRequested
from controlplane.core.records.model import JobPhase
from controlplane.daemon.diagnosis import eta
from controlplane.daemon.telemetry.job_time import Account, Spent
from controlplane.daemon.telemetry.metrics import Metrics
from tests.daemon.diagnosis.stage import STEPS, Stage

GIB = 1 << 30
QUIET: dict[str, tuple[Any, ...]] = {"device_used": (0.9,) * 4, "memory_limit_bytes": (10 * GIB,) * 4}
WORK: dict[str, tuple[Any, ...]] = {
    "token_flops": (1e6,) * 4,
    "peak_flops": (1e9,) * 4,
    "compute_notes": ("counted",) * 4,
}


async def kinds(**told: tuple[Any, ...]) -> set[str]:
    """The kinds of findings after enough windows in which ranks of 1 GiB tell this."""
    stage = Stage()
    stage.told = told
    await stage.windows(14)
    return {each["kind"] for each in stage.report_of()["findings"]}


async def test_nothing_is_found_where_devices_work_and_memory_is_left() -> None:
    assert await kinds(**QUIET) == set()
    assert await kinds() == set(), "older agents tell neither"


async def test_a_device_that_waits_is_found() -> None:
    assert await kinds(**QUIET | {"device_used": (0.3,) * 4}) == {"device_underused"}


@pytest.mark.parametrize("used", [-1.0, 1.5, 1e9])
async def test_a_share_that_is_none_is_not_known(used: float) -> None:
    assert await kinds(**QUIET | {"device_used": (used,) * 4}) == set()


async def test_memory_that_is_nearly_full_is_found() -> None:
    nearly = int(1.05 * GIB)
    assert await kinds(**QUIET | {"memory_limit_bytes": (nearly, *(10 * GIB,) * 3)}) == {"memory_nearly_full"}
    assert await kinds(**QUIET | {"memory_limit_bytes": (0,) * 4}) == set(), "no limit is known"


async def test_what_steps_lose_goes_to_the_account() -> None:
    stage = Stage()
    stage.told = {"compile_s": (0.5,) * 4}
    await stage.windows(2, {1: 2.0})
    assert stage.lost[-1]["slow_rank"] == pytest.approx(0.04 * STEPS)
    assert stage.lost[-1]["compile"] == 0.5


async def test_the_report_says_what_devices_achieve_or_why_not() -> None:
    stage = Stage()
    assert stage.report_of()["efficiency"]["mfu"] is None
    assert "no rank has reported" in stage.report_of()["efficiency"]["reason"]
    stage.told = WORK
    await stage.windows(1)
    found = stage.report_of()["efficiency"]
    assert found["mfu"] is None and "counts no tokens" in found["reason"]
    assert stage.report_of()["time"] is None, "nobody keeps an account here"


def test_metrics_show_only_what_is_known() -> None:
    metrics = Metrics("0")

    def shown(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"holdfast_{name}", {"training_job": "j"})

    metrics.show_eta("j", None)
    assert shown("job_eta_seconds") is None
    metrics.show_eta("j", 12.5)
    assert shown("job_eta_seconds") == 12.5
    metrics.show_eta("j", None)
    assert shown("job_eta_seconds") is None
    metrics.show_efficiency("j", Efficiency())
    assert shown("mfu_ratio") is None
    metrics.show_efficiency("j", Efficiency(10.0, 100.0, 1e9, 2e9, 0.5, ""))
    assert (shown("samples_per_second"), shown("tokens_per_second"), shown("mfu_ratio")) == (10, 100, 0.5)
    metrics.show_efficiency("j", Efficiency(tokens_per_s=50.0, reason="impossible"))
    assert shown("mfu_ratio") is shown("samples_per_second") is None
    tokens = shown("tokens_per_second")
    assert tokens is not None and math.isclose(tokens, 50.0)


def eta_of(stage: Stage) -> Eta:
    return stage.diagnosis.eta(stage.play.cluster.state.jobs["j"])


async def test_the_end_of_a_job_is_forecast_from_what_its_ranks_say() -> None:
    stage = Stage()
    assert eta_of(stage).word == "no steps yet"
    assert Stage(every_s=0.0).diagnosis.eta(stage.play.cluster.state.jobs["j"]).word == "diagnosis off"
    await stage.windows(2)
    assert eta_of(stage).word == "older agent" and stage.etas == {"j": None}
    stage.told = {"end_kinds": ("loop",) * 4, "end_steps": (10_000,) * 4}
    await stage.windows(4)
    found = eta_of(stage)
    assert found.at_s == pytest.approx(stage.wall_s + 0.05 * (10_000 - stage.step - 1))
    assert stage.etas["j"] == pytest.approx(0.05 * (10_000 - stage.step - 1))
    stage.told["end_kinds"] = ("loop", "loop", "several", "loop")
    await stage.windows(1)
    assert eta_of(stage).word == "no total" and stage.etas == {"j": None}


async def test_a_job_that_stands_has_a_reason_in_place_of_an_end() -> None:
    stage = Stage()
    stage.told = {"end_kinds": ("job",) * 4, "end_steps": (10_000,) * 4}
    await stage.windows(4)
    assert eta_of(stage).at_s is not None
    stage.play.do("report j.1000001 running gen=1 step=24 stalled=130")
    assert eta_of(stage) == Eta(None, "stalled", "rank 1 has made no progress for 2 min 10 s")
    stage.play.do("report j.1000001 running gen=1 step=25 stalled=0")
    assert eta_of(stage).at_s is not None
    stage.play.feed(PauseRequested("j", True, "lunch"))
    job = stage.play.cluster.state.jobs["j"]
    assert job.phase is not JobPhase.RUNNING and eta_of(stage).word in ("recovering", "paused")


def test_no_phase_of_a_job_is_without_an_answer() -> None:
    assert set(eta._STANDS) == set(JobPhase)


def test_what_failures_took_of_the_last_hour() -> None:
    account = Account(0.0)
    assert account.kept_share() == 1.0
    account.add(30.0, Spent(50.0, {"forming": 30.0, "restore": 20.0, "data": 9.0}))
    assert account.kept_share() == 1.0, "no failure: the job began"
    account.add(3630.0, Spent(60.0, {"signaled": 10.0, "restore": 5.0, "redone": 5.0, "slow_rank": 20.0}))
    assert account.kept_share() == pytest.approx(0.8), "the first minute is more than an hour ago"
    account.add(3660.0, Spent(60.0, unknown_s=40.0))
    assert account.kept_share() == pytest.approx(0.9)
