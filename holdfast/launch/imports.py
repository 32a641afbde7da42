"""Learn what a script imports at its first start, and preload it for the next one.

A member reports to its launcher which libraries it imports. The zygote imports them too, so that members
forked later have them. Only what lies in the interpreter's library folders is learned, never the script's own
modules, and nothing if HOLDFAST_PRELOAD names what to preload.

A library keeps what it read from the environment while it was imported. One that reads values that differ by
rank, or that the script sets before it imports, is not preloaded. A member for which a variable that was read
has another value gets a fresh interpreter. Standard library only."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

from holdfast.launch import linux, reads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_learned: set[str] = set()  # preloaded modules, in the zygote and its forks
_read: dict[str, str | None] = {}  # variables that they read, with the values that they saw

_OF_A_RANK = ("MASTER_", "GROUP_", "ROLE_", "LOCAL_", "HOLDFAST_", "TORCHELASTIC_")


class ImportWatch:
    """An import finder that finds nothing and notes which libraries are looked for.

    `report` is called with the names and files of those imported since its last call, and with the variables
    that the script had changed before."""

    def __init__(self, report: Callable[[dict[str, str], list[str]], None]) -> None:
        self._report, self._owner = report, os.getpid()
        self._environment = dict(os.environ)
        self._pending: set[str] = set()
        self._libraries = libraries()

    def start(self) -> None:
        """Begin to note imports."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, _target: Any = None) -> None:
        """Called by the interpreter for a module that is not imported yet."""
        if path is not None or os.getpid() != self._owner:
            return
        self._look()
        # Registered once. It also reports the last imports, at the next garbage collection.
        if not self._pending:
            gc.callbacks.append(self._turn)
        self._pending.add(name)

    def _turn(self, _phase: str, _info: Any) -> None:
        self._look()
        if not self._pending or os.getpid() != self._owner:
            gc.callbacks.remove(self._turn)

    def _look(self) -> None:
        """Report the libraries whose import is complete."""
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
            self._report(found, self._changed())

    def _changed(self) -> list[str]:
        """The variables that differ from when the script began."""
        now = dict(os.environ)
        names = self._environment.keys() | now.keys()
        return sorted(name for name in names if self._environment.get(name) != now.get(name))


def libraries() -> tuple[str, ...]:
    """The interpreter's library folders, each with a slash at its end."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(os.path.join(path, "") for path in [*found, *site.getsitepackages()])


def take(modules: Mapping[str, str], changed: Collection[str] = ()) -> str:
    """In the zygote: import these modules, if their names mean the same files here.

    Returns the first module that must not be preloaded, "" if there is none: it has started a thread or a GPU
    context, or has read a variable that differs between members (a rank's, or one `changed` by a script)."""
    for name, origin in modules.items():
        if name in sys.modules or not _means(name, origin):
            continue
        try:
            with reads.noted() as read:
                importlib.import_module(name)
        except Exception as error:  # the script will see this error itself
            sys.stderr.write(f"{name} is not preloaded: {error!r}\n")
            continue
        _learned.add(name)
        _read.update({variable: os.environ.get(variable) for variable in read})
        if linux.threads() > 1 or _has_gpu() or any(_differs(each, changed) for each in read):
            return name
    gc.collect()
    gc.freeze()
    return ""


def _differs(variable: str, changed: Collection[str]) -> bool:
    """Whether a variable may have another value in each member."""
    of_a_rank = variable in ("RANK", "WORLD_SIZE", reads.ALL) or variable.startswith(_OF_A_RANK)
    return of_a_rank or variable in changed


def frozen() -> dict[str, str | None]:
    """The variables that preloaded libraries have read, with the values that they saw."""
    return dict(_read)


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
    """In a member: drop learned modules that have the name of a module in this script's folder."""
    if not _learned:
        return
    own = {name.partition(".")[0] for name in os.listdir(folder)} & _learned
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]
