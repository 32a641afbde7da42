"""Run a cluster of hosts: three etcd members, two coordinators, four nodes; each can die and come back."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.flags.settings import as_flags
from controlplane.daemon.etcd.binary import clean_environment, find_binary
from controlplane.settings import AgentSettings, CoordinatorSettings
from tests.chaos.books import Journals
from tests.chaos.hosts import Host, Network

if TYPE_CHECKING:
    import signal
    import subprocess
    from collections.abc import Callable, Sequence

ETCDS, COORDINATORS, NODES = ("e0", "e1", "e2"), ("c0", "c1"), ("n0", "n1", "n2", "n3")
SLOTS = 2
HOLDFAST = (sys.executable, "-P", "-m", "controlplane")
DRIVER = Path(__file__).with_name("driver")
READY_S = 100.0
LEADING: dict[str, Any] = {
    "lease_ttl_s": 4.0, "node_timeout_s": 8.0, "stop_timeout_s": 6.0, "form_timeout_s": 20.0, "retry_s": 0.5,
    "broken_grace_s": 4.0, "join_grace_s": 2.0, "shrink_after_s": 3.0, "grow_after_s": 3.0,
    "resize_every_s": 3.0, "launch_timeout_s": 120.0, "brake_max_s": 12.0,
    "diagnose_every_s": 5.0,
}  # fmt: skip
"""The coordinators' settings: a tenth of the usual times, and no less than two busy cores can keep."""
WATCHING: dict[str, Any] = {
    "beat_interval_s": 0.5, "process_timeout_s": 3.5, "device_timeout_s": 4.5, "fence_after_s": 14.0,
    "orphan_timeout_s": 30.0, "hang_floor_s": 5.0, "hang_first_s": 30.0, "drain_grace_s": 12.0,
}  # fmt: skip
"""The agents' settings."""


