"""Run the whole chain of an alert: a job whose ranks are killed, Prometheus, a rule, Alertmanager, a webhook.

`python -m tests.monitoring.live` (or `make alerts`) runs it and tells what it sees; about a minute."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.e2e.cli_running import running, until
from tests.leashed import leashed
from tests.monitoring.builders import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.cli_running import Run

PROGRAMS = ("prometheus", "prometheus-alertmanager")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
ALERT = "HoldfastRecoveryLoop"
KILLS = 3
CHAIN_TIMEOUT_S = 60.0


class Receiver:
    """A webhook: keeps every alert that Alertmanager posts."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        alerts = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                alerts.extend(json.loads(self.rfile.read(length))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def told(self, name: str) -> list[dict[str, Any]]:
        return [alert for alert in list(self.alerts) if alert["labels"]["alertname"] == name]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def served(folder: Path, port: int, *words: str) -> Iterator[str]:
    """A daemon of Prometheus that answers at a port; ended afterwards. Yields its URL."""
    url = f"http://127.0.0.1:{port}"
    log = folder / f"{words[0]}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            leashed([*words]), stdout=output, stderr=output, cwd=folder, start_new_session=True
        )
    try:
        until(
            lambda: process.poll() is not None or answers(f"{url}/-/ready"), lambda: log.read_text()[-2000:]
        )
        assert process.poll() is None, log.read_text()[-2000:]
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]


def alertmanager(folder: Path, receiver: Receiver) -> tuple[str, ...]:
    """Its command line, but for the port."""
    route = {"receiver": "ours", "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    document = {"route": route, "receivers": [{"name": "ours", "webhook_configs": [{"url": receiver.url}]}]}
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(document))
    words = ("--config.file=alertmanager.yaml", "--cluster.listen-address=", f"--storage.path={folder}/am")
    return ("prometheus-alertmanager", *words)


def prometheus(folder: Path, targets: dict[str, str], alerts_to: str) -> tuple[str, ...]:
    """Its command line, but for the port."""
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [address]}]}
            for name, address in targets.items()
        ],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts_to]}]}]},
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(document))
    return ("prometheus", "--config.file=prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb")


def targets_of(run: Run) -> dict[str, str]:
    """Where the daemons of a local run show their metrics."""
    found = {}
    for name in ("coordinator", "n0", "n1"):
        path = run.layout.state / f"{name}.json"
        until(path.exists, lambda path=path: f"{path.name}; {run.output}")  # type: ignore[misc]
        found[name] = str(json.loads(path.read_text())["metrics"])
    return found


def chain(tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the chain until the alert arrives at the webhook, and return it. When none comes, fails with what
    was seen."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    receiver = Receiver()
    try:
        with ExitStack() as stack:
            run = stack.enter_context(
                running("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "9")
            )
            for rank in (0, 1):
                run.rank_pid(rank)
            tell("two nodes train")
            port = free_port()
            words = (*alertmanager(folder, receiver), f"--web.listen-address=127.0.0.1:{port}")
            manager = stack.enter_context(served(folder, port, *words))
            port = free_port()
            words = prometheus(folder, targets_of(run), manager.removeprefix("http://"))
            words = (*words, f"--web.listen-address=127.0.0.1:{port}")
            url = stack.enter_context(served(folder, port, *words))
            _scraped(url)
            tell("Prometheus scrapes the coordinator and both agents; no alert fires")
            _kill(run, tell)
            until(lambda: receiver.told(ALERT), lambda: _seen(url, receiver), CHAIN_TIMEOUT_S)
            tell(f"Alertmanager told the webhook: {receiver.told(ALERT)[0]['annotations']['summary']}")
            (run.folder / "done").touch()
            assert run.end() == 0, run.output
        return receiver.told(ALERT)[0]
    finally:
        receiver.close()
        shutil.rmtree(folder, ignore_errors=True)


def _scraped(url: str) -> None:
    def all_up() -> bool:
        active = asked(f"{url}/api/v1/targets")["activeTargets"]
        leads = asked(f"{url}/api/v1/query?query=sum(holdfast_leader)")["result"]
        return len(active) == 3 and all(t["health"] == "up" for t in active) and bool(leads)

    until(all_up, lambda: str(asked(f"{url}/api/v1/targets")))
    firing = [a for a in asked(f"{url}/api/v1/alerts")["alerts"] if a["state"] == "firing"]
    assert not firing, firing


def _kill(run: Run, tell: Callable[[str], None]) -> None:
    for restart in range(KILLS):
        os.kill(run.rank_pid(1, restart), signal.SIGKILL)
        until(lambda restart=restart: _recovered(run) > restart, lambda: run.output)  # type: ignore[misc]
        run.rank_pid(1, restart + 1)
        tell(f"rank 1 killed and recovered, {restart + 1} of {KILLS}")


def _recovered(run: Run) -> int:
    closed = [body["incident"] for body in run.journal("IncidentChanged")]
    return len({each["id"] for each in closed if each["outcome"] == "recovered"})


def _seen(url: str, receiver: Receiver) -> str:
    alerts = asked(f"{url}/api/v1/alerts")["alerts"]
    counted = asked(f"{url}/api/v1/query?query=holdfast_incidents_total>0")["result"]
    return f"alerts {alerts}, incidents {counted}, received {receiver.alerts}"


def main() -> int:
    """Run the chain and print what happens."""
    if MISSING:
        print(f"not here: {', '.join(MISSING)}; apt-get install prometheus prometheus-alertmanager")
        return 1
    begun = time.monotonic()
    alert = chain(lambda text: print(f"{time.monotonic() - begun:5.1f} s  {text}", flush=True))
    print(json.dumps(alert, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
