"""The Dockerfiles: linted by hadolint and, beyond it, by rules of ours. No image is built here."""

from __future__ import annotations

import re
import sysconfig
import tempfile
import tomllib
from pathlib import Path

import pytest

from tests.helm.pod import ended

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
HADOLINT = Path(sysconfig.get_path("scripts")) / "hadolint"

Instruction = tuple[str, str]


def instructions(text: str) -> list[Instruction]:
    """(word, rest) of each, lines joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def complaints(text: str) -> list[str]:
    """What breaks our rules: a base that can move, root at the end, a source that is not there."""
    found: list[str] = []
    stages: list[str] = []
    arguments: set[str] = set()
    for word, rest in instructions(text):
        if word == "ARG" and not stages:
            arguments.add(f"${{{rest}}}")
        if word == "FROM":
            stages.append(rest)
            if rest.split()[0] not in arguments and "@sha256:" not in rest:
                found.append(f"{rest}: a base without digest")
        if word == "ADD":
            found.append("ADD fetches and unpacks: COPY")
        if word in ("ENTRYPOINT", "CMD") and not rest.startswith("["):
            found.append(f"{word} runs a shell: give a list")
        if word == "COPY" and "--from" not in rest:
            sources = rest.split()[:-1]
            found += [f"{name} is not there" for name in sources if not (ROOT / name).exists()]
    users = [rest for word, rest in instructions(text) if word == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        found.append("it ends as root, or as a user that Kubernetes cannot tell from root")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(path: Path) -> None:
    linted = ended([str(HADOLINT), str(path)])
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_our_rules_hold(path: Path) -> None:
    assert complaints(path.read_text()) == []


def test_the_linters_see_what_is_wrong() -> None:
    bad = "FROM python:latest\nADD https://x/y /z\nCOPY nowhere /\nRUN sudo true\nENTRYPOINT holdfast\n"
    assert len(complaints(bad)) == 5
    with tempfile.NamedTemporaryFile("w", suffix=".Dockerfile") as file:
        file.write(bad)
        file.flush()
        linted = ended([str(HADOLINT), file.name])
    assert linted.returncode == 1
    assert {"DL3007", "DL3004"} <= set(re.findall(r"DL\d+", linted.stdout))


def test_the_user_is_the_charts() -> None:
    for path in FILES:
        assert "USER 65532:65532\n" in path.read_text()
    helpers = (ROOT / "helm" / "holdfast" / "templates" / "_helpers.tpl").read_text()
    assert "runAsUser: 65532\n" in helpers


def test_what_the_image_holds_is_pinned_as_in_development() -> None:
    lines = (ROOT / "docker" / "requirements.txt").read_text().splitlines()
    held = dict(line.lower().replace("_", "-").split("==") for line in lines if not line.startswith("#"))
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    tried = dict(line.lower().replace("_", "-").split("==") for line in pins if not line.startswith("#"))
    assert {name: tried[name] for name in held.keys() & tried.keys()} == {
        name: held[name] for name in held.keys() & tried.keys()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["cluster"]]
    needed = {re.split(r"[^a-z0-9-]", line.lower())[0] for line in asked}
    assert needed <= held.keys()
    assert "torch" not in held
