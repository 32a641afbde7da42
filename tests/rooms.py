"""Print import circles and the number of files per folder: `python -m tests.rooms`.

An import counts wherever it is: at the top, in a function, or under TYPE_CHECKING, because a reader of a
module must know the types that it names. Exit code 1 for a circle or a crowded folder."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("holdfast", "agent", "controlplane")
FILES_MAX = 16
"""The most files of one folder, without `__init__.py` and generated stubs."""

Graph = dict[str, set[str]]


def modules(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> dict[str, Path]:
    """Every module of these packages by its dotted name; a package's `__init__` has the package's name."""
    found = {}
    for path in (each for package in packages for each in sorted((root / package).rglob("*.py"))):
        if "_pb2" not in path.name:
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def graph(known: dict[str, Path]) -> Graph:
    """The modules that each module imports, among these."""
    return {name: _imports(path, known) - {name} for name, path in known.items()}


def _imports(path: Path, known: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known.keys()
            found |= {node.module} if inner - known.keys() else set()
    return found & known.keys()


def circles(arrows: Graph) -> list[list[str]]:
    """Modules that reach each other: Tarjan's strongly connected components of more than one module."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in arrows:
        if name not in index:
            visit(name)
    return found


def files(known: dict[str, Path]) -> Counter[str]:
    """How many files are directly in each folder."""
    return Counter(str(p.parent.relative_to(ROOT)) for p in known.values() if p.name != "__init__.py")


def main() -> int:
    """Print both; the exit code is 1 when something is wrong."""
    known = modules()
    found = circles(graph(known))
    print(f"{len(known)} modules, {len(found)} import circles (TYPE_CHECKING counted)")
    for circle in found:
        print("  circle: " + ", ".join(circle))
    for folder, count in sorted(files(known).items()):
        print(f"  {count:3d} {folder}" + (f" (more than {FILES_MAX})" if count > FILES_MAX else ""))
    return int(bool(found) or any(count > FILES_MAX for count in files(known).values()))


if __name__ == "__main__":
    sys.exit(main())
