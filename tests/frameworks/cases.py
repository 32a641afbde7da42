"""List the cases: a script in a framework's own style, the lines that port it, and where it is killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PACKAGES = {"hf": "transformers", "lightning": "lightning"}
"""The package of each framework, as pip names it."""
IN_STEP = ("forward", "backward", "optimizer")
"""Kill points that torch's own hooks find. Any other one is the name of a framework's event."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL of the process at `rank`.

    `at`: one of IN_STEP, or a framework's event (`on_save`), killed before the event has returned. `step`: of
    an optimizer, from 0, for IN_STEP; else the number that the framework gives with the event. `nth`: how
    often the place is reached in that step before the kill."""

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
    compared."""

    name: str
    framework: str
    script: Path
    kill: Kill
    arguments: tuple[str, ...] = ()
    changes: tuple[tuple[str, str], ...] | None = ()
    again: frozenset[str] = frozenset()

    def ported(self) -> str:
        """The text of the ported script. Raises ValueError if a line to be changed is not there once."""
        lines = self.script.read_text().splitlines()
        for line, instead in self.changes or ():
            if lines.count(line) != 1:
                raise ValueError(f"{self.script.name}: it has {line!r} {lines.count(line)} times, not once")
            lines[lines.index(line)] = instead
        return "\n".join(lines) + "\n"

    @property
    def changed_lines(self) -> int:
        """How many lines porting changes; for a script that is ported already, those that name holdfast."""
        if self.changes is None:
            return sum("holdfast" in line for line in self.script.read_text().splitlines())
        return sum(instead.count("\n") + 1 for _, instead in self.changes)

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
    return Case(script.stem, found, script, Kill("forward", step), (), None, MAY_BEGIN_AGAIN)


MAY_BEGIN_AGAIN = frozenset({"on_train_begin", "on_step_begin", "on_substep_end", "on_prediction_step"})
HF_PORT = (
    (
        "from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments",
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "from holdfast.integrations.hf import Trainer, TrainingArguments",
    ),
)

PLATEAU_PORT = (
    ("import transformers", "import transformers\nfrom holdfast.integrations import hf"),
    ("    training_args = transformers.TrainingArguments(", "    training_args = hf.TrainingArguments("),
    ("    trainer = transformers.Trainer(", "    trainer = hf.Trainer("),
)


def _hf(name: str, kill: Kill) -> Case:
    return Case(f"hf_{name}", "hf", SCRIPTS / "hf_trainer.py", kill, (), HF_PORT, MAY_BEGIN_AGAIN)


def _plateau(name: str, kill: Kill) -> Case:
    script = SCRIPTS / "hf_plateau.py"
    return Case(f"hf_plateau_{name}", "hf", script, kill, (), PLATEAU_PORT, MAY_BEGIN_AGAIN)


LIGHTNING_PORT = (
    (
        "from lightning.pytorch.loggers import CSVLogger",
        "from lightning.pytorch.loggers import CSVLogger\n"
        "from holdfast.integrations.lightning import HoldfastStrategy",
    ),
    ('        strategy="ddp",', "        strategy=HoldfastStrategy(),"),
)
METRICS = "lightning_metrics.py"
BATCHES = frozenset({"on_train_batch_end"})
SAVED = frozenset({"on_train_epoch_end", "on_save_checkpoint"})
ONCE_PER_PROCESS = frozenset({"on_train_start"})
WITHIN_A_STEP = frozenset(
    {"on_train_epoch_start", "on_substep_end", "on_validation_start", "on_validation_batch_end"}
)
"""What begins or continues a step that runs again if it breaks, in Lightning."""


def _lightning(
    name: str, kill: Kill, *arguments: str, ends: Collection[str] = (), script: str = "lightning_trainer.py"
) -> Case:
    """`ends`: events at the end of the step in which the kill is: the step runs again, and they with it."""
    again = ONCE_PER_PROCESS | WITHIN_A_STEP | set(ends)
    return Case(f"lightning_{name}", "lightning", SCRIPTS / script, kill, arguments, LIGHTNING_PORT, again)


CASES: tuple[Case, ...] = (
    _hf("mid_epoch", Kill("forward", 7, nth=30)),
    _hf("evaluation", Kill("on_prediction_step", 12, nth=1)),
    _hf("logging_rank_0", Kill("on_log", 14, rank=0)),
    _hf("save", Kill("on_save", 12, rank=0)),
    _lightning("mid_epoch", Kill("forward", 3, nth=3)),
    _lightning("mid_accumulation", Kill("forward", 8, nth=12)),
    _lightning("backward", Kill("backward", 8, nth=12)),
    _lightning("workers", Kill("forward", 8, nth=7), "--num-workers", "1"),
    _lightning("validation", Kill("on_validation_batch_end", 6, nth=2)),
    _lightning("logging_rank_0", Kill("forward", 4, rank=0, nth=7)),
    _lightning("metrics", Kill("forward", 9, nth=9), script=METRICS),
    _lightning("metrics_rank_0", Kill("on_validation_batch_end", 8, rank=0, nth=1), script=METRICS),
    _lightning("after_optimizer", Kill("on_train_batch_end", 14), ends=BATCHES),
    _lightning("save", Kill("on_save_checkpoint", 6, rank=0, nth=1), ends=SAVED),
    _hf("optimizer", Kill("optimizer", 14)),
    _hf("first_step", Kill("forward", 0, rank=0, nth=30)),
    _hf("end_of_epoch", Kill("on_epoch_end", 10, rank=0)),
    _hf("end_of_training", Kill("on_train_end", 20, rank=0)),
    _plateau("evaluation", Kill("on_prediction_step", 9)),
    _plateau("mid_epoch", Kill("backward", 7, rank=0)),
)
