"""Run a private etcd for a laptop: one member, loopback only, never outliving the process that started it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from controlplane.daemon.etcd.binary import clean_environment, find_binary
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.errors import EtcdAuth, EtcdError, PrivateEtcdError
from controlplane.daemon.etcd.target import EtcdTarget
from controlplane.parent_death import with_parent_death_signal

if TYPE_CHECKING:
    from controlplane.daemon.etcd.binary import Binary

START_TIMEOUT_S = 30.0
"""Seconds until it has to answer. It takes 0.2 s on an idle machine, more with a slow disk or under load."""

STOP_TIMEOUT_S = 5.0
"""An etcd that has not ended by then is killed, which does it no harm."""


def member_flags(data_dir: str, client: str) -> list[str]:
    """The flags of an etcd of one member, small and fast, that serves `client` (a URL).

    Its peer address is a Unix socket in the current folder, which nobody uses."""
    peer = "unix://peer:0"
    return [
        *("--name", "private", "--data-dir", data_dir),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"private={peer}"),
        *("--logger", "zap", "--log-level", "warn", "--log-outputs", "stderr"),
        *("--quota-backend-bytes", str(256 * 1024 * 1024), "--snapshot-count", "5000"),
        *("--auto-compaction-mode", "revision", "--auto-compaction-retention", "1000"),
        *("--heartbeat-interval", "20", "--election-timeout", "200"),  # one member waits for no others
    ]


class PrivateEtcd:
    """A real etcd of our own. `async with PrivateEtcd(folder) as server:` or `start` and `stop`.

    `data_dir`: made if needed, on any disk (60-130 MB); the same folder brings the same data back. `port`: 0
    takes a free one; a later `start` takes the same again. Start it from a thread that lives as long as etcd
    should: when that thread ends, the kernel kills etcd."""

    def __init__(self, data_dir: Path | str, port: int = 0, *, binary: Binary | None = None) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.port = port
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def endpoint(self) -> str:
        """Where clients reach it, host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def target(self) -> EtcdTarget:
        """What `Etcd` connects to: this endpoint, marked as private."""
        return EtcdTarget((self.endpoint,), private=True)

    @property
    def log_file(self) -> Path:
        """The file with its standard output and error since its last start."""
        return self.data_dir / "etcd.log"

    @property
    def pid(self) -> int:
        """Its process id; 0 when it does not run."""
        return self._process.pid if self._process and self.alive else 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it and wait until it answers; do nothing if it runs. Raises PrivateEtcdError."""
        if self.alive:
            return
        if self._binary is None:
            self._binary = await asyncio.to_thread(find_binary)
        fixed = self.port != 0
        for attempt in range(5):
            self.port = self.port if fixed else _free_port()
            _check_port(self.port)
            self._process = self._spawn(self._binary)
            try:
                await self._wait_ready()
                return
            except BaseException as error:
                await self.stop()
                if isinstance(error, PrivateEtcdError) and self._port_lost() and not fixed and attempt < 4:
                    continue  # somebody took the free port meanwhile
                raise

    async def stop(self) -> None:
        """End it, with SIGTERM, then SIGKILL; do nothing if it does not run."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            if await _ended(process, STOP_TIMEOUT_S):
                break
        self._process = None

    def _spawn(self, binary: Binary) -> subprocess.Popen[bytes]:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            output = self.log_file.open("wb")
        except OSError as error:
            raise PrivateEtcdError(
                f"the private etcd cannot write to {self.data_dir}: {error.strerror}"
            ) from error
        with output:
            return subprocess.Popen(
                with_parent_death_signal(self._argv(binary), signal.SIGKILL),
                cwd=self.data_dir,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C must not reach it: we end it in our own order
            )

    def _argv(self, binary: Binary) -> list[str]:
        argv = [binary.path, *member_flags(str(self.data_dir / "member"), f"http://{self.endpoint}")]
        return [*argv, "--unsafe-no-fsync"] if binary.can_skip_fsync else argv

    async def _wait_ready(self) -> None:
        """Wait until it answers a read that needs its quorum."""
        waiting = asyncio.create_task(self._answers())
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not waiting.done():
                    if not self.alive:
                        raise PrivateEtcdError(f"the private etcd ended while starting: {self._last_words()}")
                    await asyncio.wait([waiting], timeout=0.05)
                await waiting
        except TimeoutError as error:
            text = f"the private etcd does not answer within {START_TIMEOUT_S:.0f} s"
            raise PrivateEtcdError(f"{text}: {self._last_words()}") from error
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _answers(self) -> None:
        async with Etcd(self.target, timeout_s=1.0) as etcd:
            while True:
                try:
                    await etcd.get("ready?")
                    return
                except EtcdAuth:
                    return  # it refuses us because it has users: so it answers, which is all that counts here
                except EtcdError:  # the caller finds out whether it has ended or time is up
                    await asyncio.sleep(0.05)

    def _port_lost(self) -> bool:
        return "address already in use" in self._last_words()

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()[-5:]
        except OSError as error:
            return f"its log {self.log_file} cannot be read: {error.strerror}"
        return f"its log {self.log_file} ends with:\n  " + "\n  ".join(lines or ["(nothing)"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check_port(port: int) -> None:
    """Raise PrivateEtcdError when the port is in use already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise PrivateEtcdError(
                f"port {port} for the private etcd is taken ({error.strerror}): "
                "end what listens there, or choose another port (0: a free one)"
            ) from error


async def _ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Return whether the process ends within the time. Polled, so that no thread has to wait for it."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while process.poll() is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
