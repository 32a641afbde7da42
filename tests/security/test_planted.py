"""Secrets planted wherever a user can put one are in nothing that Holdfast says afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.processes import descendants
from controlplane.cli.main import main
from controlplane.daemon.etcd.server import PrivateEtcd
from tests.daemon.etcd_fixtures import gateway
from tests.daemon.telemetry.test_alerts import Receiver
from tests.e2e.cli_running import until
from tests.e2e.test_elastic import TRAINING
from tests.helm.fake_api import fake_api
from tests.leashed import leashed
from tests.monitoring.collector import collecting
from tests.page.visiting import Visitor
from tests.security.authority import Authority, token_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from tests.helm.fake_api import FakeApi
    from tests.monitoring.collector import Collector

PROGRAM = (sys.executable, "-P", "-m", "controlplane")
QUICK = ("--lease-ttl-s", "2", "--broken-grace-s", "1", "--stop-timeout-s", "3")
NODE = ("--process-timeout-s", "0.9", "--beat-interval-s", "0.2", "--slots", "2", "--node", "n1")
JOB = ("--nproc-per-node", "2", "--rdzv-id", "j", "--snapshot-every", "5", "--checkpoint-every", "5")


@dataclasses.dataclass
class Planted:
    """Where each secret was put, and all that was said, by who said it."""

    folder: Path
    said: dict[str, str] = dataclasses.field(default_factory=dict)

    def secret(self, where: str) -> str:
        return f"planted-{where}-{len(where):04d}-8f31c0"

    def put(self, name: str, text: str) -> str:
        """A file of a secret; not itself something that Holdfast says."""
        path = self.folder / "secrets" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    def leaks(self) -> list[str]:
        """Who said a secret, and around which words."""
        found = []
        for who, text in self.said.items():
            place = text.find("planted-")
            if place >= 0:
                found.append(f"{who}: ...{text[max(0, place - 120) : place + 60]}...")
        return found


@dataclasses.dataclass
class Stage:
    """A cluster that was told secrets by every way there is."""

    planted: Planted
    etcd: PrivateEtcd
    kube: FakeApi
    traces: Collector
    hook: Receiver
    processes: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.planted.folder

    def card(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())

    def environment(self) -> dict[str, str]:
        secret = self.planted.secret
        return {
            **os.environ,
            **self.kube.env,
            "POD_NAME": "holdfast-coordinator-0",
            "HOLDFAST_ALERT_WEBHOOK": f"{self.hook.url}/{secret('hook')}?token={secret('hook-query')}",
            "HOLDFAST_OTLP_ENDPOINT": self.traces.endpoint,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={secret('otlp')}",
            "HOLDFAST_TOKEN_FILE": str(self.folder / "secrets" / "agent.token"),
        }

    def daemon(self, name: str, *words: str) -> None:
        """Start a daemon, and wait until it serves."""
        file, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                leashed([*PROGRAM, *words, "--address-file", str(file), "--cluster", self.folder.name]),
                stdout=output, stderr=output, env=self.environment(), start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        until(lambda: file.exists() or process.poll() is not None, f"{name} serves", 60)
        assert process.poll() is None, log.read_text()

    def coordinator(self, name: str, form: str) -> None:
        password = self.planted.put("etcd", self.planted.secret("etcd") + "\n")
        flags = ("--etcd", self.etcd.endpoint, "--etcd-private", "--etcd-user", "root",
                 "--etcd-password-file", password, "--tokens", str(self.folder / "secrets" / "tokens"),
                 "--listen", "127.0.0.1:0", "--journal", str(self.folder / f"{name}.jsonl"), "--kube-events",
                 "--kube-account", str(self.kube.account), "--log-format", form, *QUICK)  # fmt: skip
        self.daemon(name, "coordinator", *flags)

    def end(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Two coordinators, one of each form of log, and an agent; nobody has anything to do yet."""
    planted = Planted(folder)
    roles = {"operator": token_line("operator", "o"), "agent": token_line("agent", "n1")}
    planted.put("tokens", "\n".join(line for _, line in roles.values()) + "\n")
    for role, (token, _) in roles.items():
        planted.put(f"{role}.token", token)
    etcd = PrivateEtcd(folder / "etcd")
    with ExitStack() as stack:
        asyncio.run(etcd.start())
        stack.callback(lambda: asyncio.run(etcd.stop()))
        asyncio.run(_guard(etcd, planted.secret("etcd")))
        hook = Receiver()
        stack.callback(hook.close)
        stage = Stage(
            planted, etcd, stack.enter_context(fake_api(folder, Authority(folder))),
            stack.enter_context(collecting()), hook,
        )  # fmt: skip
        stack.callback(stage.end)
        stage.coordinator("leads", "json")
        stage.coordinator("waits", "text")
        where = ",".join(stage.card(name)["listen"] for name in ("leads", "waits"))
        places = ("--run-dir", str(folder / "run"), "--shm-dir", str(folder / "shm"))
        (folder / "shm").mkdir()
        stage.daemon("agent", "agent", "--coordinator", where, *places, *NODE)
        yield stage


async def _guard(etcd: PrivateEtcd, password: str) -> None:
    """From now on etcd wants a login."""
    await gateway(etcd.endpoint, "auth/user/add", name="root", password=password)
    await gateway(etcd.endpoint, "auth/role/add", name="root")
    await gateway(etcd.endpoint, "auth/user/grant", user="root", role="root")
    await gateway(etcd.endpoint, "auth/enable")


