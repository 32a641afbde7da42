"""What scripts import is learned from their first start, and preloaded for the next one.

A member tells its launcher which libraries it imports; the zygote imports them too, so that members forked
later have them. Only what lies in the interpreter's own libraries is learned, never the script's own modules,
and nothing where HOLDFAST_PRELOAD says what is to be preloaded. Standard library only."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

from holdfast.launch import linux

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_learned: set[str] = set()  # in the zygote, and in what is forked from it


class Watch:
    """A finder that finds nothing, and notes which libraries are looked for. `tell` gets the names and
    origins of those that have been imported since."""

    def __init__(self, tell: Callable[[dict[str, str]], None]) -> None:
        self._tell, self._owner = tell, os.getpid()
        self._pending: set[str] = set()
        self._libraries = libraries()

    def start(self) -> None:
        """Begin to note."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, _target: Any = None) -> None:
        """Called by the interpreter for what is not imported yet."""
        if path is not None or os.getpid() != self._owner:
            return
        self._look()
        if not self._pending:  # else it is there; what is imported last is told by the collector's next turn
            gc.callbacks.append(self._turn)
        self._pending.add(name)

    def _turn(self, _phase: str, _info: Any) -> None:
        self._look()
        if not self._pending or os.getpid() != self._owner:
            gc.callbacks.remove(self._turn)

    def _look(self) -> None:
        """Tell of those whose import is over."""
        found = {}
        for name in list(self._pending):
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if spec is not None and getattr(spec, "_initializing", False):
                continue
            self._pending.discard(name)
            origin = getattr(spec, "origin", None) or ""
            if origin.startswith(self._libraries):
                found[name] = origin
        if found and os.getpid() == self._owner:
            self._tell(found)


def libraries() -> tuple[str, ...]:
    """The folders of the interpreter's libraries, each with a slash at its end."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(os.path.join(path, "") for path in [*found, *site.getsitepackages()])


def take(modules: Mapping[str, str]) -> str:
    """In the zygote: import these, where the name means the same file here. The name of the first that
    must not be there before a fork (it has started a thread, or a GPU's context), "" if all is well."""
    for name, origin in modules.items():
        if name in sys.modules or not _means(name, origin):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # the script will meet it itself
            sys.stderr.write(f"{name} is not preloaded: {error!r}\n")
            continue
        _learned.add(name)
        if linux.threads() > 1 or _has_gpu():
            return name
    gc.collect()
    gc.freeze()
    return ""


def _means(name: str, origin: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin == origin


def _has_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def yield_to(folder: str) -> None:
    """In a member: what was learned from other scripts makes way for modules of this script's folder."""
    if not _learned:
        return
    own = {name.partition(".")[0] for name in os.listdir(folder)} & _learned
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]
