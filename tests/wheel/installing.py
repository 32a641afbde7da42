"""Builds the wheel from a clean copy of the tree, and install it where the checkout cannot be imported.

Nothing is downloaded. What the wheel needs is linked, distribution by distribution, from the environment that
runs the tests: exactly what the wheel's metadata requires, directly and indirectly, and no more."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.leashed import leashed
from tests.wheel import refusing

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "controlplane", "holdfast")


def tracked() -> list[str]:
    """Every file of the working tree that is not ignored, relative to the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def build(folder: Path) -> Path:
    """The wheel of the working tree, built in `folder` with what is installed here."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for need in map(Requirement, requires):
        installed(need, "to build the wheel without a network")
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    words = (
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(source),
    )
    _pip(*words)
    (made,) = folder.glob("*.whl")
    return made


def installed(need: Requirement, why: str) -> metadata.Distribution:
    """The installed distribution that meets this requirement. Fails the test, naming the requirement, when
    there is none."""
    try:
        found = metadata.distribution(need.name)
    except metadata.PackageNotFoundError:
        pytest.fail(f"{need} is missing in {sys.prefix}, {why}: run `make`")
    if not need.specifier.contains(found.version, prereleases=True):
        pytest.fail(f"{need} is wanted {why}, and {sys.prefix} has {found.version}: run `make`")
    return found


def described(wheel: Path) -> metadata.Distribution:
    """What a wheel's metadata says."""
    archive = zipfile.Path(wheel)
    (folder,) = (path for path in archive.iterdir() if path.name.endswith(".dist-info"))
    return metadata.PathDistribution(folder)


def needs(of: metadata.Distribution, extras: Iterable[str]) -> list[Requirement]:
    """The requirements of a distribution on this machine, with these extras."""
    found = map(Requirement, of.requires or ())
    names = ("", *extras)
    return [
        need
        for need in found
        if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in names)
    ]


def closure(wheel: metadata.Distribution, extras: Iterable[str]) -> list[metadata.Distribution]:
    """Everything that `pip install` of the wheel with these extras brings."""
    found: dict[str, metadata.Distribution] = {}
    todo, seen = [(wheel, frozenset(extras))], set()
    while todo:
        of, chosen = todo.pop()
        for need in needs(of, chosen):
            name, wanted = canonicalize_name(need.name), frozenset(need.extras)
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                own = name == canonicalize_name(wheel.name)
                each = wheel if own else installed(need, f"for {of.name}")
                if not own:
                    found[name] = each
                todo.append((each, wanted))
    return list(found.values())


def entries(of: metadata.Distribution) -> set[str]:
    """The paths below site-packages that a distribution fills: modules, packages, parts of namespace
    packages."""
    names = {row[0] for row in csv.reader((of.read_text("RECORD") or "").splitlines())}
    found = set()
    for parts in (name.split("/") for name in names):
        whole = len(parts) == 1 or f"{parts[0]}/__init__.py" in names or parts[0].endswith(".dist-info")
        if parts[0] not in ("..", "__pycache__"):
            found.add("/".join(parts[: 1 if whole else 2]))
    return found


@dataclass(frozen=True)
class Place:
    """A virtual environment that holds the wheel and what it needs; `home` is where its programs run."""

    prefix: Path
    home: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.prefix / "bin" / "python")

    @property
    def libraries(self) -> Path:
        """Its site-packages."""
        return self.prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def run(self, *words: str, timeout_s: float = 500, **variables: str) -> subprocess.CompletedProcess[str]:
        """One of its programs, by name, to its end: from its home, and with nothing of our environment."""
        path = f"{self.prefix}/bin:{os.defpath}"
        env = {"HOME": str(self.home), "TMPDIR": str(self.home), "PATH": path, **variables}
        command = leashed([str(self.prefix / "bin" / words[0]), *words[1:]])
        return subprocess.run(
            command, cwd=self.home, env=env, capture_output=True, text=True, check=False, timeout=timeout_s
        )

    def told(self, program: str) -> Any:
        """What a Python program prints here, as JSON. Fails the test when it ends with an error."""
        done = self.run("python", "-c", program)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def check(self) -> None:
        """Fail the test, by `pip check`, if something is missing here or has the wrong version."""
        _pip("--python", self.python, "check")

    def refuse(self) -> Path:
        """Have launchers and ranks find no module of `refusing.REFUSED`; the file that tells of it."""
        copied = self.libraries / "refusing.py"
        shutil.copyfile(refusing.__file__, copied)
        (self.libraries / "refusing.pth").write_text("import refusing\n")
        return copied.with_name(refusing.NOTES.name)


def install(wheel: Path, prefix: Path, home: Path, *extras: str) -> Place:
    """A place with the wheel, and with exactly what it needs for these extras."""
    venv.create(prefix, symlinks=True, with_pip=False)
    place = Place(prefix, home)
    for of in closure(described(wheel), extras):
        for entry in entries(of):
            link = place.libraries / entry
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(Path(str(of.locate_file(entry))))
    _pip("--python", place.python, "install", "--no-deps", "--no-index", str(wheel))
    return place


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    # What PYTHONPATH has would pass for installed: in a checkout that is Holdfast itself.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
