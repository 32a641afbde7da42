"""What Holdfast is made of: pinned and hashed, listed as CycloneDX, audited or said not to be."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "supply"))


def load(name: str) -> Any:
    """A script of supply/, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "supply" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock, sbom, audit = load("lock"), load("sbom"), load("audit")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "constraints.txt", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_lock_is_fresh_and_every_line_of_it_is_hashed() -> None:
    assert lock.problems() == []


def test_a_change_of_what_is_needed_makes_the_lock_stale(copy: Path) -> None:
    assert lock.problems(copy) == []
    project = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(project.replace('"rich>=13"', '"rich>=99"'))
    assert any("rich>=99" in problem for problem in lock.problems(copy))
    (copy / "pyproject.toml").write_text(project.replace('"rich>=13"', '"rich>=13", "left-pad>=1"'))
    assert any("left-pad" in problem for problem in lock.problems(copy))


def test_another_pin_makes_the_lock_stale(copy: Path) -> None:
    text = (copy / "constraints.txt").read_text()
    (copy / "constraints.txt").write_text(text.replace("rich==15.0.0", "rich==14.0.0"))
    found = lock.problems(copy)
    assert any("has changed" in problem for problem in found) and any("14.0.0" in each for each in found)


def test_a_line_without_a_hash_is_named(copy: Path) -> None:
    text = (copy / "requirements.lock").read_text()
    head, rows = text.split("\nrich==", 1)
    version, rest = rows.split(" \\\n", 1)
    kept = rest[rest.index("\n", rest.rindex("--hash", 0, rest.index("=="))) + 1 :]
    (copy / "requirements.lock").write_text(f"{head}\nrich=={version}\n{kept}")
    assert lock.problems(copy) == ["rich has no hash"]
    (copy / "requirements.lock").unlink()
    assert "there is no requirements.lock" in lock.problems(copy)[0]


def test_the_bill_of_materials_is_cyclonedx_and_whole() -> None:
    made = sbom.document()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is None
    names = {each["name"] for each in made["components"]}
    assert names == set(lock.pinned(lock.LOCK.read_text())) | {"torch"}
    needs = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    assert len(needs["holdfast"]) > 20 and all(each in needs for row in needs.values() for each in row)
    assert made == sbom.document(), "the same tree gives the same bill"


@contextmanager
def feed(known: dict[str, str]) -> Iterator[str]:
    """A feed that speaks OSV's protocol and knows these vulnerabilities, by distribution."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]["name"]
            found = (
                {"vulns": [{"id": known[asked], "summary": "s", "affected": []}]} if asked in known else {}
            )
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_words: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def little(tmp_path: Path) -> Path:
    path = tmp_path / "little.lock"
    path.write_text(f"one==1.0 \\\n    --hash=sha256:{'a' * 64}\ntwo==2.0 \\\n    --hash=sha256:{'b' * 64}\n")
    return path


def test_an_audit_names_what_is_known(little: Path) -> None:
    with feed({"two": "OSV-7"}) as url:
        assert audit.audit(url, little) == (audit.KNOWN, "known vulnerabilities:\n  two 2.0: OSV-7")
    with feed({}) as url:
        assert audit.audit(url, little) == (audit.CLEAN, "2 distributions, no known vulnerability")


def test_an_audit_that_could_ask_nobody_is_no_pass(little: Path) -> None:
    code, words = audit.audit("http://127.0.0.1:9/v1/query", little)
    assert code == audit.NOT_ASKED and "could not ask" in words
