"""Copied into a virtual environment, where a .pth file imports it: refuses REFUSED to launchers and ranks.

It notes in a file beside itself which processes it watches (forked ones included) and what it has refused.
None of them can have a module of REFUSED: it comes before their first import. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

REFUSED = frozenset(
    {
        *("agent", "controlplane"),
        *("cryptography", "google", "grpc", "h11", "prometheus_client", "rich", "shtab", "uvloop"),
    }
)
PROGRAMS = frozenset({"holdfast.launch.launcher", "holdfast.launch.warm"})
"""Modules that are run with `-m`: the launcher, and the zygote or a fresh interpreter that becomes a rank."""
NOTES = Path(__file__).with_suffix(".notes")


class Refusal:
    """An import finder that finds nothing and refuses what is in REFUSED."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Called by the interpreter for what is not imported yet."""
        if name.partition(".")[0] in REFUSED:
            note("refused", name)
            raise ModuleNotFoundError(f"{name} is refused to launchers and ranks", name=name)


def note(kind: str, word: str) -> None:
    """Append one line. Several processes do at once: one write each."""
    with NOTES.open("a") as file:
        file.write(f"{kind} {os.getpid()} {word}\n")


def watch() -> None:
    """Refuse from here on, also in what is forked."""
    sys.meta_path.insert(0, Refusal())
    os.register_at_fork(after_in_child=lambda: note("watched", "forked"))
    note("watched", "started")


if not PROGRAMS.isdisjoint(sys.orig_argv):
    watch()
