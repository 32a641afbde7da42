"""Write requirements.lock: every distribution that `make` installs, for every platform, by version and hash.

`python supply/lock.py` asks the index, through uv (`pip install uv`). `--check` proves without a network that
the lock was made from pyproject.toml and constraints.txt as they are, and that every line of it is pinned and
hashed. torch is not in it: which build is needed depends on the machine (CPU, CUDA); constraints.txt pins its
version."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
EXTRAS = ("cluster", "local", "s3", "otel", "dev")
CHOSEN_BY_PLATFORM = ("torch",)
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>\S+)")
_INPUTS = "# inputs: sha256:"
_HEAD = """# Versions and hashes of all that `make` installs, torch apart. `python supply/lock.py` writes it.
"""


def inputs(root: Path = ROOT) -> str:
    """A digest of everything that the lock is made from, in hex."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    build, project = project["build-system"]["requires"], project["project"]
    extras = {name: sorted(project["optional-dependencies"][name]) for name in EXTRAS}
    pins = sorted(pinned((root / "constraints.txt").read_text()).items())
    parts = [build, sorted(project["dependencies"]), extras, project["requires-python"], pins]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def pinned(text: str) -> dict[str, str]:
    """The name and version of every pin in a constraints file or a lock."""
    found = (_PIN.match(line) for line in text.splitlines())
    return {canonicalize_name(pin["name"]): pin["version"] for pin in found if pin}


def hashes(text: str) -> dict[str, list[str]]:
    """The SHA-256 digests of every distribution in a lock, by name."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if pin := _PIN.match(line):
            name = canonicalize_name(pin["name"])
            found[name] = []
        elif digest := re.fullmatch(r"\s+--hash=sha256:([0-9a-f]{64})(?: \\)?", line):
            found[name].append(digest[1])
    return found


def wanted(root: Path = ROOT) -> list[Requirement]:
    """The requirements of pyproject.toml, with the extras that are locked.

    An extra that asks for another extra of the project adds nothing."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    rows = [
        *project["dependencies"],
        *(row for name in EXTRAS for row in project["optional-dependencies"][name]),
    ]
    return [need for need in map(Requirement, rows) if need.name != project["name"]]


def problems(root: Path = ROOT) -> list[str]:
    """The reasons why the lock is not valid, each with its solution; [] when it is. Reads files only."""
    if not (root / LOCK.name).exists():
        return [f"there is no {LOCK.name}: run `python supply/lock.py`"]
    text = (root / LOCK.name).read_text()
    locked, digests = pinned(text), hashes(text)
    found = []
    if f"{_INPUTS}{inputs(root)}\n" not in text:
        found.append("pyproject.toml or constraints.txt has changed since: run `python supply/lock.py`")
    found += [f"{name} has no hash" for name in locked if not digests.get(name)]
    for need in wanted(root):
        version = locked.get(canonicalize_name(need.name), "")
        if not version or not need.specifier.contains(version, prereleases=True):
            found.append(f"{need} is not met by {version or 'any line'}")
    for name, version in pinned((root / "constraints.txt").read_text()).items():
        if name in locked and locked[name] != version:
            found.append(f"{name} is {locked[name]} here and {version} in constraints.txt")
    return found


def write() -> None:
    """Ask the index, and write the lock. Exits with a solution when uv is missing or finds no versions."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        sys.exit("supply/lock.py asks the index through uv: pip install uv")
    extras = [word for name in EXTRAS for word in ("--extra", name)]
    flags = ["--generate-hashes", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]
    command = [uv, "pip", "compile", "-q", "pyproject.toml", *extras, "-c", "constraints.txt", *flags]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit(f"uv finds no versions:\n{made.stderr}")
    LOCK.write_text(f"{_HEAD}{_INPUTS}{inputs()}\n{made.stdout}")


def main() -> None:
    """Write the lock, unless --check is given; then check it. Exits with what is wrong."""
    if "--check" not in sys.argv:
        write()
    if found := problems():
        sys.exit(f"{LOCK.name} is stale:\n  " + "\n  ".join(found))
    print(f"{LOCK.name}: {len(pinned(LOCK.read_text()))} distributions, each pinned and hashed")


if __name__ == "__main__":
    main()
