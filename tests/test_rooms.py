"""The rooms of the code: no import circle, no crowded folder; and the look itself sees both."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests import rooms

if TYPE_CHECKING:
    from pathlib import Path


def test_no_module_reaches_itself() -> None:
    assert rooms.circles(rooms.graph(rooms.modules())) == []


def test_no_folder_is_crowded() -> None:
    crowded = {folder: n for folder, n in rooms.files(rooms.modules()).items() if n > rooms.FILES_MAX}
    assert not crowded, f"more than {rooms.FILES_MAX} files lie flat: {crowded}"


def test_a_circle_is_seen_wherever_the_import_stands(tmp_path: Path) -> None:
    package = tmp_path / "some"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from some import two\n")
    (package / "two.py").write_text("def late():\n    from some.three import thing\n")
    (package / "three.py").write_text("if TYPE_CHECKING:\n    import some.one\n")
    (package / "four.py").write_text("from some.one import name\n")
    arrows = rooms.graph(rooms.modules(tmp_path, ("some",)))
    assert arrows["some.four"] == {"some.one"}
    assert rooms.circles(arrows) == [["some.one", "some.three", "some.two"]]


def test_an_exit_code_of_a_launcher_or_a_daemon_has_one_definition() -> None:
    """A policy of Kubernetes goes by it: two that drift apart would take a failed job for a crash."""
    places: dict[str, list[str]] = {}
    for name, path in rooms.modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name) and isinstance(node.value.value, int):
                        places.setdefault(target.id, []).append(name)
    homes = ("holdfast.launch.errand", "controlplane.exit_codes")
    codes = {name: found for name, found in places.items() if set(found) & set(homes)}
    assert {"JOB_FAILED", "REFUSED"} <= codes.keys()
    assert {name: found for name, found in codes.items() if len(found) > 1} == {}
