"""Install the frameworks of requirements.txt into this interpreter's environment, one by one.

    python tests/frameworks/install.py CONSTRAINTS

What is installed already keeps the version of CONSTRAINTS, for Holdfast runs with it; a package that only a
framework needs has the version that the framework wants. Where the index does not have a framework's version,
the newest of the same major version is taken. What is installed is printed, and so is what cannot be had: its
cases are then skipped."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tempfile
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


def kept(constraints: str) -> str:
    """Those lines of a constraints file whose package is installed here."""
    here = {canonical(each.metadata["Name"]) for each in importlib.metadata.distributions()}
    lines = [line for line in constraints.splitlines() if canonical(line.partition("==")[0]) in here]
    return "".join(f"{line}\n" for line in lines)


def canonical(name: str) -> str:
    """A package's name as indexes compare them (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(name: str, version: str, constraints: Path) -> str:
    """Install one framework, and say in words what came of it."""
    for asked in choices(name, version):
        pip = [sys.executable, "-m", "pip", "install", "-q", "-c", str(constraints), asked]
        if not subprocess.run(pip, check=False).returncode:
            found = importlib.metadata.version(name.partition("[")[0])
            return f"{name} {found}" + " (not the pinned one)" * ("==" not in asked)
    return f"{name}: pip finds neither {version} nor another {version.partition('.')[0]}.x: skipped"


def main() -> None:
    text = kept(Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(text)
        for name, version in wanted():
            print(install(name, version, constraints), flush=True)


if __name__ == "__main__":
    main()
