"""An agent opens storages below its prefixes only: others are refused by name before they are opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agent.orders.context import Storages
from controlplane.core.failures import blame, quarantine
from controlplane.core.records.words import Cause
from controlplane.settings import AgentSettings, SettingsError, check_agent
from controlplane.storage_settings import Allowed
from holdfast.checkpoint.errors import StorageError
from tests.daemon.rig import ROOT, Coordinator
from tests.leashed import leashed

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.daemon.etcd.server import PrivateEtcd

PREFIXES = "s3://bucket/team, gs://other,file:///data/ckpt/,abfs://c@account.host/x,hdfs:///path"
WITHIN = (
    *("s3://bucket/team", "s3://bucket/team/", "s3://bucket/team/run/1", "s3a://bucket/team/x", "gs://other"),
    *("gs://other/a", "gcs://other/a", "file:///data/ckpt", "file:///data//ckpt/run", "/data/ckpt/my run"),
    *("file:///data/ckpt/my%20run", "abfs://c@account.host/x/y", "local:///data/ckpt", "s3://bucket/team//x"),
    "hdfs:///path/x",
)
OUTSIDE = (
    *(
        "s3://bucket-evil/team",
        "s3://bucket/team-evil",
        "s3://bucket",
        "s3://bucket/",
        "s3://evil/bucket/team",
    ),
    *("s3://bucket/team/../other", "s3://bucket/team/%2e%2e/other", "s3://bucket/team/%252E%252e/other"),
    *(
        "s3://bucket/./team",
        "s3://bucket//team",
        "S3://bucket/team",
        "s3://x@bucket/team",
        "s3://BUCKET/team",
    ),
    *("s3://bucket/team\\..\\other", "s3://bucket/team%2f..%2f..", "s3://bucket/team?endpoint=evil"),
    *(
        "s3://bucket/team#x",
        "simplecache::s3://bucket/team",
        "zip://x::s3://bucket/team",
        "http://bucket/team",
    ),
    *(
        "file:///data/ckpt-evil",
        "file:///data/ckpt/../secret",
        "file:///data",
        "file:///",
        "file://data/ckpt",
    ),
    *("file:/data/ckpt", "data/ckpt", "../data/ckpt", "~/data/ckpt", "file://~/x", "/data/ckpt/\n", "/", "x"),
    *("hdfs://evil:8020/path/x", "hdfs:///path-evil", "hdfs://path/x", "memory:///x"),
    *("abfs://other@account.host/x", "abfs://c@account.host.evil/x", "memory://bucket/team", "://", "s3://"),
)


@pytest.mark.parametrize("url", WITHIN)
def test_a_storage_below_a_prefix_is_opened(url: str) -> None:
    assert Allowed(PREFIXES).refusal(url) == ""


@pytest.mark.parametrize("url", OUTSIDE)
def test_a_storage_that_only_looks_like_one_is_refused(url: str) -> None:
    why = Allowed(PREFIXES).refusal(url)
    assert "this agent may open" in why and "--storage-allowed s3://bucket/team, gs://other" in why
    assert Allowed("").refusal(url) == ""


def test_a_scheme_alone_is_any_storage_of_it() -> None:
    allowed = Allowed("s3://,file:///")
    assert [allowed.refusal(url) for url in ("s3://any/x", "s3a://other", "/any/path", "file:///")] == [
        ""
    ] * 4
    assert all(allowed.refusal(url) for url in ("gs://any", "s3://any/../x", "any/path"))


def test_a_link_leads_nowhere_else(folder: Path) -> None:
    (folder / "team").mkdir()
    (folder / "other").mkdir()
    (folder / "team" / "link").symlink_to(folder / "other")
    (folder / "alias").symlink_to(folder / "team")
    storages = Storages(AgentSettings(storage_allowed=f"{folder}/team,{folder}/alias"))
    storages.open(f"file://{folder}/team/run")
    storages.open(f"{folder}/alias/run")
    for url in (f"file://{folder}/team/link/run", f"file://{folder}/other", f"{folder}/team/../other"):
        for mirror in ("", url):
            with pytest.raises(StorageError, match="this agent may open"):
                storages.open(f"file://{folder}/team/run" if mirror else url, mirror)
    with pytest.raises(StorageError, match="this agent may open"):
        storages.writable(f"file://{folder}/other")
    assert list((folder / "other").iterdir()) == []
    storages.close()


def test_a_password_in_the_url_is_not_told() -> None:
    assert "geheim" not in Allowed("s3://bucket").refusal("sftp://me:geheim@host/x")


@pytest.mark.parametrize("text", ["s3://bucket/../x", ",", "relative/path", "s3://b?x", "zip://a::s3://b"])
def test_a_prefix_that_will_not_do_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="--storage-allowed"):
        check_agent(AgentSettings(storage_allowed=text))


def test_no_node_is_blamed_for_what_it_may_not_open() -> None:
    """Whoever submits such jobs again and again takes no node out of use, and wakes nobody."""
    from controlplane.core.records.model import Failure

    failure = Failure(Cause.LAUNCH_FAILED, "storage x is outside", exception=blame.NOT_ALLOWED)
    assert blame.whose(failure) == blame.SCRIPT
    assert quarantine.weight(Cause.LAUNCH_FAILED, f"{failure.exception} {failure.message}") == 0.0
    assert quarantine.weight(Cause.LAUNCH_FAILED, " storage x is outside") > 0.0


async def test_a_job_with_a_storage_outside_is_refused_by_name(
    folder: Path, etcd_server: PrivateEtcd
) -> None:
    coordinator = await Coordinator(folder, etcd_server.endpoint, "storages").start()
    await coordinator.leads()
    script = folder / "train.py"
    script.write_text("print('well')\n")
    agent = _agent(folder, coordinator)
    try:
        outside = _submit(coordinator, "evil", f"file://{folder}/team-evil", script)
        assert outside.returncode == 1, outside.stderr
        told = outside.stdout + outside.stderr
        assert "team-evil is outside of what this agent may open" in told, told
        row = next(row for row in _jobs(coordinator) if row["job"] == "evil")
        assert row["phase"] == "failed" and "team-evil is outside" in row["reason"], row
        mirror = _submit(
            coordinator, "mirror", f"file://{folder}/team/a", script, f"--mirror=/{folder}/x/../y"
        )
        assert mirror.returncode == 1 and "cannot be compared with" in mirror.stdout + mirror.stderr
        assert not (folder / "team-evil").exists() and not (folder / "team").exists()
        done = _submit(coordinator, "good", f"file://{folder}/team/a", script)
        assert done.returncode == 0, done.stderr
    finally:
        agent.terminate()
        agent.wait(30)
        coordinator.end()


def _agent(folder: Path, coordinator: Coordinator) -> subprocess.Popen[bytes]:
    argv = [
        *(sys.executable, "-m", "controlplane", "agent", "--node=n1", "--cluster=storages", "--slots=1"),
        *(f"--coordinator={coordinator.listen}", "--address=127.0.0.1", "--metrics="),
        *(f"--run-dir={folder / 'run'}", f"--shm-dir={folder / 'shm'}", "--drain-grace-s=0"),
        f"--storage-allowed=file://{folder}/team",
    ]
    (folder / "shm").mkdir(mode=0o700)
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen(leashed(argv), cwd=ROOT, stderr=log, stdout=log)


def _submit(
    coordinator: Coordinator, job: str, storage: str, script: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    flags = ("--wait", f"--rdzv-id={job}", f"--coordinator={coordinator.listen}", f"--storage={storage}")
    return _holdfast("submit", *flags, *more, str(script))


def _jobs(coordinator: Coordinator) -> Any:
    return json.loads(_holdfast("get", "jobs", "-o", "json", f"--coordinator={coordinator.listen}").stdout)


def _holdfast(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controlplane", *argv]
    return subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False
    )
