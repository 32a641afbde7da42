"""Define a case: a script in a framework's own style, the lines that port it, and where it is killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.frameworks.ports import Changes

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PACKAGES = {"hf": "transformers", "lightning": "lightning", "accelerate": "accelerate", "fabric": "lightning"}
"""The package of each framework, as pip names it."""
IN_STEP = ("forward", "backward", "optimizer", "scheduler", "evaluation")
"""Kill points that torch itself shows; `evaluation`: a forward without gradients. Any other one is the name
of a framework's event."""
MAY_BEGIN_AGAIN = frozenset({"on_train_begin", "on_step_begin", "on_substep_end", "on_prediction_step"})
ONCE_PER_PROCESS = frozenset({"on_train_start"})
WITHIN_A_STEP = frozenset(
    {
        *("on_train_epoch_start", "on_substep_end", "on_before_optimizer_step"),
        *("on_validation_start", "on_validation_batch_end"),
        *("on_test_start", "on_test_batch_end", "on_predict_start", "on_predict_batch_end"),
    }
)
"""What begins or continues a step that runs again if it breaks, in Lightning."""
OWN_AGAIN = frozenset({"gather_for_metrics", "save_state", "save"})
"""What is done again in a step that runs again, in a loop of the script's own."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL of the process at `rank`.

    `at`: one of IN_STEP, or a framework's event (`on_save`), killed before the event has returned. `step`:
    how often an optimizer of this process has stepped, for IN_STEP; else the number that the framework gives
    with the event. `nth`: how often the place is reached in that step before the kill."""

    at: str
    step: int
    rank: int = 1
    nth: int = 0

    def __str__(self) -> str:
        return f"{self.at}, step {self.step}, rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    `changes`: the lines that port the script, as (line, line in its place); each is in it exactly once. None:
    the script is ported already. `again`: events that may be begun again for a step, so their number is not
    compared. `setting`: other lines that are changed, likewise. `only`: the parts of what ranks come to that
    are compared; (): all. `refused`: nothing is killed; the undisturbed run must end with an error that says
    this. `named`: nothing is killed; it must end well, and have said this. `on_gpu`: the changes that put the
    script on a GPU, where it runs as one rank over NCCL; None: it has two ranks on CPUs. `needs`: a package
    that the script imports besides the framework."""

    name: str
    framework: str
    script: Path
    kill: Kill
    arguments: tuple[str, ...] = ()
    changes: Changes | None = ()
    again: frozenset[str] = frozenset()
    setting: Changes = ()
    only: tuple[str, ...] = ()
    refused: str = ""
    named: str = ""
    plain: bool = False
    on_gpu: Changes | None = None
    needs: str = ""

    def ported(self) -> str:
        """The text of the ported script. Raises ValueError if a line to be changed is not there once."""
        return self._changed((*(self.changes or ()), *self.setting, *(self.on_gpu or ())))

    def unported(self) -> str:
        """The text of the script as the framework alone runs it. Raises ValueError likewise."""
        return self._changed(self.setting)

    def _changed(self, changes: Changes) -> str:
        lines = self.script.read_text().splitlines()
        for line, instead in changes:
            if lines.count(line) != 1:
                raise ValueError(f"{self.script.name}: it has {line!r} {lines.count(line)} times, not once")
            lines[lines.index(line)] = instead
        return "\n".join(lines) + "\n"

    @property
    def changed_lines(self) -> int:
        """How many lines porting changes; for a script that is ported already, those that name holdfast."""
        if self.changes is None:
            return sum("holdfast" in line for line in self.script.read_text().splitlines())
        return sum(each != line for line, instead in self.changes for each in instead.split("\n"))

    def words(self, out: Path) -> tuple[str, ...]:
        """The script's arguments. One that is given by hand gets none: it runs in the run's folder."""
        return self.arguments if self.changes is None else (*self.arguments, "--output-dir", str(out))


def by_hand(script: Path, step: int, framework: str = "") -> Case:
    """The case of a script that is ported already: killed in the first forward of this step, at rank 1.

    `framework`: "" for the one that the script imports first. Raises ValueError if it imports none."""
    text = script.read_text()
    places = {name: text.find(word) for name, word in PACKAGES.items() if word in text}
    if not (framework or places):
        raise ValueError(f"{script}: it imports none of {', '.join(PACKAGES)}: say --only NAME")
    found = framework or min(places, key=lambda name: places[name])
    again = MAY_BEGIN_AGAIN | WITHIN_A_STEP | ONCE_PER_PROCESS | OWN_AGAIN
    return Case(script.stem, found, script, Kill("forward", step), (), None, again)