def until(
    what: Callable[[], Any], about: Callable[[], str], timeout_s: float = READY_S, pause_s: float = 0.05
) -> Any:
    """Wait for the first true answer. Raises AssertionError when none comes in time: `about` says what is
    missing."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(pause_s)
    raise AssertionError(f"not within {timeout_s:.0f} s: {about()}")


def _with(known: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {name: settings.get(name, value) for name, value in known.items()}


class Cluster:
    """One cluster, in one folder and one set of namespaces. A context manager."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        """`settings`: of coordinators and agents, besides LEADING and WATCHING."""
        self.folder = folder
        self._leading, self._watching = (_with(known, settings) for known in (LEADING, WATCHING))
        self.memory = Path("/dev/shm") / folder.name
        names = (*ETCDS, *COORDINATORS, *NODES)
        self.hosts = {name: Host(name, number, folder / name) for number, name in enumerate(names, 1)}
        self.network = Network(folder)
        self._daemons: dict[str, int] = {}  # host -> its daemon's process
        self._fresh = True

    def __enter__(self) -> Cluster:
        self.memory.mkdir()
        self.network.__enter__()
        try:
            for name in self.hosts:
                self.boot(name)
            self._fresh = False
            self._await_leader()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for host in self.hosts.values():
            host.crash()
        self.network.__exit__()
        shutil.rmtree(self.memory, ignore_errors=True)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @property
    def coordinators(self) -> str:
        """The addresses of the coordinators, as flags take them."""
        return ",".join(f"{self[name].address}:7070" for name in COORDINATORS)

    # ------------------------------------------------------------ hosts and daemons

    def boot(self, name: str) -> None:
        """Switch a host on, and start its daemon."""
        host = self[name]
        host.boot()
        self.network.plug(host)
        self.start(name)

    def crash(self, name: str) -> None:
        """Switch a host off: what it had in memory is lost, an etcd's disk stays."""
        self[name].crash()
        for path in (self.memory / name, self.folder / name / "run"):
            shutil.rmtree(path, ignore_errors=True)

    def start(self, name: str) -> None:
        """Start a host's daemon."""
        argv, env = {"e": self._etcd, "c": self._coordinator, "n": self._agent}[name[0]](name)
        self._daemons[name] = self[name].start("daemon", argv, **env)

    def running(self, name: str) -> bool:
        """Whether a host's daemon runs."""
        return self._daemons.get(name, 0) in self[name].processes()

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a host's daemon alone."""
        return self[name].signal(self._daemons[name], number)

    def _etcd(self, name: str) -> tuple[list[str], dict[str, str]]:
        address, data = self[name].address, self.memory / "etcd" / name
        data.parent.mkdir(exist_ok=True)
        urls = ",".join(f"{each}=http://{self[each].address}:2380" for each in ETCDS)
        argv = [
            *(find_binary().path, "--name", name, "--data-dir", str(data)),
            *("--listen-client-urls", f"http://{address}:2379", "--advertise-client-urls", f"http://{address}:2379"),
            *("--listen-peer-urls", f"http://{address}:2380", "--initial-advertise-peer-urls", f"http://{address}:2380"),
            *("--initial-cluster", urls, "--logger", "zap", "--log-level", "warn", "--log-outputs", "stderr"),
            *("--heartbeat-interval", "100", "--election-timeout", "1000"),
        ]  # fmt: skip
        return argv, {k: v for k, v in clean_environment().items() if k.startswith("ETCD")}

    def _coordinator(self, name: str) -> tuple[list[str], dict[str, str]]:
        settings = {
            **self._leading,
            "cluster": "chaos",
            "listen": f"{self[name].address}:7070",
            "etcd": ",".join(f"{self[each].address}:2379" for each in ETCDS),
            "insecure": True,
            "journal": str(self.journal(name)),
            "metrics": "",
        }
        return [*HOLDFAST, "coordinator", *as_flags(CoordinatorSettings, settings)], {}

    def _agent(self, name: str) -> tuple[list[str], dict[str, str]]:
        (self.memory / name).mkdir(exist_ok=True)
        self.devices(name).touch()
        settings = {
            **self._watching,
            "cluster": "chaos",
            "coordinator": self.coordinators,
            "node": name,
            "address": self[name].address,
            "slots": SLOTS,
            "insecure": True,
            "run_dir": str(self.folder / name / "run"),
            "shm_dir": str(self.memory / name),
            "ledger": str(self.folder / "ledger"),
            "metrics": "",
        }
        path = os.pathsep.join(filter(None, (str(DRIVER), os.environ.get("PYTHONPATH", ""))))
        env = {"PYTHONPATH": path, "HOLDFAST_TEST_DEVICES": str(self.devices(name))}
        return [*HOLDFAST, "agent", *as_flags(AgentSettings, settings)], env

    def devices(self, node: str) -> Path:
        """The file that names the node's bad devices."""
        return self.folder / node / "devices"

    def journal(self, coordinator: str) -> Path:
        """The path of a coordinator's journal."""
        return self.folder / coordinator / "journal.jsonl"

    def _await_leader(self) -> None:
        journals = Journals(self.journal(name) for name in COORDINATORS)

        def admitted() -> bool:
            assert any(map(self.running, COORDINATORS)), self._no_coordinator()
            journals.news()
            return {body["node"] for body in journals.bodies("Admit")} == set(NODES)

        until(admitted, lambda: f"{len(NODES)} nodes at a leader; logs are in {self.folder}")

    def _no_coordinator(self) -> str:
        logs = [(self.folder / name / "daemon.log").read_text() for name in COORDINATORS]
        return "no coordinator runs; their last lines:\n" + "".join(log[-800:] for log in logs)

    # ------------------------------------------------------------ commands, as a person gives them

    def holdfast(
        self, command: str, *words: str, at: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of `holdfast` on a host that can reach the coordinators."""
        host = self[at] if at else next(self[name] for name in ETCDS if self[name].on)
        whom = ("--coordinator", self.coordinators, "--insecure")
        return host.run(*HOLDFAST, command, *whom, *words, timeout_s=timeout_s)

    def submit(self, job: str, script: Sequence[str], *flags: str) -> None:
        """Submit a job. Raises AssertionError when it is not taken."""
        done = self.holdfast("submit", "--rdzv-id", job, "--cwd", os.getcwd(), *flags, *script)
        assert done.returncode == 0, done.stderr + done.stdout