def trained(stage: Stage, ask: Callable[..., str]) -> None:
    """A job whose every flag holds a secret loses a rank, goes on, and ends."""
    folder, secret = stage.folder, stage.planted.secret
    (folder / "train.py").write_text(TRAINING.replace("sleep(0.02)", "sleep(0.3)"))
    ask("submit", *JOB, "--storage", f"memory://me:{secret('storage')}@host/c",
        "--mirror", f"ftp://me:{secret('mirror')}@127.0.0.1:9/c", "--commit-when", "first",
        "--env", f"LICENCE={secret('env')}", str(folder / "train.py"), str(folder),
        "--token", secret("argv"), f"--api-key={secret('argv-equals')}",
        f"s3://me:{secret('argv-url')}@host/x")  # fmt: skip

    def ranks() -> dict[int, int]:
        rows = json.loads(ask("get", "ranks", "-o", "json"))
        found = {row["rank"]: row["pid"] for row in rows if row["phase"] == "running" and row["step"] > 1}
        return found if len(found) == 2 else {}

    os.kill(until(ranks, lambda: (folder / "agent.log").read_text()[-3000:])[1], signal.SIGKILL)
    until(lambda: '"recovered"' in ask("why", "--list", "--json"), lambda: ask("events"))
    until(lambda: json.loads(ask("get", "checkpoints", "-o", "json")), lambda: ask("events"))


QUESTIONS = (
    *(f"get {what} -o {how}" for what in ("jobs", "nodes", "ranks", "checkpoints")
      for how in ("table", "wide", "json", "yaml")),
    *(f"describe {what}" for what in ("job j", "node n1")),
    "events", "events --all", "events -o json", "status", "top --count 1", "why", "why --json", "why --list",
    "quarantine",
)  # fmt: skip


async def visited(stage: Stage, token: str) -> None:
    """The page, as somebody sees it who has logged in."""
    visitor = Visitor(int(stage.card("leads")["page"].rstrip("/").rpartition(":")[2]))
    assert (await visitor.log_in(token)).status == 200
    for path in ("state", "session", "jobs/j", "nodes/n1", "incidents/j/1"):
        reply = await visitor.get(f"/api/{path}")
        assert reply.status == 200, path
        stage.planted.said[f"page {path}"] = reply.body.decode()
    async with visitor.live() as news:
        told = [await news.event() for _ in range(2)]
    stage.planted.said["page's news"] = json.dumps(told)


def command_lines(stage: Stage) -> str:
    """The command lines of all processes of ours. A rank's are its script's own arguments."""
    lines = []
    for process in stage.processes:
        for pid in [process.pid, *descendants(process.pid)]:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
            if "train.py" not in words:
                lines.append(words)
    return "\n".join(lines)


def gathered(stage: Stage) -> None:
    """All that was written or sent."""
    said = stage.planted.said
    said["webhook"] = json.dumps(stage.hook.bodies)
    said["spans"] = "".join(map(str, stage.traces.requests))
    said["kubernetes' events"] = json.dumps(stage.kube.events)
    for path in sorted(stage.folder.rglob("*")):
        parts = path.relative_to(stage.folder).parts
        if path.is_file() and parts[0] not in ("secrets", "etcd", "shm", "account"):
            said["/".join(parts)] = path.read_bytes().decode(errors="replace")


def test_no_secret_is_told_anywhere(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(folder) as stage:
        said = stage.planted.said
        where = ",".join(stage.card(name)["listen"] for name in ("waits", "leads"))
        monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(folder / "secrets" / "operator.token"))

        def ask(*words: str) -> str:
            flags = words[:1] if words[0] != "checkpoint" else words[:2]
            code = main([*flags, "--coordinator", where, *words[len(flags) :]])
            told = capsys.readouterr()
            assert code == 0, (words, told)
            return told.out + told.err

        trained(stage, ask)
        for question in QUESTIONS:
            said[f"holdfast {question}"] = ask(*question.split())
        (row,) = json.loads(ask("get", "checkpoints", "-o", "json"))[:1]
        said["describe checkpoint"] = ask("describe", "checkpoint", f"j/{row['id']}")
        said["metrics"] = "".join(_scraped(stage.card(name)["metrics"]) for name in ("leads", "agent"))
        said["processes"] = command_lines(stage)
        asyncio.run(visited(stage, (folder / "secrets" / "operator.token").read_text()))
        stage.hook.broken = True
        ask("drain", "n1", "--force", "--deadline-s", "0")  # the job is parked: that is told
        until(lambda: stage.hook.refused > 1, lambda: (folder / "leads.log").read_text()[-3000:], 30)
        stage.hook.broken = False
        until(lambda: stage.hook.bodies, lambda: (folder / "leads.log").read_text()[-3000:], 30)
        stage.end()
        gathered(stage)
        assert main(["replay", str(folder / "leads.jsonl"), "-o", "json", "--all"]) == 0
        said["replay"] = capsys.readouterr().out
    assert "(hidden)" in said["holdfast get jobs -o json"] and "LICENCE" in said["leads.jsonl"]
    assert stage.traces.headers[0]["authorization"] == stage.planted.secret("otlp")
    tokens = [path.read_text() for path in (folder / "secrets").glob("*.token")]
    assert not [who for who, text in said.items() for token in tokens if token in text]
    assert stage.planted.leaks() == []


def _scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text
