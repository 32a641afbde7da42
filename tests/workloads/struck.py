"""Run a training script as it is, and send SIGKILL to this very process where a plan says so.

    python -m tests.workloads.struck PLAN SCRIPT [the script's arguments]

The script's loop over `session.steps` is compiled with a mark before each of its statements; places are found
through the marks, torch's global hooks, calls into the session, and the rank's progress page. Nothing of
Holdfast is changed. A process marks a kill on disk before it happens, so that it happens once. Hooks do
nothing within compiled code: what they read would be compiled into it."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import holdfast
from holdfast.ipc.progress_page import PHASES, ProgressPage
from holdfast.snapshots import lazy
from tests.workloads.blows import IN_RECOVERY, Blow

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "_standing_at"
BEGIN, END = "begin", "end"
BETWEEN = ("snapshot", *IN_RECOVERY)
"""Phases in which the script's own code does not run."""
_OURS = str(Path(holdfast.__file__).parent)
_RESTORING = tuple(str(Path(_OURS, name)) for name in ("agreement/restore.py", "groups/transfer.py"))
assert all(map(os.path.isfile, _RESTORING)), f"where a state is put in place: {_RESTORING}"


class Struck:
    """The kills that this process may have to carry out on itself, and where in training it is."""

    def __init__(self, folder: Path, blows: tuple[Blow, ...]) -> None:
        self._folder, self._blows = folder, blows
        self._next = 0
        self._since = -1  # the generation of the newest kill
        self._at = (-1, -1)  # task and step
        self._counts: dict[str, int] = {}
        self._board = ProgressPage.open(Path(os.environ["HOLDFAST_BOARD"]))

    def install(self) -> None:
        """Hook into forward, backward, optimizers, and calls into the session."""
        register_module_forward_pre_hook(self._forward)
        register_module_forward_hook(self._went_forward)
        register_optimizer_step_pre_hook(self._optimizer)
        register_optimizer_step_post_hook(self._moved)
        self._listen()

    def _listen(self) -> None:
        """Trace calls only while a kill is due that needs it: tracing each call costs time."""
        owed = self._pending() and any(blow.phase in BETWEEN for blow in self._blows[self._next :])
        sys.settrace(self._called if owed else None)

    def mark(self, text: str, task: int, step: int) -> None:
        """The training loop is before the statement `text`, in this task's step.

        Data is drawn by a statement that names sample_indices; the next one has the samples."""
        if text == BEGIN:
            self._at = (task, step)
            self._counts.clear()
            self._listen()
        if "sample_indices" in text or self._counts.get("drawn"):
            self._counts["drawn"] = 1
            self._reached("data")
        if self._counts.get("moved"):
            self._reached("tail", last=text == END)

    # ------------------------------------------------------------------ torch's hooks

    def _forward(self, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._counts["drawn"] = 0
        self._counts["forward"] = 1
        self._reached("forward")

    def _went_forward(self, _module: Any, _given: Any, out: Any) -> None:
        if torch.compiler.is_compiling():
            return
        blow = self._pending()
        if blow is not None and blow.phase == "backward" and isinstance(out, torch.Tensor):
            if out.requires_grad:
                out.register_hook(lambda _: self._reached("backward"))  # type: ignore[no-untyped-call]

    def _optimizer(self, *_: Any) -> None:
        self._reached("optimizer")

    def _moved(self, *_: Any) -> None:
        self._counts["moved"] = 1
        self._counts["tail"] = 0

    # ------------------------------------------------------------------ calls into the session

    def _called(self, frame: types.FrameType, event: str, _: Any) -> None:
        """A function of the session is called: ask the rank's page what it is doing."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(_OURS):
            return
        blow, now = self._pending(), PHASES[self._board.phase] if self._board.phase >= 0 else "none"
        if blow is None:
            return
        if now == "snapshot":
            self._reached("snapshot")
        elif now == "forming" and blow.phase in IN_RECOVERY and self._board.generation > self._since:
            restoring = file in _RESTORING
            self._counts["restoring"] = restoring or self._counts.get("restoring", 0)
            if self._counts["restoring"]:
                self._reached("forming", last=True)
                self._reached("restore")
            else:
                self._reached("forming")
        elif now not in ("snapshot", "forming"):
            for name in ("snapshot", "forming", "restore", "restoring"):
                self._counts.pop(name, None)

    # ------------------------------------------------------------------ the blow

    def _pending(self) -> Blow | None:
        """The next kill of the plan, if one is left."""
        while self._next < len(self._blows):
            try:
                told = json.loads(self._marker(self._next).read_text())
            except FileNotFoundError:
                return self._blows[self._next]
            self._since = told["generation"]
            self._next += 1
            self._counts.clear()
        return None

    def _marker(self, number: int) -> Path:
        return self._folder / f"{number}.blow"

    def _reached(self, phase: str, *, last: bool = False) -> None:
        """Count a place of this phase, and carry the kill out when it is due there. `last`: it is the last
        one of the phase in this step."""
        blow = self._pending()
        if blow is None or blow.phase != phase or os.environ.get("RANK") != str(blow.rank):
            return
        here = self._at >= blow.at or phase in IN_RECOVERY
        if not here or self._board.generation <= self._since:
            return
        count = self._counts[phase] = self._counts.get(phase, -1) + 1
        if count >= blow.nth or last or (self._at > blow.at and phase not in IN_RECOVERY):
            self._fall(blow)

    def _fall(self, blow: Blow) -> None:
        told = {"phase": blow.phase, "rank": blow.rank, "at": self._at, "generation": self._board.generation}
        told |= {"pid": os.getpid(), "completed": self._board.completed, "at_ns": time.monotonic_ns()}
        told |= {"copying": any(thread.name == lazy.THREAD for thread in threading.enumerate())}
        partial = self._folder / f"{blow.number}.{os.getpid()}"
        partial.write_text(json.dumps(told))
        os.link(partial, self._marker(blow.number))
        os.kill(os.getpid(), signal.SIGKILL)


class _Marked(ast.NodeTransformer):
    """Puts a mark before each statement of a loop over `session.steps`, and one at its end."""

    def __init__(self) -> None:
        self.tasks: list[bool] = []  # for each enclosing function: whether it takes a task
        self.step = ""  # the loop's name for the step

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.tasks.append(any(given.arg == "task" for given in node.args.args))
        self.generic_visit(node)
        self.tasks.pop()
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        if ".steps(" in ast.unparse(node.iter):
            self.step = ast.unparse(node.target)
            end = self._mark(END, node.body[-1])
            node.body = [self._mark(BEGIN, node.body[0]), *self._within(node.body), end]
        else:
            self.generic_visit(node)
        return node

    def _within(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            first = ast.unparse(statement).splitlines()[0]
            found.append(self._mark(first, statement))
            for name in ("body", "orelse"):
                if inner := getattr(statement, name, None):
                    setattr(statement, name, self._within(inner))
            found.append(statement)
        return found

    def _mark(self, text: str, near: ast.stmt) -> ast.stmt:
        task = "task" if any(self.tasks) else "0"
        made = ast.parse(f"{MARK}({text!r}, {task}, {self.step})").body[0]
        for node in ast.walk(made):
            ast.copy_location(node, near)
        return made


def note_lazy_copies(folder: Path) -> None:
    """Leave a file in the folder when this process copies a snapshot beside its training."""

    def begun(*_: object) -> None:
        sys.setprofile(None)
        if threading.current_thread().name == lazy.THREAD:
            (folder / f"{os.getpid()}.lazy").touch()

    threading.setprofile(begun)


def run(script: Path, mark: Callable[[str, int, int], None]) -> None:
    """Run the script as `python SCRIPT` would, with its training loop marked."""
    tree = ast.fix_missing_locations(_Marked().visit(ast.parse(script.read_text())))
    main = types.ModuleType("__main__")
    main.__dict__.update({"__file__": str(script), MARK: mark, "__builtins__": __builtins__})
    sys.modules["__main__"] = main
    sys.path.insert(0, str(script.parent))
    exec(compile(tree, str(script), "exec"), main.__dict__)


def load(path: Path) -> tuple[Blow, ...]:
    """Read the kills from the file of a plan."""
    return tuple(Blow(**fields) for fields in json.loads(path.read_text()))


def main() -> None:
    plan, script = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    struck = Struck(plan.parent, load(plan))
    sys.argv = sys.argv[2:]
    struck.install()
    note_lazy_copies(plan.parent)
    run(script, struck.mark)


if __name__ == "__main__":
    main()
