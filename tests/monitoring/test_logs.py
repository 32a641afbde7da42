"""Log lines for people and for machines, with the incident that they belong to."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys

import pytest

from controlplane.core.cluster import Cluster
from controlplane.core.records import effects
from controlplane.core.records.model import Cause, Incident, Plan, Scope, Strategy, Verdict
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.daemon.telemetry.observer import Observer
from controlplane.settings import AgentSettings, CoordinatorSettings, SettingsError, check
from holdfast.logs import JsonFormatter, TextFormatter, bound, incident, of_incident

VERDICT = Verdict("job", Scope.RANK, Cause.SIGNALED, ("n1",), ("job.2",), (2,), 20, ("rank 2: SIGKILL",))
PLAN = Plan("job", Strategy.SPARE, ("job.2",), ("job.4",), "one stands ready\nTraceback")


def record(message: str = "so be %s", **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("holdfast.x", logging.WARNING, "x.py", 1, message, ("it",), None)
    made.__dict__.update(extra)
    return made


def test_json_is_one_line_whatever_is_in_it() -> None:
    line = JsonFormatter(cluster="c").format(record("a\nb \ud800 %s", **of_incident("job", 3, term=7)))
    assert "\n" not in line
    read = json.loads(line)
    assert read["message"] == "a\nb \ud800 it" and read["level"] == "warning" and read["cluster"] == "c"
    assert (read["incident"], read["training_job"], read["term"]) == ("job/3", "job", 7)
    assert read["time"].endswith("Z")


def test_an_exception_stays_in_its_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        made = record()
        made.exc_info = sys.exc_info()
    read = json.loads(JsonFormatter().format(made))
    assert "ValueError: no" in read["exception"] and "Traceback" in read["exception"]


def test_text_names_the_incident() -> None:
    assert TextFormatter().format(record()).endswith("WARNING holdfast.x: so be it")
    told = TextFormatter().format(record(**of_incident("job", 3)))
    assert told.endswith("so be it [incident job/3]")


def test_an_incident_is_logged_from_its_verdict_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = iter(range(100))
    metrics = Metrics("0")
    observer = Observer(metrics, lambda: float(next(clock)), lambda: 1e9)
    caplog.set_level(logging.INFO)
    observer.effect(effects.Judged(VERDICT, PLAN, 3))
    incident = Incident(3, "job", VERDICT, PLAN, 1, 2, 4, "recovered", (("detect", 0.5), ("restore", 1.0)))
    observer.effect(effects.IncidentChanged(incident))
    observer.look(Cluster())
    lines = [json.loads(JsonFormatter().format(each)) for each in caplog.records]
    assert [line["incident"] for line in lines] == ["job/3", "job/3"]
    assert lines[0]["message"] == "rank 2: SIGKILL: one stands ready" and lines[0]["node"] == "n1"
    assert lines[1]["message"] == "recovered in 1.500 s" and lines[1]["generation"] == 2
    read = metrics.registry.get_sample_value
    of_job = {"training_job": "job"}
    closed = of_job | {"strategy": "spare", "outcome": "recovered", "whose": "cluster"}
    assert read("holdfast_incidents_total", closed) == 1
    assert read("holdfast_steps_lost_total", of_job) == 4
    assert read("holdfast_detection_seconds_sum", of_job) == 0.5
    assert read("holdfast_recovery_seconds_sum", of_job | {"phase": "restore"}) == 1.0


@pytest.mark.parametrize("kind", [CoordinatorSettings, AgentSettings])
def test_a_format_that_is_none(kind: type) -> None:
    with pytest.raises(SettingsError, match="--log-format 'xml' is not one of text, json"):
        check(kind(log_format="xml"))


def test_a_daemon_speaks_json() -> None:
    words = ["--log-format", "json", "--listen", "192.0.2.1:1", "--insecure", "--cluster", "c"]
    run = subprocess.run(
        [sys.executable, "-P", "-m", "controlplane", "coordinator", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode != 0
    lines = [json.loads(line) for line in run.stderr.splitlines() if line.startswith("{")]
    assert any("cannot listen on 192.0.2.1:1" in line["message"] for line in lines), run.stderr
    assert all(line["cluster"] == "c" for line in lines)


async def test_what_is_begun_within_an_incident_belongs_to_it() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return incident()

    with bound("job/3"):
        task = asyncio.create_task(later())
        with bound(""):
            assert incident() == ""
        assert incident() == "job/3"
    assert incident() == "" and await task == "job/3"


@pytest.mark.parametrize(
    "name", ["job", "job/", "/3", "job/3\n", "a b/1", "job/3/4", None, 7, "x" * 64 + "/1"]
)
def test_what_is_no_name_of_an_incident_binds_nothing(name: object) -> None:
    with bound(name):
        assert incident() == ""


def test_a_bound_incident_stands_in_every_line() -> None:
    program = (
        "import logging; from holdfast.logs import bound, of_incident, set_up\n"
        "set_up('json')\n"
        "with bound('a/1'):\n"
        "    logging.getLogger('x').info('one')\n"
        "    logging.getLogger('x').info('two', extra=of_incident('b', 2))\n"
        "logging.getLogger('x').info('three')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [line.get("incident") for line in lines] == ["a/1", "b/2", None]
    assert [line.get("training_job") for line in lines] == ["a", "b", None]
