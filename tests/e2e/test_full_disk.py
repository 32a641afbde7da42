"""A storage that is full is said wherever a job's health is shown, and is over when it has room again."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING

from tests.e2e.checkpointing import trained
from tests.e2e.cli_running import ANSWERED_S, answer
from tests.e2e.test_bad_moments import small_memory
from tests.e2e.test_checkpoint_storages import EVERY_TEN, fill
from tests.e2e.test_cli_by_hand import holdfast

if TYPE_CHECKING:
    from tests.e2e.checkpointing import Trained

SENTENCE = re.compile(
    r"(\d+) checkpoints in a row failed since \d\d:\d\d:\d\d UTC: .*[Nn]o space left.*; "
    r"the newest durable one is step (\d+)"
)


def asked(job: Trained, *words: str) -> str:
    done = holdfast(*words, "--coordinator", job.run.layout.read_card()["coordinator"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def health(job: Trained) -> str:
    words = ("get", "jobs", "-o", "json", "--coordinator", job.run.layout.read_card()["coordinator"])
    (row,) = json.loads(answer(*words).stdout)
    return str(row["health"])


def scraped(job: Trained) -> dict[str, float]:
    """The coordinator's series."""
    address = json.loads((job.run.layout.state / "coordinator.json").read_text())["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_a_full_disk_is_said_everywhere_until_it_has_room_again() -> None:
    with small_memory("24m") as place:
        # A crowded machine is a finding about health too: not looked for here.
        undiagnosed = ("--diagnose-every-s", "0")
        flags = [*EVERY_TEN, *undiagnosed, "--storage", str(place / "storage"), "--codec", "none"]
        with trained("plain", *flags) as job:
            job.more(1)
            assert health(job) == "healthy"
            ballast = place / "ballast"
            fill(ballast)
            newest = job.committed()
            job.wait(lambda: len(job.changes("failed")) >= 4, "checkpoints fail")
            mine = f'training_job="{job.run.job}"}}'
            job.wait(
                lambda: scraped(job)[f"holdfast_checkpoint_failures_in_a_row{{{mine}"] >= 3,
                "the metric shows it",
                pause_s=ANSWERED_S,
            )
            _said(job, len(newest))
            assert scraped(job)[f'holdfast_job_health{{state="degraded",{mine}'] == 1
            assert scraped(job)[f'holdfast_job_trouble{{kind="checkpoints_failing",{mine}'] == 1
            ballast.unlink()
            job.more(1)
            job.wait(lambda: health(job) == "healthy", "all is well again", pause_s=ANSWERED_S)
            job.wait(
                lambda: scraped(job)[f"holdfast_checkpoint_failures_in_a_row{{{mine}"] == 0,
                "the metric shows that, too",  # it looks at the job each second
                pause_s=ANSWERED_S,
            )
            assert "degraded" not in asked(job, "status")
            job.finish()


def _said(job: Trained, committed: int) -> None:
    durable = int(job.committed()[-1].partition("-")[0])
    assert len(job.committed()) == committed, "nothing was committed on a full disk"
    for words in (("status",), ("top", "-n", "1"), ("describe", "job", job.run.job)):
        text = asked(job, *words)
        found = SENTENCE.search(text)
        assert found and int(found[1]) >= 3 and int(found[2]) == durable, text
        assert "degraded" in text, text
    narrow = asked(job, "get", "jobs").splitlines()
    assert len(narrow) == 2 and "degraded" in narrow[1], narrow
    assert "checkpoints in a row failed since" in narrow[1] and f"is step {durable}" in narrow[1]
    assert max(map(len, narrow)) < 300
    (row,) = json.loads(asked(job, "get", "jobs", "-o", "json"))
    assert row["health"] == "degraded" and SENTENCE.match(row["troubles"][0])
    status = json.loads(asked(job, "status", "-o", "json"))
    assert status["health"]["level"] == "degraded" and SENTENCE.search(status["health"]["reasons"][0])
