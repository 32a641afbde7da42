"""Install the frameworks of requirements.txt into this interpreter's environment, one by one.

Where the index does not have the version, the newest of the same major version is taken. What is installed is
printed, and so is what cannot be had: its cases are then skipped."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def wanted() -> list[tuple[str, str]]:
    """Name and version of each framework."""
    lines = REQUIREMENTS.read_text().splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return [(name, version) for name, _, version in pairs]


def choices(name: str, version: str) -> list[str]:
    """What pip is asked for, best first."""
    major = int(version.partition(".")[0])
    return [f"{name}=={version}", f"{name}>={major},<{major + 1}"]


def install(name: str, version: str, pip_options: list[str]) -> str:
    """Install one framework, and say in words what came of it."""
    for asked in choices(name, version):
        pip = [sys.executable, "-m", "pip", "install", "-q", *pip_options, asked]
        if not subprocess.run(pip, check=False).returncode:
            return f"{name} {importlib.metadata.version(name)}" + " (not the pinned one)" * (
                "==" not in asked
            )
    return f"{name}: pip finds neither {version} nor another {version.partition('.')[0]}.x: skipped"


def main() -> None:
    for name, version in wanted():
        print(install(name, version, sys.argv[1:]), flush=True)


if __name__ == "__main__":
    main()
